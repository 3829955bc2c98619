"""What happens around the script on one rank?

    python -m allhands.launch.rank SCRIPT_OR_MODULE ARGUMENTS...   (started by mpiexec or torchrun)

The process checks the size of the world and forks, before any MPI is started. The child sends its
output to files of its own and runs the script. The parent sees how the child ended, whatever ended
it, and writes it down (the files: `job.py`).
"""

import ctypes
import faulthandler
import importlib.util
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType

from allhands.launch import where
from allhands.launch.job import ASK_WHERE, Job, expect_world, world

PASSED_ON = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
PR_SET_PDEATHSIG = 1


def main() -> None:
    job = Job.of_this_process()
    seen = world(os.environ)
    if seen is None or seen[2] != job.ranks:
        size = seen[2] if seen else 1
        job.write(f"{os.getpid()}.world", size=size)
        sys.exit(f"asked for {job.ranks} ranks, but the world of this one has size {size}")
    launcher, rank, _ = seen
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)  # until both sides are ready for them
    watcher = os.getpid()
    child = os.fork()
    if child:
        watch(job, rank, child)
        return
    die_with(watcher)
    take_output(job, rank)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    if launcher != "torchrun":
        sys.meta_path.insert(0, WorldCheck())
    run(job, rank, *sys.argv[1:])


def watch(job: Job, rank: int, child: int) -> None:
    """Pass signals on to the child, wait for it, write down how it ended, and end likewise."""
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    _, status = os.waitpid(child, 0)
    for number in PASSED_ON:  # the child's pid may belong to another now
        signal.signal(number, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(status)
    job.write(f"rank{rank}.ended", code=code)  # -9: signal 9
    sys.exit(code if code >= 0 else 128 - code)


def die_with(parent: int) -> None:
    """Signal 9 to this process as soon as its parent is gone (Linux; else the keeper does it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def take_output(job: Job, rank: int) -> None:
    """stdout, stderr, and the answer to "where are you?" go into files of this rank."""
    for number, stream, name in ((1, sys.stdout, "out"), (2, sys.stderr, "err")):
        file = os.open(job.folder / f"rank{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    stack = (job.folder / f"rank{rank}.stack").open("w")
    faulthandler.register(ASK_WHERE, file=stack, all_threads=False)
    job.write(f"rank{rank}.pid", pid=os.getpid())


def run(job: Job, rank: int, target: str, *arguments: str) -> None:
    """Run the script (a path that ends in .py) or the module as `python` would."""
    sys.argv = [target, *arguments]
    try:
        if target.endswith(".py"):
            sys.path.insert(0, str(Path(target).resolve().parent))
            runpy.run_path(target, run_name="__main__")
        else:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(target, run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        if stop.code:
            stop.with_traceback(without_own_frames(stop))
            job.write(
                f"rank{rank}.raised", what=f"called sys.exit({stop.code!r})", where=place(stop)
            )
        raise
    except BaseException as error:
        error.with_traceback(without_own_frames(error))
        job.write(f"rank{rank}.raised", what=f"raised {described(error)}", where=place(error))
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
    finally:
        job.write(f"rank{rank}.over")


def without_own_frames(error: BaseException):
    """The traceback as it would be without this file and `runpy`."""
    rest = error.__traceback__
    while rest and rest.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
        rest = rest.tb_next
    return rest


def described(error: BaseException) -> str:
    """Such as "ValueError: no such word"."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__", "<run_path>"):
        name = f"{kind.__module__}.{name}"
    message = error.msg if isinstance(error, SyntaxError) else error  # `place` tells the line
    return f"{name}: {message}".strip(": \n")


def place(error: BaseException) -> str:
    """Such as "line 7 of train.py": the innermost line in the script's own folder."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    return where.told(where.in_script_folder(places[::-1]))


class WorldCheck:
    """Import hook: when the script imports mpi4py.MPI, the size of its world is looked at."""

    def find_spec(self, name: str, path: object, target: object = None):
        if name != "mpi4py.MPI":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_check(module: ModuleType) -> None:
            execute(module)
            if module.Is_initialized():
                expect_world(module.COMM_WORLD)

        spec.loader.exec_module = execute_and_check
        return spec


if __name__ == "__main__":
    main()
