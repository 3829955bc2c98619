"""A run with hidden causes: which? Number 1 to 15: `python mystery.py 3`, and then `--tell`."""

import argparse
import itertools
import tempfile
from pathlib import Path

from allhands.train import slower

HIDDEN = [*itertools.combinations(slower.PARTS, 1), *itertools.combinations(slower.PARTS, 2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", type=int, choices=range(1, len(HIDDEN) + 1))
    parser.add_argument("--ranks", type=slower.from_1_on, default=2)
    parser.add_argument("--tell", action="store_true", help="say the causes, and run nothing")
    asked = parser.parse_args()
    causes = HIDDEN[(7 * asked.number) % len(HIDDEN)]
    if asked.tell:
        print(" and ".join(causes))
        return
    folder = Path(tempfile.mkdtemp(prefix="mystery-"))
    program = slower.faulty(*causes)
    alone = slower.run(program, 1, folder / "alone", threads=1)
    together = slower.run(program, asked.ranks, folder / "together")
    print(slower.table({"alone": alone, "together": together}))
    print(f"speed-up of an epoch: {slower.speed_up(alone, together):.2f}")
    print(f"the runs' folders, for the doctor: {folder}/alone, {folder}/together")


if __name__ == "__main__":
    main()
