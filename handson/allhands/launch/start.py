"""Starting N ranks of a script on this machine, and waiting for their end.

Ranks may be more than cores. Each gets one thread for arithmetic, unless the caller says otherwise:
two threads on one core are slower than one. What a scheduler or an outer launcher says in the
environment is not passed on; for ranks on several nodes there are the job scripts.
"""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import allhands
from allhands.launch import mpi, shared_memory
from allhands.launch.job import MOST_BYTES, POLL_S, Job, LaunchError, kill
from allhands.launch.report import Finished, judge

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
THREADS += ("NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
KEEPER_S = 30.0  # more than the keeper needs to end a job


def mpirun(
    target: str | Path,
    *arguments: object,
    ranks: int,
    time_limit_s: float,
    threads: int = 1,
    echo: bool = False,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    python: str | Path = sys.executable,
    mpiexec: str | Path | None = None,
    pass_on: Collection[int] = (),
    scratch: str | Path | None = None,
    hang_s: float | None = None,
) -> Finished:
    """Run `ranks` ranks of a program under mpiexec; return when all have ended.

    target: a script (a path that ends in .py) or a module ("allhands.cli").
    arguments: the program's arguments.
    time_limit_s: after this, counted from the start, the job is ended.
    hang_s: the same, counted from when MPI has started on all ranks. How long Python takes to
    start, on a busy machine, then does not matter; time_limit_s should leave room for it.
    threads: for arithmetic, a rank. echo: print the ranks' lines as they come, "[rank] line".
    cwd, env: the ranks' folder, and what is added to their environment.
    python, mpiexec: the interpreter and the launcher; None looks beside `python`, then in PATH.
    pass_on: signals that go to the ranks when this process hears them, so that they can save and
    stop; a second one of a kind does what it always does. In the main thread only.
    scratch: a folder of the caller's, which is removed if the caller is killed and cannot do it.

    The output of a rank that writes much is kept in part: the first and the last MiB of stdout, and
    of stderr, and a line between that says how much is missing. A job in which a rank writes more
    than 200 MiB to one of them is ended: more belongs into a file of the program's own.

    Raises RanksFailed if a rank failed, TimeUp if the time was up (both know the output so far),
    WrongWorld if the ranks did not find each other, LaunchError if they could not be started.
    Whatever happens, KeyboardInterrupt included, no process of the job is left.
    """
    program = rank_command(python, target, arguments, ranks, cwd)
    found = mpi.find(str(python), None if mpiexec is None else str(mpiexec))
    wanted = found.environ() | threads_environ(threads) | dict(env or {})
    command = [*found.command(ranks), *program]
    return run(
        command, ranks, time_limit_s, echo, cwd, wanted, found.mpiexec, pass_on, scratch, hang_s
    )


def torchrun(
    target: str | Path,
    *arguments: object,
    ranks: int,
    time_limit_s: float,
    threads: int = 1,
    echo: bool = False,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    python: str | Path = sys.executable,
) -> Finished:
    """The same as `mpirun`, under PyTorch's torchrun: the ranks find RANK, WORLD_SIZE, MASTER_PORT.

    The ports are free ones that the system chooses, so jobs can run side by side.
    """
    program = rank_command(python, target, arguments, ranks, cwd)
    lo = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    wanted = lo | threads_environ(threads) | dict(env or {})
    command = [str(python), "-P", "-m", "torch.distributed.run", "--standalone", "--no-python"]
    command += ["--local-addr=localhost", f"--nproc-per-node={ranks}"]
    command += program
    return run(command, ranks, time_limit_s, echo, cwd, wanted, "torchrun")


def threads_environ(threads: int) -> dict[str, str]:
    return dict.fromkeys(THREADS, str(threads))


def rank_command(
    python: str | Path,
    target: str | Path,
    arguments: Sequence[object],
    ranks: int,
    cwd: str | Path | None,
) -> list[str]:
    """What the launcher starts `ranks` times; LaunchError if it is clear that it cannot run."""
    script = Path(cwd or ".").resolve() / target
    if sys.platform == "win32":
        raise LaunchError("ranks start on Linux and macOS only; on Windows, use WSL")
    if ranks < 1:
        raise LaunchError(f"asked for {ranks} ranks; at least 1 is needed")
    if script.suffix == ".py" and not script.is_file():
        raise LaunchError(f"there is no script {script}")
    # -P: a random.py in the working folder must not stand in for Python's own.
    start = [str(python), "-P", "-m", "allhands.launch.rank", str(target)]
    return [*start, *map(str, arguments)]


def run(
    command: Sequence[str],
    ranks: int,
    time_limit_s: float,
    echo: bool,
    cwd: str | Path | None,
    wanted: Mapping[str, str],
    launcher: str,
    pass_on: Collection[int] = (),
    scratch: str | Path | None = None,
    hang_s: float | None = None,
) -> Finished:
    """Start a launcher under a keeper, wait, and read the records."""
    job = Job(uuid.uuid4().hex, Path(tempfile.mkdtemp(prefix="allhands-job-")), ranks)
    package = str(Path(allhands.__file__).parents[1])
    environ = mpi.own_environ(os.environ) | dict(wanted) | job.environ()
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), package]))
    keeper_command = [sys.executable, "-P", "-m", "allhands.launch.keeper"]
    limits = [time_limit_s, math.inf if hang_s is None else hang_s, MOST_BYTES]
    keeper_command += [str(os.getpid()), *map(str, limits), *command]
    keeper = None
    if scratch is not None:
        job.write("scratch", path=str(Path(scratch).resolve()))
    try:
        with (job.folder / "keeper.out").open("wb") as output:
            keeper = subprocess.Popen(
                keeper_command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environ,
                start_new_session=True,  # Ctrl-C reaches this process alone
            )
        shown: dict[str, int] = {}
        with passing_on(job, pass_on):
            while keeper.poll() is None:
                if echo:
                    print_news(job, shown)
                time.sleep(POLL_S)
        if echo:
            print_news(job, shown)
        record = job.read("keeper.ended")
        if record is None:
            why = mpi.last_line(job.text("keeper.out"))
            raise LaunchError(f"the process that watches over the ranks was lost: {why}")
        return judge(job, record, hang_s if record["why"] == "hang" else time_limit_s, launcher)
    finally:
        clean_up(job, keeper)


@contextlib.contextmanager
def passing_on(job: Job, numbers: Collection[int]) -> Iterator[None]:
    """Within the block, the first signal of each kind goes to the ranks that run, if all do."""

    def hear(number: int, _) -> None:
        signal.signal(number, before[number])
        pids = [job.read(path.name)["pid"] for path in job.folder.glob("rank*.pid")]
        if len(pids) == job.ranks:
            kill(pids, number)
        else:  # too early: nothing is worth saving
            os.kill(os.getpid(), number)

    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def clean_up(job: Job, keeper: subprocess.Popen | None) -> None:
    """End what still runs, and remove the job's folder."""
    if keeper is not None and keeper.poll() is None:
        keeper.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper.wait(KEEPER_S)
    shared = shared_memory.of_job(job)
    job.end()
    if keeper is not None:
        keeper.wait()
    shared_memory.remove(shared)
    shutil.rmtree(job.folder, ignore_errors=True)


def print_news(job: Job, shown: dict[str, int]) -> None:
    """Print the lines that have been completed since the last call."""
    for path in sorted(job.folder.glob("rank*.out")) + sorted(job.folder.glob("rank*.err")):
        with path.open("rb") as file:
            file.seek(shown.get(path.name, 0))
            news, newline, _ = file.read().rpartition(b"\n")
        shown[path.name] = shown.get(path.name, 0) + len(news + newline)
        for line in news.decode(errors="replace").splitlines():
            print(f"[{path.stem.removeprefix('rank')}] {line}", flush=True)
