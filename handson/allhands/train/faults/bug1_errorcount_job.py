"""One rank of the job whose log is read: a small program, a fault, and a way to end.

    mpiexec -n 4 python -m allhands.train.faults.bug1_errorcount_job --fault index --ending delayed

Faults: type (on all ranks), index (on the rank that has sentence 2), ids (type as well, and the
program names its processes by a rank that was set twice), none.
Endings, once a rank has raised: plain (Python's own: write the traceback, and end), hook (the
except hook of ChainerMN: write, a banner, abort the job at once), delayed (write, wait for the
others, abort: train/excepthook.py). A fourth is to start it by `python -m mpi4py -m ...`: write,
abort at once.
"""

import argparse
import importlib.util
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from allhands import launch
from allhands.train.excepthook import WAIT_S, end_job_on_error
from allhands.train.faults import bug1_errorcount as program
from allhands.train.faults.readings import readings

FAULTS = ("type", "index", "ids", "none")
ENDINGS = ("plain", "hook", "delayed")


class Slow:
    """A stream on which each write of lines takes `write_s`, as on a slow terminal."""

    def __init__(self, stream, write_s: float) -> None:
        self.stream, self.write_s = stream, write_s

    def write(self, text: str) -> int:
        self.stream.write(text)
        self.stream.flush()
        if text.endswith("\n"):
            time.sleep(self.write_s)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()


class Named:
    """A stream that puts the name of its process before each line."""

    def __init__(self, stream, name: str) -> None:
        self.stream, self.name, self.begins = stream, name, True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            self.stream.write(f"{self.name}: {line}" if self.begins else line)
            self.begins = line.endswith("\n")
        return len(text)

    def flush(self) -> None:
        self.stream.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Start MPI, and count the words of this rank's share, with the fault that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fault", choices=FAULTS, default="type")
    parser.add_argument("--ending", choices=ENDINGS, default="plain")
    parser.add_argument("--spread-s", type=float, default=0.0, help="between two ranks' arrivals")
    parser.add_argument(
        "--write-s", type=float, default=0.0, help="a write to stderr takes so long"
    )
    parser.add_argument("--wait-s", type=float, default=WAIT_S, help="of the delayed abort")
    asked = parser.parse_args(arguments)

    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    launch.expect_world(comm)
    if asked.write_s:
        sys.stderr = Slow(sys.stderr, asked.write_s)
    sys.excepthook = traceback.print_exception  # as Python's own; it also knows a faulty reading
    if asked.ending == "hook":
        hook_of_chainermn().add_hook()
    elif asked.ending == "delayed":
        end_job_on_error(comm, asked.wait_s)
    total = count_all_words(comm, asked.fault, asked.spread_s)
    if comm.rank == 0:
        print(f"{total} words")


def count_all_words(comm, fault: str, spread_s: float) -> int:
    """The number of words of all ranks together; `fault` is in one of the functions used."""
    identify, table, count_words = (
        readings(getattr(program, name)).named("faulty" if fault in faults else "repaired")
        for name, faults in (
            ("identify", ("ids",)),
            ("table", ("type", "ids")),
            ("count_words", ("index",)),
        )
    )
    if comm.rank == 0:
        print(f"{program.N_SENTENCES} sentences on {comm.size} ranks", flush=True)
    me = identify(comm)
    if fault == "ids":
        sys.stderr = Named(sys.stderr, f"rank {me['rank']}")
    mine = range(program.N_SENTENCES)[me["rank"] :: me["size"]]
    comm.Barrier()
    time.sleep(spread_s * comm.rank)
    counts = table(program.N_WORDS, len(mine))
    n_words = count_words(counts, program.sentences(mine))
    return comm.allreduce(n_words)


def hook_of_chainermn():
    """ChainerMN's file global_except_hook.py, without the rest of ChainerMN: that takes seconds."""
    package = importlib.util.find_spec("chainermn").submodule_search_locations[0]
    path = Path(package) / "global_except_hook.py"
    spec = importlib.util.spec_from_file_location("global_except_hook", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
