"""The program of the lab bug4: why is it slower on two ranks than on one? Start it, and look.

    alone = slower.run(slower.riddle(), ranks=1, threads=1)
    together = slower.run(slower.riddle(), ranks=2)
    print(slower.table({"alone": alone, "together": together}))

    python -m allhands.train.slower numbers load --ranks 2     # the same with these two faults

A small network learns digits (data/images), data-parallel, with NumPy and mpi4py alone, so that
ranks start fast. Five of its functions are arguments: those of `faults/bug4_slower.py`, faulty or
repaired, or a participant's own. A run leaves the folder that `allhands train` leaves: config.json,
metrics.jsonl, events.rank*.jsonl, facts.rank*.json; and cpu.rank*.jsonl, the same events on the
clock of the rank's CPU seconds, because wall-clock times of a shared machine say little.
"""

import argparse
import atexit
import dataclasses
import inspect
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from allhands import config as configs
from allhands import launch
from allhands.config import TrainConfig
from allhands.doctor.machine import Machine
from allhands.trace import critical_path, facts
from allhands.trace.events import Event, read_events
from allhands.trace.facts import Facts
from allhands.train.faults import bug4_slower
from allhands.train.faults.readings import readings

IN_RANKS = "allhands.train.slower_ranks"
PARTS = ("numbers", "batch_of_rank", "load", "evaluate", "threads")
TIME_LIMIT_S = 120.0
PARTS_OF_A_STEP = ("batch", "forward", "backward", "update", "evaluate")


@dataclass(frozen=True)
class Program:
    """The functions that the program is made of; the repaired ones unless others are given."""

    numbers: Callable = bug4_slower.numbers
    batch_of_rank: Callable = bug4_slower.batch_of_rank
    load: Callable = bug4_slower.load
    evaluate: Callable = bug4_slower.evaluate
    threads: Callable = bug4_slower.threads


MENDED = Program()


def faulty(*names: str) -> Program:
    """The program with these faults, names of PARTS; the rest is mended."""
    return Program(**{name: readings(f"bug4_slower:{name}").faulty for name in names})


def riddle() -> Program:
    """The program with all its faults, as the team left it."""
    return faulty(*PARTS)


def with_(program: Program, **functions: Callable) -> Program:
    """The program with other functions in place of some of its own."""
    return dataclasses.replace(program, **functions)


def config(ranks: int, *, batch_size: int = 16, epochs: int = 2) -> TrainConfig:
    """What a run is. `batch_size`: what one process takes alone.

    An epoch has five evaluations, whatever the number of its steps (`evaluate_every` is nominal).
    """
    return TrainConfig(
        preset="bug4_slower",
        train="digits/train",
        valid="digits/test",
        test="digits/test",
        ranks=ranks,
        device="@numpy",
        n_hidden=256,
        batch_size=batch_size,
        epochs=epochs,
        learning_rate=0.1,
        evaluate_every=max(1, 1437 // (5 * batch_size * ranks)),
        evaluate_pairs=360,
    )


@dataclass(frozen=True)
class Run:
    """A run, read from its folder. Times in seconds; ranks by number."""

    folder: Path

    @cached_property
    def config(self) -> TrainConfig:
        return configs.load(self.folder / "config.json")

    @cached_property
    def facts(self) -> list[Facts]:
        return list(facts.read(self.folder))

    @cached_property
    def events(self) -> list[Event]:
        """All ranks, on one wall clock."""
        return self._all("events")

    @cached_property
    def cpu_events(self) -> list[Event]:
        """All ranks, each on the clock of its CPU seconds."""
        return self._all("cpu")

    def _all(self, kind: str) -> list[Event]:
        paths = self.folder.glob(f"{kind}.rank*.jsonl")
        return sorted(event for path in paths for event in read_events(path))

    @cached_property
    def n_steps(self) -> int:
        return max(event.step for event in self.events)

    @property
    def steps_per_epoch(self) -> float:
        return self.n_steps / self.config.epochs

    @property
    def samples_per_step(self) -> int:
        """Of all ranks together."""
        return sum(one.batch_size for one in self.facts)

    @property
    def samples_per_epoch(self) -> int:
        """Of all ranks together."""
        return sum(one.n_mine for one in self.facts)

    @cached_property
    def times_s(self) -> list[float]:
        """The time of each step, without evaluation: CPU seconds of the slowest rank + exchange."""
        return self._times_s([event for event in self.cpu_events if event.what != "evaluate"])

    def _times_s(self, events: list[Event]) -> list[float]:
        by_step = defaultdict(list)
        for event in events:
            by_step[event.step].append(event)
        transfer_s = self.transfer_s
        return [
            critical_path.critical_path_s(by_step[step], transfer_s) for step in sorted(by_step)
        ]

    @property
    def transfer_s(self) -> float:
        """The time of a quiet exchange of gradients; 0 alone."""
        return critical_path.transfer_s(self.events) if len(self.facts) > 1 else 0.0

    @property
    def wall_s(self) -> float:
        return max(event.end_s for event in self.events)

    @property
    def epoch_s(self) -> float:
        """The critical path of an epoch, evaluation and all, without the first step of several."""
        times_s = self._times_s(self.cpu_events)
        return statistics.fmean(times_s[1:] or times_s) * self.steps_per_epoch

    def cpu_s(self, what: str) -> list[float]:
        """The CPU seconds of each rank in one kind of event."""
        spent_s = [0.0] * len(self.facts)
        for event in self.cpu_events:
            if event.what == what:
                spent_s[event.rank] += event.duration_s
        return spent_s

    def n_lines(self) -> list[int]:
        """How many lines each rank has printed."""
        paths = [self.folder / f"log.rank{one.rank}" for one in self.facts]
        return [len(path.read_text(encoding="utf-8").splitlines()) for path in paths]


def run(
    program: Program, ranks: int, out: Path | None = None, threads: int | None = None, **settings
) -> Run:
    """Run one program on `ranks` ranks. out: its folder; as for `measure`. settings: of `config`.

    threads: of a rank; None asks the program. One process that is to be compared with ranks of one
    thread each has one too: core against core.
    """
    return measure({"run": program}, ranks, out, threads, **settings)["run"]


def measure(
    programs: Mapping[str, Program],
    ranks: int,
    out: Path | None = None,
    threads: int | None = None,
    **settings,
) -> dict[str, Run]:
    """Run several programs, one after the other, in as few starts as their threads allow.

    out: the folder for their folders (of the run itself, if there is one program only); None makes
    one that goes when this process ends. Raises ValueError for a function without a source, and
    what `launch.mpirun` raises.
    """
    root = Path(out) if out else _folder_of_this_process()
    asked = config(ranks, **settings)
    cores = Machine().cores()
    folders = {name: root if len(programs) == 1 else root / _plain(name) for name in programs}
    by_threads = defaultdict(list)
    for name, program in programs.items():
        by_threads[threads or int(program.threads(cores, ranks))].append(name)
    for n_threads, names in by_threads.items():
        for name in names:
            write(programs[name], asked, folders[name])
        launch.mpirun(
            IN_RANKS,
            *(folders[name] for name in names),
            ranks=ranks,
            threads=n_threads,
            time_limit_s=TIME_LIMIT_S,
        )
    return {name: Run(folders[name]) for name in programs}


def _folder_of_this_process() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="allhands-slower-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def write(program: Program, asked: TrainConfig, folder: Path) -> None:
    """Write the program and its config into the folder of its run."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in itertools.chain(*(folder.glob(f"*.rank*{end}") for end in ("", ".json*"))):
        old.unlink()
    configs.save(asked, folder / "config.json")
    sources, where = ["import math\n\nimport numpy as np\n"], {}
    for name in PARTS[:-1]:
        function = getattr(program, name)
        where[name] = [function.__module__, function.__name__]
        if function.__module__.partition(".")[0] != "allhands":
            where[name][0] = ""
            sources.append(_source(function))
    (folder / "functions.py").write_text("\n\n".join(sources), encoding="utf-8")
    (folder / "functions.json").write_text(json.dumps(where) + "\n", encoding="utf-8")


def _source(function: Callable) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise ValueError(
            f"{function!r} has no source that can be written down ({error}). Give a function that "
            f"is defined with `def` in a file or a cell."
        ) from error


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def speed_up(alone: Run, together: Run) -> float:
    """Of an epoch, by the critical path: evaluation and all, but the first step."""
    return alone.epoch_s / together.epoch_s


def table(runs: Mapping[str, Run]) -> str:
    """What can be counted of some runs, side by side, as text. Times are CPU ms of a step."""
    rows: list[tuple[str, Callable[[Run], str]]] = [
        ("ranks", lambda one: str(len(one.facts))),
        ("epochs", lambda one: str(one.config.epochs)),
        ("steps of an epoch", lambda one: f"{one.steps_per_epoch:.0f}"),
        ("samples of a step and rank", lambda one: _each(f.batch_size for f in one.facts)),
        ("samples of an epoch and rank", lambda one: _each(f.n_mine for f in one.facts)),
        ("samples read by a rank", lambda one: _each(f.n_read for f in one.facts)),
        ("images in an evaluation", lambda one: _each(f.n_held_out_mine for f in one.facts)),
        ("lines printed", lambda one: _each(one.n_lines())),
        ("threads", lambda one: _each(f.threads for f in one.facts)),
        ("switches of a step", lambda one: _each(f.n_switches // one.n_steps for f in one.facts)),
    ]
    for what in PARTS_OF_A_STEP:
        rows.append(
            (
                f"ms: {what}",
                lambda one, what=what: _each(
                    f"{1e3 * cpu_s / one.n_steps:.2f}" for cpu_s in one.cpu_s(what)
                ),
            )
        )
    rows.append(("ms: exchange", lambda one: f"{1e3 * one.transfer_s:.2f}"))
    rows.append(("ms: a step, median", lambda one: f"{1e3 * statistics.median(one.times_s):.2f}"))
    rows.append(("ms: the first step", lambda one: f"{1e3 * one.times_s[0]:.2f}"))
    cells = [["", *runs], *([title, *(cell(one) for one in runs.values())] for title, cell in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="A program with faults, alone and on ranks.")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of: {', '.join(PARTS)}")
    parser.add_argument("--ranks", type=from_1_on, default=2)
    parser.add_argument(
        "--batch", type=from_1_on, default=16, help="samples that one process takes alone"
    )
    parser.add_argument("--epochs", type=from_1_on, default=2)
    parser.add_argument(
        "--out",
        type=Path,
        help="a folder for the runs `alone` and `together`; else a temporary one, which stays",
    )
    asked = parser.parse_args()
    if unknown := set(asked.faults) - set(PARTS):
        parser.error(f"there is no fault {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    root = asked.out or Path(tempfile.mkdtemp(prefix="allhands-slower-"))
    settings = {"batch_size": asked.batch, "epochs": asked.epochs}
    with sentences("slower", root):
        show(faulty(*asked.faults), asked.ranks, root, **settings)


def show(program: Program, ranks: int, root: Path, **settings) -> None:
    """Run a program alone and on `ranks` ranks, in two folders of `root`, and print what is seen.

    The folders stay, for the doctor: its command is the last line.
    """
    alone = run(program, 1, root / "alone", threads=1, **settings)
    together = run(program, ranks, root / "together", **settings)
    print(table({"alone": alone, "together": together}))
    print(f"speed-up of an epoch: {speed_up(alone, together):.2f}")
    print(f"The runs stay in {root}, for the doctor; remove it when you have asked:")
    print(f"allhands doctor --run {together.folder} --against {alone.folder}")


@contextmanager
def sentences(command: str, root: Path) -> Iterator[None]:
    """End a command that cannot go on with one sentence and exit code 2. root: of its runs."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has enough
        with open(os.devnull, "w") as nothing:  # or Python's last flush fails again
            os.dup2(nothing.fileno(), sys.stdout.fileno())
        _end(f"{command}: the output was not read to its end. The runs stay in {root}.")
    except OSError as error:
        where = error.filename or root
        _end(f"{command}: {where} cannot be written ({error.strerror}). Give another folder.")
    except launch.LaunchError as error:
        _end(f"{command}: {error}")


def _end(sentence: str) -> None:
    print(sentence, file=sys.stderr)
    sys.exit(2)


def from_1_on(text: str) -> int:
    """The number of an argument of a command."""
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _each(values) -> str:
    return ", ".join(map(str, values))


if __name__ == "__main__":
    main()
