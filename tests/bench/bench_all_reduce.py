"""Measured and predicted: all-reduces by hand, and MPI's own, against the size of the message.

    python tests/bench/bench_all_reduce.py [--ranks 2 4] [--repeats 31] [--out FOLDER]

Prints, for each number of ranks, start-up and time a byte beside theory's, the times of short and
long messages as ratios to MPI's own, and what 16 bits a number would gain over the ring. Asserts
nothing: with more ranks than cores the times are those of ranks that take turns."""

import argparse
import tempfile
from pathlib import Path

from allhands import launch
from allhands.mgwfbp.fit import fit
from allhands.train.all_reduce_times import THEORY, Measured
from allhands.train.half_all_reduce import gain

LIMIT_S = 300
SHOWN_BYTES = (1024, 65_536, 1_048_576)


def measure(ranks: int, repeats: int, folder: Path) -> Measured:
    words = ("--out", folder, "--repeats", repeats)
    launch.mpirun("allhands.train.all_reduce", *words, ranks=ranks, time_limit_s=LIMIT_S)
    return Measured.load(folder)


def report(measured: Measured) -> None:
    print(measured)
    for size in SHOWN_BYTES:
        place = measured.sizes_bytes.index(size)
        own_s = measured.times_s["MPI's own"][place]
        words = [
            f"{name} {times_s[place] / own_s:.2f}"
            for name, times_s in measured.times_s.items()
            if name in THEORY
        ]
        print(
            f"{size:10,} bytes: {1e6 * own_s:9.1f} us by MPI's own; times that: {'; '.join(words)}"
        )
    try:
        ring = fit(measured.sizes_bytes, measured.times_s["ring"]).cost
    except ValueError as error:
        print(f"no gain to tell: {error}")
        return
    gains = [f"{gain(ring, size):.2f} at {size:,} bytes" for size in SHOWN_BYTES]
    print(f"16 bits instead of 32 over the ring, from its line: {'; '.join(gains)}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for ranks in asked.ranks:
            folder = (asked.out or Path(scratch)) / f"{ranks}_ranks"
            report(measure(ranks, asked.repeats, folder))


if __name__ == "__main__":
    main()
