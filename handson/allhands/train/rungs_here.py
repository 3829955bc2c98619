"""Which rung of the ladder fails on this machine, or on these nodes? Healthy programs climb it.

    mpiexec -n 4 python -m allhands.train.rungs_here
    cluster_jobs/submit bug2_singlegpu                 two nodes

Four small programs, known to be right, run on each rank alone, then on the ranks of each node, then
on all. If they fail on a rung, it is not your program: look at the launcher, the environment, the
network. If they pass and yours fails there, it is your program. A rung that hangs: `--look` seconds
after the start each rank writes its stack, and its calls are in the same folder.
"""

import argparse
import contextlib
import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

from allhands.launch import expect_world
from allhands.train import last_seen
from allhands.train.excepthook import end_job_on_error
from allhands.train.faults import bug2_singlegpu
from allhands.train.rungs import same_everywhere

PROGRAMS = (
    bug2_singlegpu.report,
    bug2_singlegpu.fit_line,
    bug2_singlegpu.count_words,
    bug2_singlegpu.train_line,
)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m allhands.train.rungs_here")
    parser.add_argument("--out", type=Path, help="folder for the calls and stacks of the ranks")
    parser.add_argument("--look", type=float, default=60.0, metavar="S")
    asked = parser.parse_args(arguments)
    comm = MPI.COMM_WORLD
    expect_world(comm)
    end_job_on_error(comm)
    folder = asked.out or Path(comm.bcast(tempfile.mkdtemp(prefix="rungs-")))
    last_seen.dump_stack_after(asked.look, folder, comm.rank)
    for rung, (name, group) in enumerate(groups(comm)):
        noted = last_seen.Noted(group, folder / f"rung{rung}")
        failed = [program.__name__ for program in PROGRAMS if not agrees(noted, program)]
        everywhere = comm.gather((group.size, failed))  # outside of the rung, all ranks again
        if comm.rank == 0:
            print(line(name, everywhere), flush=True)


def groups(comm: MPI.Comm) -> list[tuple[str, MPI.Comm]]:
    """(rung, the communicator of this rank's group on it), from the smallest to the largest."""
    return [
        ("each rank alone", MPI.COMM_SELF),
        ("the ranks of a node", comm.Split_type(MPI.COMM_TYPE_SHARED)),
        ("all ranks", comm),
    ]


def agrees(comm, program: Callable) -> bool:
    """True if all ranks of the group get the same result."""
    with contextlib.redirect_stdout(io.StringIO()):
        result = program(comm)
    return same_everywhere(comm, np.frombuffer(repr(result).encode(), np.uint8))


def line(name: str, everywhere: Sequence[tuple[int, Sequence[str]]]) -> str:
    """Such as "the ranks of a node (4): all 4 programs agree"."""
    sizes = "-".join(map(str, sorted({size for size, _ in everywhere})))
    failed = sorted({program for _, programs in everywhere for program in programs})
    what = f"{', '.join(failed)} DIFFER" if failed else f"all {len(PROGRAMS)} programs agree"
    return f"{name} ({sizes}): {what}"


if __name__ == "__main__":
    main()
