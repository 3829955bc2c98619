"""The same program on one rank and on several: does it still run, and say the same on all?

    start(program, ranks=2)            # a list with the result of each rank; else a LaunchError
    climb(program, rungs=(1, 2, 4))    # on 1, on 2, on 4 ranks, until one fails

`program(comm)` is a function of a notebook, or of this package; `comm` is mpi4py's communicator of
all ranks, which notes its calls (`last_seen`). Ranks load NumPy and mpi4py, not Chainer: a start
takes half a second. A function of a notebook is known to the ranks by its source alone: it finds
`np` there, its own imports, and the functions that it is handed.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from allhands import launch
from allhands.train import last_seen, written
from allhands.train.excepthook import end_job_on_error

CALLS = "calls"
HANG_S = 5.0  # the longest that one of these small programs may take, with some patience
START_S = 60.0  # the longest that Python and MPI may take to start, on a busy machine
ABORT_S = 0.5  # how long a rank that raised waits for the words of the others


def start(
    program: Callable, *functions: Callable, ranks: int, time_limit_s: float = HANG_S
) -> list:
    """Call `program(comm, *functions)` on `ranks` ranks; return their results, rank 0 first.

    time_limit_s: for the program itself. It counts from when MPI has started on all ranks; until
    then they have START_S.
    Raises the errors of `launch.mpirun`, with two attributes more: `calls`, the calls of each rank
    up to the end (`last_seen.Call`), and `stacks`, what faulthandler wrote on each rank that still
    ran after half of the time. What ranks print is printed, the rank in front.
    """
    with tempfile.TemporaryDirectory(prefix="allhands-rungs-") as temporary:
        folder = Path(temporary)
        try:
            return written.call_on_ranks(
                folder,
                (program, *functions),
                by=__name__,
                imports="import math\nimport numpy as np",
                ranks=ranks,
                asked={"ask_after_s": time_limit_s / 2},
                time_limit_s=START_S + time_limit_s,
                hang_s=time_limit_s,
            )
        except launch.LaunchError as error:
            error.calls = last_seen.read(folder / CALLS)
            error.stacks = [_text(folder / CALLS / f"rank{r}.stack") for r in range(ranks)]
            raise


def climb(run: Callable[[int], list], rungs: Sequence[int] = (1, 2, 4)) -> tuple:
    """The first rung that fails, and what was seen there: (ranks, what). (None, None) if none does.

    `run(ranks)` starts the program on so many ranks, and returns the list of their results. It
    raises launch.LaunchError if the job fails or hangs: then `what` is this error. A rung fails too
    if the results of its ranks are not all equal: then `what` is the list of results.
    After the first rung that fails, nothing more is started.
    """
    for ranks in rungs:
        try:
            results = run(ranks)
        except launch.LaunchError as error:
            return ranks, error
        if any(result != results[0] for result in results):
            return ranks, results
    return None, None


def same_everywhere(comm, array) -> bool:
    """True, on all ranks, if the NumPy array has the same shape and bits on all ranks; else False.

    Every rank must call it. Only one number a rank travels: the checksum `zlib.crc32` of the bytes.
    `array.tobytes()` gives the bytes; `repr(array.shape).encode()` those of the shape.
    """
    import zlib

    checksum = zlib.crc32(repr(array.shape).encode() + array.tobytes())
    return len(set(comm.allgather(checksum))) == 1


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def run(names: Mapping[str, object]) -> None:
    """What each rank does. names: those of the file with the functions, where it began."""
    from mpi4py import MPI

    end_job_on_error(MPI.COMM_WORLD, wait_s=ABORT_S)
    launch.expect_world(MPI.COMM_WORLD)
    folder, asked, (program, *functions) = written.received(names)
    last_seen.dump_stack_after(asked["ask_after_s"], folder / CALLS, MPI.COMM_WORLD.rank)
    result = program(last_seen.Noted(MPI.COMM_WORLD, folder / CALLS), *functions)
    written.send_back(folder, MPI.COMM_WORLD.rank, result)
