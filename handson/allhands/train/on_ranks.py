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

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from allhands import launch
from allhands.train import parallel, written
from allhands.train.excepthook import end_job_on_error

WRITTEN, ASKED = "functions.py", "asked.json"
START = f"\n\nif __name__ == '__main__':\n    import {__name__}\n\n    {__name__}.run(globals())\n"


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
        folder = Path(temporary)
        everything = (program, *functions)
        script = folder / WRITTEN
        parallel.write_edits(script, *written.to_write(everything))
        source = script.read_text(encoding="utf-8")
        script.write_text(source + START, encoding="utf-8")
        asked = {
            "functions": [written.address(each) for each in everything],
            "chainermn": chainermn,
        }
        (folder / ASKED).write_text(json.dumps(asked), encoding="utf-8")
        try:
            done = launch.mpirun(script, ranks=ranks, time_limit_s=time_limit_s, scratch=folder)
        except launch.LaunchError as error:
            error.args = (written.quoted(str(error), script, source),)
            raise
        for rank in range(ranks):
            for line in done.text(rank).splitlines():
                print(f"[{rank}] {line}")
        results = written.results(folder, done)
        return None if all(result is None for result in results) else results


def run(names: Mapping[str, object]) -> None:
    """What each rank does. names: those of the file with the functions, where it began."""
    from mpi4py import MPI

    folder = Path(str(names["__file__"])).parent
    asked = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    end_job_on_error(MPI.COMM_WORLD)
    launch.expect_world(MPI.COMM_WORLD)
    comm = parallel.communicator() if asked["chainermn"] else MPI.COMM_WORLD
    program, *functions = written.found(asked["functions"], names)
    written.send_back(folder, MPI.COMM_WORLD.rank, program(comm, *functions))
