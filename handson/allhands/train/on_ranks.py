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

import importlib
import json
import pickle
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from allhands import launch
from allhands.train import parallel
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
        parallel.write_edits(script, *dict.fromkeys(f for f in everything if not _is_ours(f)))
        source = script.read_text(encoding="utf-8")
        script.write_text(source + START, encoding="utf-8")
        asked = {"functions": [_where(each) for each in everything], "chainermn": chainermn}
        (folder / ASKED).write_text(json.dumps(asked), encoding="utf-8")
        try:
            done = launch.mpirun(script, ranks=ranks, time_limit_s=time_limit_s)
        except launch.LaunchError as error:
            error.args = (_quoted(str(error), source.splitlines()),)
            raise
        for rank in range(ranks):
            for line in done.text(rank).splitlines():
                print(f"[{rank}] {line}")
        results = [pickle.loads(_result(folder, rank).read_bytes()) for rank in range(ranks)]
        return None if all(result is None for result in results) else results


def _is_ours(function: Callable) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == "allhands"


def _where(function: Callable) -> tuple[str, str]:
    """(module, name); no module if the function's source is written down."""
    return function.__module__ if _is_ours(function) else "", function.__name__


def _result(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.pickle"


def _quoted(sentence: str, lines: list[str]) -> str:
    """`line 7 of functions.py` means nothing to the reader of a notebook: quote the line itself."""
    return re.sub(
        rf"line (\d+) of {re.escape(WRITTEN)}",
        lambda found: f"`{lines[int(found[1]) - 1].strip()}`",
        sentence,
    )


def run(written: Mapping[str, object]) -> None:
    """What each rank does. written: the names of the file with the functions, where it began."""
    from mpi4py import MPI

    folder = Path(str(written["__file__"])).parent
    asked = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    end_job_on_error(MPI.COMM_WORLD)
    launch.expect_world(MPI.COMM_WORLD)
    comm = parallel.communicator() if asked["chainermn"] else MPI.COMM_WORLD
    program, *functions = [
        getattr(importlib.import_module(module), name) if module else written[name]
        for module, name in asked["functions"]
    ]
    result = program(comm, *functions)
    _result(folder, MPI.COMM_WORLD.rank).write_bytes(pickle.dumps(result))
