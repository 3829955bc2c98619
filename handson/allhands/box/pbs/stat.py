"""What do qstat and qdel of the PBS stand-in say and do? Slurm's state, in PBS's words."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands.box.pbs import queues, table
from allhands.box.pbs.spool import SERVER, JobId, Spool, fields
from allhands.box.pbs.words import HAS_FINISHED, NOT_ALLOWED, UNKNOWN_QUEUE, PbsError, clock

# Slurm's state of a job, and PBS's letter. What is not here has ended: F.
STATES = {
    **{"PENDING": "Q", "REQUEUED": "Q", "CONFIGURING": "R", "RUNNING": "R"},
    **{"COMPLETING": "E", "SUSPENDED": "S"},
}
HELD = {"JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied"}
ALTERNATE = set("aiHrns1w")  # each asks for the alternate table
KNOWN = ALTERNATE | set("fxtQ")
NOT_SHOWN = {
    **{"q": "limits of queues; qstat -Q shows the queues", "B": "the server"},
    **{"F": "another form of -f", "T": "estimated starts", "J": "arrays alone", "p": "per cent"},
    **{"G": "sizes in gigabytes", "M": "sizes in megawords", "E": "another order"},
}


@dataclass(frozen=True)
class Seen:
    """A job as qstat shows it. state: PBS's letter; exit_status: None while it has none."""

    job: JobId
    folder: Path
    note: Mapping
    state: str
    slurm: Mapping[str, str]
    exit_status: int | None

    @property
    def comment(self) -> str:
        """Why it waits, or where it runs."""
        if self.note["comment"]:
            return self.note["comment"]
        reason = self.slurm.get("Reason", "None")
        if self.state in "QH":
            return f"Not Running: {reason}" if reason != "None" else ""
        return f"Job run on {self.slurm.get('NodeList', '')}" if self.state in "RE" else ""


def look(spool: Spool, job: JobId, command: str) -> Seen:
    """Raises PbsError if there is no such job."""
    folder = spool.job(job, command)
    note = spool.note(job, command)
    lines = spool.slurm("scontrol", "--oneliner", "show", "job", job.slurm).stdout.splitlines()
    parts = [fields(line) for line in lines if line.startswith("JobId=")]
    ended = folder / f"ended{f'.{job.index}' if job.index else ''}"
    code = int(ended.read_text()) if ended.exists() else None
    if note["array"] and job.index is None:
        job = JobId(job.number, "")
    states = {letter_of(part, note) for part in parts}
    if job.index == "":
        state = next((s for s in "ERSB" if s in states), "Q" if states & {"Q", "H"} else "F")
        state = "B" if state != "F" and ("R" in states or "F" in states) else state
        code = 0 if state == "F" else None
    else:
        state = next(iter(states), "F")
    return Seen(job, folder, note, state, parts[0] if parts else {}, code)


def letter_of(slurm: Mapping[str, str], note: Mapping) -> str:
    state = STATES.get(slurm.get("JobState", ""), "F")
    held = slurm.get("Reason") in HELD and not note["comment"]
    return "H" if state == "Q" and held else state


def alive(spool: Spool, job: JobId) -> bool:
    return look(spool, job, "qstat").state != "F"


# ---- qstat ----


def qstat(argv: Sequence[str]) -> int:
    """qstat [-x] [-t] [-f] [-a -i -r -H -n -s -1 -w] [-u USERS] [JOB or QUEUE...], qstat -Q."""
    flags, users, names = asked(argv)
    spool = Spool.here("qstat")
    if "Q" in flags:
        return queues.show(spool, names, full="f" in flags)
    code, shown = 0, []
    for job, is_named in wanted(spool, names):
        try:
            shown += [each for each in look_into(spool, job, flags) if chosen(each, flags, users)]
        except PbsError as error:
            if is_named:
                print(error, file=sys.stderr)
                code = error.code
    alternate = flags & ALTERNATE or users
    if shown and "f" not in flags:
        print(table.alternate_head("w" in flags) if alternate else table.SHORT_HEAD)
    for seen in shown:
        if "f" in flags:
            print("\n".join(full(seen)) + "\n")
        elif alternate:
            hosts, why = "n" in flags, "s" in flags
            how = {"wide": "w" in flags, "hosts": hosts, "why": why, "one_line": "1" in flags}
            print("\n".join(table.alternate_lines(seen, **how)))
        else:
            print(table.short_line(seen))
    return code


def asked(argv: Sequence[str]) -> tuple[set[str], set[str], list[str]]:
    """(letters, users of -u, jobs and queues), in any order. Raises PbsError."""
    flags: set[str] = set()
    users: set[str] = set()
    names: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            names.append(word)
        letters = word[1:] if word.startswith("-") else ""
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in NOT_SHOWN:
                raise PbsError(
                    f"qstat: the stand-in for PBS cannot do -{letter} ({NOT_SHOWN[letter]}).", 1
                )
            if letter == "u":
                if not letters and not words:
                    raise PbsError("qstat: option requires an argument -- 'u'", 2)
                users |= {name.partition("@")[0] for name in (letters or words.pop(0)).split(",")}
                letters = ""
            elif letter in KNOWN:
                flags.add(letter)
            else:
                raise PbsError(f"qstat: invalid option -- '{letter}'", 2)
    return flags, users, names


def wanted(spool: Spool, names: Sequence[str]) -> Iterator[tuple[JobId, bool]]:
    """The jobs of these names (ids, or queues; none: all), and whether its id was among them."""
    numbers = sorted(int(path.name) for path in (spool.folder / "jobs").glob("[0-9]*"))
    for name in names or [""]:
        if name[:1].isdigit():
            yield JobId.of(name, "qstat"), True
            continue
        queue = name.partition("@")[0]
        if queue and queue not in queues.partitions(spool):
            raise PbsError(f"qstat: Unknown queue {name}", UNKNOWN_QUEUE)
        for number in numbers:
            if not queue or spool.note(JobId(number), "qstat")["queue"] == queue:
                yield JobId(number), False


def look_into(spool: Spool, job: JobId, flags: set[str]) -> Iterator[Seen]:
    """The job, and with -t the parts of an array. Raises PbsError if it has ended, but with -x."""
    seen = look(spool, job, "qstat")
    if seen.state == "F" and not flags & {"x", "H"}:
        raise PbsError(
            f"qstat: {seen.job} Job has finished, use -x or -H to obtain historical job "
            "information",
            HAS_FINISHED,
        )
    yield seen
    if "t" in flags and seen.job.index == "":
        for index in indices(seen.note["array"]):
            yield look(spool, JobId(seen.job.number, str(index)), "qstat")


def indices(array: str) -> range:
    """Those of -J: "0-8:2%3" has 0, 2, 4, 6 and 8."""
    first, last, step = re.match(r"(\d+)-(\d+)(?::(\d+))?", array).groups()
    return range(int(first), int(last) + 1, int(step or 1))


def chosen(seen: Seen, flags: set[str], users: set[str]) -> bool:
    """-u, -i (does not run), -r (runs), -H (has ended)."""
    states = {"i": "QHWT", "r": "RSEB", "H": "FX"}
    letters = "".join(states[flag] for flag in flags & set(states))
    return (not users or table.user(seen) in users) and (not letters or seen.state in letters)


def full(seen: Seen) -> Iterator[str]:
    """The attributes as `qstat -f` prints them."""
    note, slurm = seen.note, seen.slurm
    yield f"Job Id: {seen.job}"
    limit_s = note["walltime_s"]
    chunks = [
        f"{part['count']}:ncpus={part['ncpus']}:mpiprocs={part['mpiprocs']}"
        for part in note["parts"]
    ]
    attributes = {
        "Job_Name": note["name"],
        "Job_Owner": note["owner"],
        "resources_used.walltime": slurm.get("RunTime") if seen.state in "REF" else None,
        "job_state": seen.state,
        "queue": note["queue"],
        "server": SERVER,
        "Account_Name": note["account"],
        "array": "True" if note["array"] else None,
        "Error_Path": path_of(slurm.get("StdErr", "")),
        "exec_host": table.exec_host(seen),
        "Output_Path": path_of(slurm.get("StdOut", "")),
        "Resource_List.select": "+".join(chunks),
        "Resource_List.walltime": None if limit_s is None else clock(limit_s),
        "comment": seen.comment,
        "Exit_status": seen.exit_status,
    }
    yield from (
        f"    {name} = {value}" for name, value in attributes.items() if value not in (None, "")
    )


def path_of(text: str) -> str:
    """host:path; of a whole array Slurm shows the greatest number where the index belongs."""
    return f"{SERVER}:{text.replace(str(2**32 - 2), '^array_index^')}"


# ---- qdel ----


def qdel(argv: Sequence[str]) -> int:
    """qdel [-W force] [-x] JOB...: SIGTERM to the job's processes, then SIGKILL."""
    words = list(argv)
    if "-W" in words:
        del words[words.index("-W") : words.index("-W") + 2]
    names = [word for word in words if not word.startswith("-")]
    if not names:
        raise PbsError("usage:\tqdel [-W force] [-x] job_identifier...\n\tqdel --version", 2)
    spool = Spool.here("qdel")
    code = 0
    for name in names:
        try:
            seen = look(spool, JobId.of(name, "qdel"), "qdel")
            if seen.state == "F":
                raise PbsError(f"qdel: Job has finished {seen.job}", HAS_FINISHED)
            if spool.slurm("scancel", seen.job.slurm).returncode != 0:
                raise PbsError(f"qdel: Unauthorized Request  {seen.job}", NOT_ALLOWED)
        except PbsError as error:
            print(error, file=sys.stderr)
            code = error.code
    return code
