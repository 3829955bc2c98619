"""What does a fault show on one rank, on two, on four? Start its faulty or its repaired reading.

python -m allhands.train.faults                              # the names, and what they are
python -m allhands.train.faults fit_line --faulty --ranks 4  # results, or error and last calls
python -m allhands.train.faults fit_line --repaired --ranks 4
"""

import argparse
import inspect
import os
import pkgutil
from collections.abc import Callable, Sequence

from allhands import launch
from allhands.train import faults, last_seen
from allhands.train.faults import bug2_singlegpu, readings
from allhands.train.rungs import HANG_S, start


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if the ranks ended well and agree, 1 if not, 2 if there is no such fault here.

    Programs of GPUs say on which GPU each thing is, or who complains; for them it is always 0.
    """
    parser = argparse.ArgumentParser(prog="python -m allhands.train.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", nargs="?", help="a fault; without a name: the list of all")
    reading = parser.add_mutually_exclusive_group()
    reading.add_argument("--faulty", action="store_true", help="as it is given (the default)")
    reading.add_argument("--repaired", action="store_true", help="as it should be")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--time-limit",
        type=float,
        default=HANG_S,
        metavar="S",
        help="seconds, from when all ranks are up",
    )
    asked = parser.parse_args(arguments)
    known = programs()
    if asked.name is None:
        for name, program in sorted(known.items()):
            print(f"{name:18} {inspect.getdoc(program).splitlines()[0]}")
        return 0
    if asked.name not in known:
        print(f"There is no fault {asked.name!r} that ranks can run; there are: {', '.join(known)}")
        return 2
    both = readings.readings(known[asked.name])
    program = both.repaired if asked.repaired else both.faulty
    if "cupy" in inspect.signature(program).parameters:
        from allhands.train import on_gpus

        # Real ranks inherit the list of this process; a rehearsal shows none to its ranks.
        listed = on_gpus.LISTED in os.environ and on_gpus.real_gpus() >= asked.ranks
        if not asked.repaired and not listed and on_gpus.reads_list(both.repaired):
            print(on_gpus.needs_list(asked.name))
            return 2
        print(on_gpus.on_gpus(program, asked.ranks))
        return 0
    if asked.repaired:
        print(mended(asked.name), end="")
    return show(program, asked.ranks, asked.time_limit)


def programs() -> dict[str, Callable]:
    """The faults of all labs that are programs of a rank: program(comm) or program(comm, cupy)."""
    modules = [one.name for one in pkgutil.iter_modules(faults.__path__)]
    labs = [readings.programs(name) for name in modules if name.startswith("bug")]
    return {name: program for lab in labs for name, program in lab.items()}


def mended(name: str) -> str:
    """A line that says what was wrong and what repairs it; "" where nobody has written that."""
    found = [one for one in bug2_singlegpu.SYMPTOMS if one.name == name]
    return f"The fault was {found[0].title}. {found[0].repair}\n" if found else ""


def show(program: Callable, ranks: int, time_limit_s: float) -> int:
    """Start the program, and print what each rank returned, or how the job ended."""
    try:
        results = start(program, ranks=ranks, time_limit_s=time_limit_s)
    except launch.LaunchError as error:
        print(f"{type(error).__name__}: {error}")
        print(last_seen.table(error.calls))
        return 1
    for rank, result in enumerate(results):
        print(f"rank {rank} returned {result}")
    if any(result != results[0] for result in results):
        print("The ranks do not agree.")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
