"""The results page of a group: figures from runs, and gaps for what only you know.

    allhands check my_train.py --json > check.json
    python handson/hack_owncode/fill.py --one runs/one --two runs/two --check check.json

--one and --two are folders with a `record.json`, as `allhands.train.own_program` leaves it; your
own program can write the same five values (see `Record` there). Without them the page has gaps.
Exit codes: 0 written; 2 something cannot be read.
"""

import argparse
import sys
from pathlib import Path

from allhands.train import own_page, own_program

TEMPLATE = Path(__file__).with_name("results.md")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--one", type=Path, help="the folder of the run on one device")
    parser.add_argument("--two", type=Path, help="the folder of the run on several")
    parser.add_argument("--check", type=Path, help="what `allhands check --json` has written")
    parser.add_argument("--out", type=Path, default=Path("results.md"))
    for word in own_page.WORDS:
        parser.add_argument(f"--{word}", default="", help="a sentence of yours")
    options = parser.parse_args()
    words = {word: getattr(options, word) for word in own_page.WORDS}
    try:
        one, two = (own_program.read(each) if each else None for each in (options.one, options.two))
        checked = own_page.read_json(options.check)
        page = own_page.page(words, one, two, checked, TEMPLATE.read_text(encoding="utf-8"))
        options.out.write_text(page, encoding="utf-8")
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"fill: {error}", file=sys.stderr)
        return 2
    gaps = page.count(own_page.GAP)
    print(f"{options.out} is written" + (f", with {gaps} gaps to fill by hand." if gaps else "."))
    return 0


if __name__ == "__main__":
    sys.exit(main())
