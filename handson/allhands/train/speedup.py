"""How many samples a second do 1, 2, 4 ranks train? Measured side by side, in one run.

    python -m allhands.train.speedup --ranks 1,2 --mode weak            # starts the ranks itself
    mpiexec -n 8 python -m allhands.train.speedup --ranks 1,2,4,8       # or in the ranks of a job

All worlds are groups of one start of ranks: the first n ranks train, the others sleep. In each
round every world trains the translator of lab 1 for the same few steps, so that what disturbs the
machine disturbs all alike; ratios are taken within a round. One thread a rank.

Modes. `weak`: the batch of one rank stays the same, and rank r computes on the very same pairs in
each world that it is in. `strong`: the batch of all ranks together stays the same, pair by pair.
"""

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands import launch
from allhands.launch.job import world
from allhands.trace import scaling
from allhands.trace.events import Event, read_events
from allhands.trace.scaling import Measured

MODULE = "allhands.train.speedup"  # not __name__, which is "__main__" in a command
RESULTS = "measured.json"
MODES = ("weak", "strong")
START_S = 60.0  # to start the ranks, generously
SLOWEST_STEP_S = 2.0  # a step that is slower belongs to a run that hangs


@dataclass(frozen=True)
class Plan:
    """What is measured. `batch_size`: of one rank if weak, of all ranks together if strong.

    `communicator` and `device`: `auto` is NCCL between GPUs where there are some, one for each
    rank; `naive` and `@numpy` compute on CPU cores anywhere.
    """

    ranks: tuple[int, ...] = (1, 2)
    mode: str = "weak"
    batch_size: int = 64
    steps: int = 20
    rounds: int = 3
    warm_up: int = scaling.WARM_UP
    communicator: str = "auto"
    device: str = "auto"
    allreduce_dtype: str = "float32"
    double_buffering: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode is {' or '.join(MODES)}; saw {self.mode!r}.")
        if not self.ranks or min(self.ranks) < 1 or len(set(self.ranks)) < len(self.ranks):
            raise ValueError(f"ranks are different numbers from 1 on; saw {self.ranks}.")
        if self.rounds < 1 or self.steps < 1 or self.warm_up < 1:
            raise ValueError(
                f"steps, rounds and warm_up are at least 1; saw {self.steps}, {self.rounds} and "
                f"{self.warm_up}."
            )
        uneven = [n for n in self.ranks if self.mode == "strong" and self.batch_size % n]
        if uneven:
            raise ValueError(
                f"A batch of {self.batch_size} pairs cannot be cut into {uneven[0]} equal parts. "
                f"Give a batch that every number of ranks divides."
            )

    def cut(self, ranks: int) -> tuple[int, int]:
        """(pairs of a batch, parts that it is cut into) for a world of `ranks`.

        Weak: batches are as large as the largest world needs, and smaller worlds take part of it.
        """
        if self.mode == "strong":
            return self.batch_size, ranks
        return self.batch_size * max(self.ranks), max(self.ranks)

    def samples_per_step(self, ranks: int) -> int:
        """Of all ranks together."""
        n_rows, parts = self.cut(ranks)
        return n_rows // parts * ranks


def measure(
    ranks: Sequence[int] = (1, 2),
    batch_size: int = 64,
    steps: int = 20,
    rounds: int = 3,
    mode: str = "weak",
    out: Path | str | None = None,
    **options,
) -> list[Measured]:
    """Start ranks on this machine, and measure each number of them; one result a world.

    steps: that count; `warm_up` (3) more come before. out: a folder for `measured.json` and the
    events of each round (`events`); None keeps none. options: more fields of `Plan`. Errors: those
    of `launch.mpirun`, and ValueError for a plan that cannot be.
    """
    plan = Plan(tuple(ranks), mode, batch_size, steps, rounds, **options)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(out or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "plan.json").write_text(json.dumps(dataclasses.asdict(plan)) + "\n")
        limit_s = START_S + rounds * len(ranks) * (steps + plan.warm_up + 1) * SLOWEST_STEP_S
        words = ("--plan", folder / "plan.json", "--out", folder)
        launch.mpirun(MODULE, *words, ranks=max(ranks), time_limit_s=limit_s)
        return read(folder)


def read(folder: Path | str) -> list[Measured]:
    """Read what `measure` left in its folder."""
    return scaling.read(Path(folder) / RESULTS)


def events(folder: Path | str, ranks: int, round_number: int = 0) -> list[Event]:
    """Read the events of all ranks of one world in one round, on one clock; sorted."""
    return sorted(read_events(Path(folder) / events_name(ranks, round_number)))


def events_name(ranks: int, round_number: int) -> str:
    return f"events.ranks{ranks}.round{round_number}.jsonl"


def table(measured: Sequence[Measured]) -> str:
    """The results as text for people: medians over rounds, with ranges where they tell most.

    batch: of one rank. eff.: efficiency. core: processor time / wall-clock time of the rank that
    got least; far below 100 % other programs, or more ranks than cores, have taken its core.
    """
    rounds = len(measured[0].step_s)
    lines = [f"{measured[0].mode} scaling: medians of {rounds} rounds (lowest to highest)"]
    row = "{:>5} {:>6} {:>23} {:>18} {:>5} {:>7} {:>6} {:>9} {:>5}"
    lines.append(
        row.format(
            *("ranks", "batch", "samples/s", "speed-up", "eff."),
            *("step ms", "wait", "transfer", "core"),
        )
    )
    for one, speedup in zip(measured, scaling.speedups(measured), strict=True):
        low, high = min(one.samples_per_s), max(one.samples_per_s)
        lines.append(
            row.format(
                one.ranks,
                one.batch_size,
                f"{one.median_samples_per_s:,.0f} ({low:,.0f} to {high:,.0f})",
                f"{speedup.median:.2f} ({speedup.lowest:.2f} to {speedup.highest:.2f})",
                f"{speedup.efficiency:.0%}",
                f"{1e3 * one.median_step_s:.1f}",
                f"{one.median_wait_share:.1%}",
                f"{one.median_transfer_share:.1%}",
                f"{statistics.median(one.core_share):.0%}",
            )
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", default="1,2", help="numbers of ranks, such as 1,2,4")
    parser.add_argument("--mode", choices=MODES, default="weak")
    parser.add_argument("--batch", type=int, default=64, help="a rank (weak) or in all (strong)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--communicator", default="auto", help="naive, pure_nccl, ...")
    parser.add_argument("--device", default="auto", help="@numpy, or a GPU for each rank")
    parser.add_argument("--allreduce-dtype", choices=("float32", "float16"), default="float32")
    parser.add_argument("--double-buffering", action="store_true")
    parser.add_argument("--out", type=Path, help="a folder for measured.json and the events")
    parser.add_argument("--plan", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.plan:
        values = json.loads(asked.plan.read_text())
        plan = Plan(**values | {"ranks": tuple(values["ranks"])})
    else:
        plan = Plan(
            tuple(int(n) for n in asked.ranks.split(",")), asked.mode, asked.batch, asked.steps,
            asked.rounds, scaling.WARM_UP, asked.communicator, asked.device,
            asked.allreduce_dtype, asked.double_buffering,
        )  # fmt: skip
    if world(os.environ) is None:
        fields = dataclasses.asdict(plan)
        measured = measure(out=asked.out, **fields)
    else:
        from allhands.train import speedup_ranks

        measured = speedup_ranks.run(plan, asked.out)
    if measured is not None:
        print(table(measured))


if __name__ == "__main__":
    main()
