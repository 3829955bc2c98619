"""How is the embedded corpus `numbers_dates` made? For authors: needs `num2words` and `babel`.

    python -m allhands.data.generate                 # the committed files, byte for byte
    python -m allhands.data.generate --folder NEW    # the same elsewhere

Half of the pairs are numbers in words, half are dates. Both are regular, so a small model can learn
them to the end, and neither is word for word:

- English groups digits by thousands and Japanese by ten thousands. English says "and" after the
  hundreds. Japanese says 百 where English says "one hundred".
- English dates come in four styles, with the month as a word, in two places. Japanese dates come in
  one.

No style names the weekday. It would move from the first place to the last, and models of this size
often take very long to find that. No style writes the month as a number: 4/2/1986 would be the 2nd
of April in one country and the 4th of February in another.

Every number and every date comes once in the whole corpus, so the splits share neither.
"""

import argparse
import datetime
import random
from collections.abc import Iterator
from pathlib import Path

SEED = 20
SIZES = {"train": 8000, "valid": 500, "test": 500}
MAX_DIGITS = 6
FIRST_DATE, LAST_DATE = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)

STYLES = (  # CLDR's locale and style
    ("en_US", "long"),  # September 3, 1986
    ("en_US", "medium"),  # Sep 3, 1986
    ("en_GB", "long"),  # 3 September 1986
    ("en_GB", "medium"),  # 3 Sept 1986
)


def numbers(rng: random.Random) -> Iterator[int]:
    """Different numbers from 1 to 999,999: first how many digits, then which.

    So small numbers are not rare; after a while all of them are used up.
    """
    seen = set()
    while True:
        digits = rng.randint(1, MAX_DIGITS)
        number = rng.randrange(10 ** (digits - 1), 10**digits)
        if number not in seen:
            seen.add(number)
            yield number


def dates(rng: random.Random) -> Iterator[datetime.date]:
    """Different dates from FIRST_DATE to LAST_DATE, in random order."""
    n_days = (LAST_DATE - FIRST_DATE).days + 1
    for day in rng.sample(range(n_days), n_days):
        yield FIRST_DATE + datetime.timedelta(days=day)


def number_pair(number: int) -> tuple[str, str]:
    """83594 -> eighty three thousand five hundred and ninety four, 八万三千五百九十四."""
    from num2words import num2words

    english = num2words(number, lang="en").replace("-", " ").replace(",", "")
    return english, num2words(number, lang="ja")


def date_pair(date: datetime.date, locale: str, style: str) -> tuple[str, str]:
    """A date in one of STYLES, and in Japanese: Sep 3, 1986 -> 1986年9月3日."""
    from babel.dates import format_date

    return format_date(date, style, locale=locale), format_date(date, "long", locale="ja")


def pairs(seed: int, size: int) -> list[tuple[str, str]]:
    """`size` pairs, numbers and dates by turns."""
    rng = random.Random(seed)
    some_numbers, some_dates = numbers(rng), dates(rng)
    made = []
    for i in range(size):
        if i % 2 == 0:
            made.append(number_pair(next(some_numbers)))
        else:
            made.append(date_pair(next(some_dates), *rng.choice(STYLES)))
    return made


def write(folder: Path, seed: int = SEED) -> None:
    """Write train.tsv, valid.tsv and test.tsv: source TAB target, UTF-8, Unix line ends."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pairs(seed, sum(SIZES.values()))
    # Small numbers are used up early, so the splits are drawn from the whole, not cut in order.
    random.Random(f"{seed} splits").shuffle(made)
    for split, size in SIZES.items():
        lines = [f"{source}\t{target}\n" for source, target in made[:size]]
        (folder / f"{split}.tsv").write_bytes("".join(lines).encode("utf-8"))
        del made[:size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).parent / "corpora" / "numbers_dates"
    parser.add_argument("--folder", type=Path, default=here, help="where to write (default: here)")
    parser.add_argument("--seed", type=int, default=SEED, help=f"default: {SEED}")
    asked = parser.parse_args()
    write(asked.folder, asked.seed)
    print(f"Wrote {', '.join(f'{split}.tsv' for split in SIZES)} to {asked.folder}.")


if __name__ == "__main__":
    main()
