"""What does each cause of the lab bug4 cost on this machine? One fault at a time, in rounds.

    python tests/bench/bench_bug4.py [--rounds 5] [--batch 16]

Each round runs the program on two ranks, mended and with each fault alone, in the same starts; and
alone, on one rank with one thread. Ratios are taken within a round, and shown are the median and
the range. Times are of an epoch by the critical path (CPU seconds); the clock stands beside them.
The comparison's two faults are shown as what they make of the mended program's runs. About 10 s a
round.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from types import SimpleNamespace

from allhands.train import slower
from allhands.train.faults import bug4_slower
from allhands.train.faults.readings import readings


def row(name: str, values: list[float], unit: str = "") -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{name:44} {middle:8.2f} ({low:.2f} to {high:.2f}) {unit}".rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16, help="samples that one process takes")
    asked = parser.parse_args()
    programs = {"mended": slower.MENDED} | {name: slower.faulty(name) for name in slower.PARTS}
    programs["all five"] = slower.riddle()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    rounds = []
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as temporary:
            folder, settings = Path(temporary), {"batch_size": asked.batch}
            alone = slower.run(slower.MENDED, 1, folder / "alone", threads=1, **settings)
            found = {"alone": alone} | slower.measure(programs, 2, folder / "two", **settings)
            rounds.append({name: figures(run) for name, run in found.items()})
    for name in programs:
        print(f"\n{name}")
        for title, ratio in (
            ("  epoch, against mended", lambda one, name=name: quotient(one, name, "epoch_s")),
            (
                "  on the clock, against mended",
                lambda one, name=name: quotient(one, name, "wall_s"),
            ),
            (
                "  speed-up of an epoch, against alone",
                lambda one, name=name: one["alone"].epoch_s / one[name].epoch_s,
            ),
            ("  switches of a step", lambda one, name=name: one[name].switches),
        ):
            print(row(title, [ratio(one) for one in rounds]))
    print("\nthe mended program's speed-up, step by step")
    for title, step, ratio in (
        ("  right", "repaired", "repaired"),
        ("  the first step counted", "faulty", "repaired"),
        ("  steps compared, and not samples", "repaired", "faulty"),
        ("  both", "faulty", "faulty"),
    ):
        print(row(title, [speed_up(one, step, ratio) for one in rounds]))
    print("\na step of the mended program, if the first one is counted, against the right one")
    print(row("  the first step, in steps", [first_step(one) for one in rounds]))
    for n_steps in (20, 90):
        print(row(f"  mean of the first {n_steps}", [counted(one, n_steps) for one in rounds]))


def figures(run: slower.Run) -> SimpleNamespace:
    return SimpleNamespace(
        epoch_s=run.epoch_s,
        wall_s=run.wall_s,
        switches=sum(one.n_switches for one in run.facts) / run.n_steps,
        times_s=run.times_s,
        samples_per_step=run.samples_per_step,
    )


def quotient(one: dict, name: str, what: str) -> float:
    return getattr(one[name], what) / getattr(one["mended"], what)


def first_step(one: dict) -> float:
    return one["mended"].times_s[0] / bug4_slower.step_s(one["mended"].times_s)


def counted(one: dict, n_steps: int) -> float:
    times_s = one["mended"].times_s[:n_steps]
    faulty = readings("bug4_slower:step_s").faulty
    return faulty(times_s) / bug4_slower.step_s(times_s)


def speed_up(one: dict, step: str, ratio: str) -> float:
    step_s = readings("bug4_slower:step_s").named(step)
    runs = [
        SimpleNamespace(
            step_s=step_s(one[name].times_s), samples_per_step=one[name].samples_per_step
        )
        for name in ("alone", "mended")
    ]
    return readings("bug4_slower:speed_up").named(ratio)(*runs)


if __name__ == "__main__":
    main()
