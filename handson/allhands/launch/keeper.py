"""Who sees to it that no rank is left behind? A process between the caller and the launcher.

    python -m allhands.launch.keeper CALLER_PID TIME_LIMIT_S HANG_S MOST_BYTES COMMAND...

It starts the launcher, and ends the whole job when the launcher ends, when the time is up (since
the start, or HANG_S since all ranks are up), when the launcher does not notice that a rank has
failed or that all have ended, when a rank has written more than MOST_BYTES to stdout or to stderr,
when it is told to (by SIGTERM), and when the caller is no longer there, even if the caller was
killed by signal 9. What the MPI of a killed rank leaves in shared memory is removed.
"""

import contextlib
import ctypes
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from allhands.launch import shared_memory
from allhands.launch.job import ASK_WHERE, POLL_S, Job, kill

POLITE_S = 1.0  # what a launcher gets to end its ranks itself
NOTICE_S = 3.0  # what a launcher gets to notice that a rank has failed, or that all have ended
STACK_S = 0.5  # what the ranks get to say where they are
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process: none is lost (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Limits:
    """When must a job end? time_s: since its start; hang_s: since all ranks are up."""

    time_s: float
    hang_s: float
    most_bytes: int


def watch(
    job: Job, launcher: subprocess.Popen, caller: int, limits: Limits, told: list[int]
) -> str:
    """Wait until the job must end; return why."""
    end_s, hung_s = time.monotonic() + limits.time_s, math.inf
    while launcher.poll() is None:
        if told:
            return "told"
        if os.getppid() != caller:
            return "caller gone"
        now_s = time.monotonic()
        if now_s >= end_s:
            return "time"
        if limits.hang_s < math.inf and hung_s == math.inf:
            hung_s = up_s(job) + limits.hang_s
        if now_s >= hung_s:
            return "hang"
        if any(path.stat().st_size > limits.most_bytes for path in outputs(job)):
            return "output"
        if now_s - decided_s(job) > NOTICE_S:
            return "decided"
        time.sleep(POLL_S)
    return "launcher ended"


def up_s(job: Job) -> float:
    """When the last rank came up: MPI had started, and its world was right; infinite before."""
    records = [job.read(path.name) for path in job.folder.glob("rank*.up")]
    return max(record["at_s"] for record in records) if len(records) == job.ranks else math.inf


def outputs(job: Job) -> list[Path]:
    return [*job.folder.glob("rank*.out"), *job.folder.glob("rank*.err")]


def decided_s(job: Job) -> float:
    """When a first rank ended badly, or when the last of all ended; infinite before that.

    A launcher can miss it: a process that a rank left behind may hold its connection open.
    """
    records = [job.read(path.name) for path in job.folder.glob("rank*.ended")]
    failed = [record["at_s"] for record in records if record["code"] != 0]
    if failed:
        return min(failed)
    return max(record["at_s"] for record in records) if len(records) == job.ranks else math.inf


def ask_where(job: Job) -> None:
    """Let each rank that runs write its Python stack; `rank.py` set the signal's handler."""
    asked = [
        path for path in job.folder.glob("rank*.pid") if not path.with_suffix(".ended").exists()
    ]
    kill([job.read(path.name)["pid"] for path in asked], ASK_WHERE)
    end_s = time.monotonic() + STACK_S
    while time.monotonic() < end_s and not all(
        path.with_suffix(".stack").stat().st_size for path in asked
    ):
        time.sleep(POLL_S)


def end(job: Job, launcher: subprocess.Popen) -> None:
    """End what runs: the launcher may clean up, then all that is left is killed and collected."""
    shared = shared_memory.of_job(job, ancestor=os.getpid())
    if launcher.poll() is None:
        launcher.terminate()
        end_s = time.monotonic() + POLITE_S
        while time.monotonic() < end_s and launcher.poll() is None:
            time.sleep(POLL_S)
    job.end(ancestor=os.getpid())
    launcher.poll()
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    shared_memory.remove(shared)


def main() -> None:
    job = Job.of_this_process()
    caller, command = int(sys.argv[1]), sys.argv[5:]
    limits = Limits(float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: told.append(number))
    adopt_orphans()
    start_s = time.monotonic()
    with (job.folder / "launcher.out").open("wb") as output:
        launcher = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        why = watch(job, launcher, caller, limits, told)
        stopped_s = time.monotonic()
        if why in ("time", "hang"):
            ask_where(job)
    finally:
        end(job, launcher)
    job.write(
        "keeper.ended",
        why=why,
        code=launcher.poll(),
        wall_s=stopped_s - start_s,
        most_bytes=limits.most_bytes,
        stopped_s=stopped_s,
    )
    if why == "caller gone":  # nobody will read it
        if scratch := job.read("scratch"):
            shutil.rmtree(scratch["path"], ignore_errors=True)
        shutil.rmtree(job.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
