"""qsub: how does a job of PBS become a job of the Slurm behind the stand-in, and which one?"""

import datetime
import getpass
import json
import os
import re
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from allhands.box.pbs import stat, words
from allhands.box.pbs.header import PbsJob, read, script_of
from allhands.box.pbs.spool import SERVER, JobId, Spool
from allhands.box.pbs.words import PbsError

# Slurm's objections, and what PBS says instead: a refusal, or a job that waits for ever.
OBJECTIONS = (
    ("partition", "Unknown queue", words.UNKNOWN_QUEUE),
    ("time limit", "Job violates queue and/or server resource limits", words.TOO_MUCH),
    ("dependency", "Invalid Job Dependency", words.BAD_DEPENDENCY),
    ("array", "illegal -J value", words.BAD_VALUE),
)
NEVER = re.compile(r"configuration is not available|Node count|More processors|exceeds|Too many")
SLURM_TIME_EXTRA_S = 30  # Slurm's own limit is in minutes and only stands behind ours
BLOCK_POLL_S = 0.1
AS_IT_IS = ("utf-8", "surrogateescape")  # a script may hold any bytes, and keeps them


def qsub(argv: Sequence[str]) -> int:
    script = script_of(argv)
    text = ""
    if script == "-":
        text = sys.stdin.buffer.read().decode(*AS_IT_IS)
    elif script is not None:
        try:
            text = Path(script).read_bytes().decode(*AS_IT_IS)
        except IsADirectoryError:
            raise PbsError("qsub: script not a file", 1) from None
        except OSError as error:
            raise PbsError(f"qsub: script file:: {error.strerror}", 1) from None
    job = read(text, argv, os.environ)
    spool = Spool.here("qsub")
    job_id = submit(spool, job, text)
    if not job.silent:
        print(job_id, flush=True)
    return wait(spool, job_id) if job.block else 0


def submit(spool: Spool, job: PbsJob, script: str) -> JobId:
    """Hand the job to Slurm."""
    queue = (job.queue or "").partition("@")[0] or default_queue(spool)  # queue@server
    asked = sbatch_words(spool, job, queue)
    folder = spool.folder / "jobs" / f"of.{os.getpid()}.{time.monotonic_ns()}"
    folder.mkdir()
    write_private(folder / "script.SC", script)
    write_private(folder / "variables.json", json.dumps(job_variables(job)))
    start = shlex.join([sys.executable, "-m", "allhands.box.pbs.mom", str(folder)])
    batch = f"#!/bin/sh\nexec {start}\n"
    note = {
        "name": job.name,
        "queue": queue,
        "owner": f"{getpass.getuser()}@{socket.gethostname()}",
        "parts": [
            {"count": c.count, "ncpus": c.ncpus, "mpiprocs": c.mpiprocs, "threads": c.threads}
            for c in job.chunks
        ],
        "walltime_s": job.walltime_s,
        "shell": job.shell,
        "command": list(job.command),
        "umask": job.umask,
        "array": job.array,
        "account": job.account,
        "submitter": submitter(),
        "comment": "",
    }
    (folder / "job.json").write_text(json.dumps(note, indent=1))
    if job.umask is not None:
        os.umask(job.umask)
    ran = spool.slurm("sbatch", *["--hold"] * job.hold, *asked, stdin=batch)
    if ran.returncode != 0 and NEVER.search(ran.stderr):
        smallest = [word for word in asked if not re.match("--(nodes|ntasks|cpus|gpus)", word)]
        note["comment"] = "Can Never Run: Insufficient amount of resource"
        (folder / "job.json").write_text(json.dumps(note, indent=1))
        ran = spool.slurm("sbatch", "--hold", *smallest, stdin=batch)
    if ran.returncode != 0:
        shutil.rmtree(folder)
        raise objection(ran.stderr)
    job_id = JobId(int(ran.stdout.split(";")[0]), "" if job.array else None)
    (folder.parent / str(job_id.number)).symlink_to(folder.name)
    return job_id


def write_private(path: Path, text: str) -> None:
    """What others must not read: a script and its variables may hold a password."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text.encode(*AS_IT_IS))


def sbatch_words(spool: Spool, job: PbsJob, queue: str) -> list[str]:
    """The options of sbatch: one Slurm task stands for one chunk."""
    chunks = sum(chunk.count for chunk in job.chunks)
    cores = max(max(chunk.ncpus, 1) for chunk in job.chunks)
    gpus = max(chunk.ngpus for chunk in job.chunks)
    on_a_host = 1 if scattered(job, queue) else max(1, cores_of_host(spool, queue) // cores)
    hosts = -(-chunks // on_a_host)
    asked = ["--parsable", f"--job-name={job.name}", f"--partition={queue}", "--export=ALL"]
    asked += [f"--nodes={hosts}", f"--ntasks={chunks}", f"--cpus-per-task={cores}"]
    asked += [f"--ntasks-per-node={min(on_a_host, chunks)}"]
    if gpus:
        asked.append(f"--gpus-per-node={gpus * min(on_a_host, chunks)}")
    if named := [chunk.host for chunk in job.chunks if chunk.host]:
        asked.append(f"--nodelist={','.join(named)}")
    if job.walltime_s is not None:
        asked.append(f"--time={-(-(job.walltime_s + SLURM_TIME_EXTRA_S) // 60)}")
    if job.account:
        asked.append(f"--account={job.account}")
    if job.array:
        asked.append(f"--array={job.array}")
    if job.begin:
        asked.append(f"--begin={begin(job.begin)}")
    if job.dependencies:
        asked += [f"--dependency={dependency(spool, job)}", "--kill-on-invalid-dep=yes"]
    asked.append("--requeue" if job.rerunable else "--no-requeue")
    return asked + outputs(job)


def scattered(job: PbsJob, queue: str) -> bool:
    """Does each chunk get its own host? `-l place`, else the queue's default, else they pack."""
    place = job.place or ("free" if queue in words.FREE_QUEUES else "scatter")
    return place.split(":")[0] in ("scatter", "vscatter")


def cores_of_host(spool: Spool, queue: str) -> int:
    found = spool.slurm("sinfo", "--noheader", f"--partition={queue}", "--format=%c").stdout
    return int(re.sub(r"\D", "", found.split()[0])) if found.split() else 1


def default_queue(spool: Spool) -> str:
    names = spool.slurm("sinfo", "--noheader", "--format=%P").stdout.split()
    for name in names:
        if name.endswith("*"):
            return name[:-1]
    raise PbsError("qsub: No default queue specified", words.NO_DEFAULT_QUEUE)


def dependency(spool: Spool, job: PbsJob) -> str:
    """In Slurm's form. An array's own Exit_status is 0, whatever its parts say: `afterok` runs."""
    found = []
    for kind, jobs in job.dependencies:
        for text in jobs:
            other = JobId.of(text, "qsub")
            if not spool.knows(other):  # Slurm would take it for a job that has ended well
                raise PbsError("qsub: Invalid Job Dependency", words.BAD_DEPENDENCY)
            kind_here = "afterany" if other.index == "" and kind == "afterok" else kind
            found.append(f"{words.DEPENDENCIES[kind_here]}:{other.slurm}")
    return ",".join(found)


def begin(text: str) -> str:
    """PBS's [[[[CC]YY]MM]DD]hhmm[.ss] as Slurm wants it; a time that has passed is tomorrow's."""
    digits, _, second = text.partition(".")
    now = datetime.datetime.now()
    whole = now.strftime("%Y%m%d")[: 12 - len(digits)] + digits
    try:
        at = datetime.datetime.strptime(whole + (second or "00"), "%Y%m%d%H%M%S")
    except ValueError:
        raise PbsError("qsub: illegal -a value", words.BAD_VALUE, usage=True) from None
    if len(digits) == 4 and at < now:
        at += datetime.timedelta(days=1)
    return at.isoformat()


def outputs(job: PbsJob) -> list[str]:
    """Where standard output and error go, with Slurm's %j for the number of the job."""
    number = "%A.%a" if job.array else "%j"
    unit = "%A[%a]" if job.array else "%j"

    def place(path: str | None, letter: str, kept: bool) -> str:
        name = f"{literal(job.name)}.{letter}{number}"
        if kept and "d" not in job.keep:
            return f"{literal(Path.home())}/{name}"
        if path is None:
            return f"{literal(Path.cwd())}/{name}"
        path = re.sub(r"^[\w.\-]+:", "", path)  # host:path
        full = literal(Path.cwd() / path)
        if path.endswith("/") or (Path.cwd() / path).is_dir():
            full += f"/{unit}.{SERVER}.{'OU' if letter == 'o' else 'ER'}"
        return full.replace("^array_index^", "%a")

    out = place(job.output, "o", "o" in job.keep)
    err = place(job.error, "e", "e" in job.keep)
    if job.join == "oe":
        return [f"--output={out}"]
    return [f"--output={err}"] if job.join == "eo" else [f"--output={out}", f"--error={err}"]


def literal(path: object) -> str:
    """A path in which Slurm finds no % of its own."""
    return str(path).replace("%", "%%")


def submitter() -> dict[str, str]:
    """The variables PBS_O_*: where and by whom the job was submitted."""
    names = ("HOME", "LANG", "LOGNAME", "PATH", "MAIL", "SHELL", "TZ")
    found = {f"PBS_O_{name}": os.environ[name] for name in names if name in os.environ}
    found["PBS_O_WORKDIR"] = os.getcwd()
    found["PBS_O_HOST"] = socket.gethostname()
    found["PBS_O_SYSTEM"] = os.uname().sysname
    return found


def job_variables(job: PbsJob) -> dict[str, str]:
    """What -V and -v add; those of the submitter's own scheduler job stay behind."""
    kept = {}
    if job.all_variables:
        kept = {k: v for k, v in os.environ.items() if not re.match("PBS_|SLURM", k)}
    return {**kept, **job.variables}


def objection(message: str) -> PbsError:
    for sign, text, number in OBJECTIONS:
        if sign in message.lower():
            return PbsError(f"qsub: {text}", number, usage="illegal" in text)
    return PbsError(f"qsub: Slurm, which runs this stand-in, said: {message.strip()}", 1)


def wait(spool: Spool, job_id: JobId) -> int:
    """`-W block=true`: the job's code; an array's is the largest of its parts; 1: deleted."""
    folder = spool.job(job_id, "qsub")
    asked_s = time.monotonic()
    while True:
        if job_id.index is None and (folder / "ended").exists():
            return int((folder / "ended").read_text()) % 256
        if time.monotonic() - asked_s > 2:
            asked_s = time.monotonic()
            if not stat.alive(spool, job_id):
                codes = [int(path.read_text()) % 256 for path in folder.glob("ended*")]
                return max(codes, default=1)
        time.sleep(BLOCK_POLL_S)
