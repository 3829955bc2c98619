"""What do qstat and qdel of the PBS stand-in say and do? Slurm's state, in PBS's words."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands.box.pbs_spool import SERVER, JobId, Spool, fields
from allhands.box.pbs_words import HAS_FINISHED, UNKNOWN_QUEUE, PbsError

# Slurm's state of a job, and PBS's letter. What is not here has ended: F.
STATES = {
    **{"PENDING": "Q", "REQUEUED": "Q", "CONFIGURING": "R", "RUNNING": "R"},
    **{"COMPLETING": "E", "SUSPENDED": "S"},
}
HELD = {"JobHeldUser", "JobHeldAdmin", "Dependency", "DependencyNeverSatisfied"}
JOB_HEAD = f"""\
{"Job id":<17} {"Name":<16} {"User":<16}  {"Time Use":>8} S Queue
{"-" * 16}  {"-" * 16} {"-" * 16}  {"-" * 8} - -----"""
QUEUE_COLUMNS = {  # and their widths
    **{"Max": 5, "Tot": 5, "Ena": 3, "Str": 3, "Que": 5},
    **{"Run": 5, "Hld": 5, "Wat": 5, "Trn": 5, "Ext": 5},
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


def look(spool: Spool, job: JobId, command: str) -> Seen:
    """Raises PbsError if there is no such job."""
    folder = spool.job(job, command)
    note = json.loads((folder / "job.json").read_text())
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
    """qstat [-f] [-x or -H] [JOB...]; qstat -Q [-f] [QUEUE...]."""
    flags = {letter for word in argv if word.startswith("-") for letter in word[1:]}
    names = [word for word in argv if not word.startswith("-")]
    if unknown := sorted(flags - set("fxHQ")):
        raise PbsError(f"qstat: invalid option -- '{unknown[0]}'", 2)
    spool = Spool.here("qstat")
    if "Q" in flags:
        return queues(spool, names, full="f" in flags)
    if names:
        jobs = [JobId.of(name, "qstat") for name in names]
    else:
        numbers = (spool.folder / "jobs").glob("[0-9]*")
        jobs = [JobId(number) for number in sorted(int(path.name) for path in numbers)]
    code, head = 0, True
    for job in jobs:
        try:
            seen = look(spool, job, "qstat")
            if seen.state == "F" and not flags & {"x", "H"}:
                if not names:
                    continue
                raise PbsError(
                    f"qstat: {seen.job} Job has finished, use -x or -H to obtain historical job "
                    "information",
                    HAS_FINISHED,
                )
        except PbsError as error:
            print(error, file=sys.stderr)
            code = error.code
            continue
        if "f" in flags:
            print("\n".join(full(seen)) + "\n")
        else:
            if head:
                print(JOB_HEAD)
            print(line(seen))
            head = False
    return code


def line(seen: Seen) -> str:
    user = seen.note["owner"].partition("@")[0]
    used = seen.slurm.get("RunTime", "0") if seen.state in "REF" else "0"
    return (
        f"{seen.job!s:<17} {seen.note['name'][:16]:<16} {user[:16]:<16}  {used:>8} {seen.state} "
        f"{seen.note['queue']}"
    )


def full(seen: Seen) -> Iterator[str]:
    """The attributes as `qstat -f` prints them."""
    note, slurm = seen.note, seen.slurm
    yield f"Job Id: {seen.job}"
    limit_s = note["walltime_s"]
    chunks = [
        f"{part['count']}:ncpus={part['ncpus']}:mpiprocs={part['mpiprocs']}"
        for part in note["parts"]
    ]
    hosts = slurm.get("NodeList", "")
    attributes = {
        "Job_Name": note["name"],
        "Job_Owner": note["owner"],
        "resources_used.walltime": slurm.get("RunTime") if seen.state in "REF" else None,
        "job_state": seen.state,
        "queue": note["queue"],
        "server": SERVER,
        "Account_Name": note["account"],
        "array": "True" if note["array"] else None,
        "Error_Path": f"{SERVER}:{slurm.get('StdErr', '')}",
        "exec_host": hosts if hosts != "(null)" else None,
        "Output_Path": f"{SERVER}:{slurm.get('StdOut', '')}",
        "Resource_List.select": "+".join(chunks),
        "Resource_List.walltime": None if limit_s is None else clock(limit_s),
        "comment": comment(seen),
        "Exit_status": seen.exit_status,
    }
    yield from (
        f"    {name} = {value}" for name, value in attributes.items() if value not in (None, "")
    )


def comment(seen: Seen) -> str:
    if seen.note["comment"]:
        return seen.note["comment"]
    reason = seen.slurm.get("Reason", "None")
    if seen.state in "QH":
        return f"Not Running: {reason}" if reason != "None" else ""
    return f"Job run on {seen.slurm.get('NodeList', '')}" if seen.state in "RE" else ""


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def queues(spool: Spool, names: Sequence[str], *, full: bool) -> int:
    """qstat -Q: a line a queue, or with -f its attributes."""
    lines = spool.slurm("scontrol", "--oneliner", "show", "partition").stdout.splitlines()
    known = {queue["PartitionName"]: queue for queue in map(fields, lines)}
    names = [name.partition("@")[0] for name in names]
    for name in names:
        if name not in known:
            raise PbsError(f"qstat: Unknown queue {name}", UNKNOWN_QUEUE)
    jobs = spool.slurm("squeue", "--noheader", "--format=%P %T").stdout.splitlines()
    if not full:
        print(queue_line("Queue", QUEUE_COLUMNS, "Type"))
        print(queue_line("-" * 16, ["-" * width for width in QUEUE_COLUMNS.values()], "----"))
    for name in names or known:
        total = sum(line.split()[0] == name for line in jobs)
        runs = jobs.count(f"{name} RUNNING")
        if full:
            print("\n".join(queue_attributes(name, known[name], total)) + "\n")
        else:
            counts = (0, total, "yes", "yes", total - runs, runs, 0, 0, 0, 0)
            print(queue_line(name, counts, "Exec"))
    return 0


def queue_line(name: str, cells: Iterable[object], kind: str) -> str:
    widths = QUEUE_COLUMNS.values()
    row = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{name[:16]:<16} {' '.join(row)} {kind}"


def queue_attributes(name: str, queue: Mapping[str, str], total: int) -> Iterator[str]:
    yield f"Queue: {name}"
    yield "    queue_type = Execution"
    yield f"    total_jobs = {total}"
    if limit := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", queue.get("MaxTime", "")):
        days, hours, minutes, seconds = (int(part or 0) for part in limit.groups())
        longest_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        yield f"    resources_max.walltime = {clock(longest_s)}"
    yield f"    resources_max.nodect = {queue['TotalNodes']}"
    yield "    enabled = True"
    yield "    started = True"


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
            spool.slurm("scancel", "--quiet", seen.job.slurm)
        except PbsError as error:
            print(error, file=sys.stderr)
            code = error.code
    return code
