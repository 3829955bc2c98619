"""How does a function of a notebook run on real ranks? It is written to a file, and ranks run that.

    def hello(comm):
        print(f"rank {comm.rank} of {comm.size}")
        return comm.rank

    on_ranks(hello, ranks=2)       # prints "[0] rank 0 of 2" and "[1] rank 1 of 2"; returns [0, 1]

`comm` is the mpi4py communicator of all ranks; with `chainermn=True` it is ChainerMN's. Functions
that `program` calls are handed over too, and come as arguments after `comm`. A function of this
package is imported. Any other is known to the ranks by its source alone: it finds there math, numpy
as np, chainer, chainermn, its own imports, and the other functions that were handed over.
"""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from allhands import launch
from allhands.train import parallel, written
from allhands.train.excepthook import end_job_on_error


def on_ranks(
    program: Callable,
    *functions: Callable,
    ranks: int,
    time_limit_s: float = 60.0,
    chainermn: bool = False,
) -> list | None:
    """Call `program(comm, *functions)` on `ranks` ranks of this machine; return their results.

    A list, rank 0 first; None if no rank returned anything.

    What the ranks print is printed when all have ended, rank by rank, the rank in front of each
    line. Results travel as pickles. Errors are those of `launch.mpirun` (they name the rank and the
    cause; a line of a written function is quoted), and ValueError for a function without a source.
    """
    with tempfile.TemporaryDirectory(prefix="allhands-on-ranks-") as temporary:
        results = written.call_on_ranks(
            Path(temporary),
            (program, *functions),
            by=__name__,
            imports=parallel.IMPORTS,
            ranks=ranks,
            asked={"chainermn": chainermn},
            time_limit_s=time_limit_s,
        )
    return None if all(result is None for result in results) else results


def run(names: Mapping[str, object]) -> None:
    """What each rank does. names: those of the file with the functions, where it began."""
    from mpi4py import MPI

    end_job_on_error(MPI.COMM_WORLD)
    launch.expect_world(MPI.COMM_WORLD)
    folder, asked, (program, *functions) = written.received(names)
    comm = parallel.communicator() if asked["chainermn"] else MPI.COMM_WORLD
    written.send_back(folder, MPI.COMM_WORLD.rank, program(comm, *functions))
