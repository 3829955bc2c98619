"""A run with hidden causes: which? Number 1 to 15: `python mystery.py 3`, and then `--tell`.

The runs stay in a temporary folder, which is named, for the doctor.
"""

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
    with slower.sentences("mystery", folder):
        slower.show(slower.faulty(*causes), asked.ranks, folder)


if __name__ == "__main__":
    main()
