"""The table of the labs in README.md, written from labs.toml between two marks. For authors.

python -m allhands.kit.table           # write it
python -m allhands.kit.table --check   # exit 1 if it is out of date
"""

import argparse
import re
from pathlib import Path

from allhands.labs import COURSE, Lab

README = COURSE.labs_file.parents[1] / "README.md"
BEGIN, END = "<!-- labs -->", "<!-- /labs -->"


def table(labs: dict[str, Lab]) -> str:
    """A Markdown table: one row a lab, in the order of the course."""
    rows = [
        "| Lab | Afterwards you can | Before it | Minutes | Points |",
        "|---|---|---|---:|---:|",
    ]
    for lab in labs.values():
        needs = ", ".join(f"`{stem}`" for stem in lab.needs) or "-"
        link = f"[{lab.title}](notebooks/{lab.stem}.ipynb)"
        rows.append(f"| {link} | {lab.aim} | {needs} | {lab.minutes} | {lab.points:g} |")
    return "\n".join(rows)


def with_table(text: str, labs: dict[str, Lab]) -> str:
    """`text` with the table between the marks. Raises ValueError without both marks, once each."""
    return between(text, BEGIN, END, table(labs), "the labs' table")


def between(text: str, begin: str, end: str, body: str, what: str) -> str:
    """`text` with `body` between two marks. `what` is its name, for the error.

    Raises ValueError if the marks are not there, in this order and once each.
    """
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"Put {begin} and {end}, once each, around the place of {what}.")
    return pattern.sub(lambda _: f"{begin}\n{body}\n{end}", text)


def written(path: Path, wanted: str, check: bool, stale: str) -> int:
    """Write what a page should hold, if it does not yet; the exit code.

    check: write nothing; where something differs, print the sentence `stale` and return 1.
    """
    if path.exists() and path.read_text(encoding="utf-8") == wanted:
        return 0
    if check:
        print(stale)
        return 1
    path.write_text(wanted, encoding="utf-8")
    print(path)
    return 0


def main(arguments: list[str] | None = None, readme: Path = README) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.table", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if the table is out of date")
    asked = parser.parse_args(arguments)
    wanted = with_table(readme.read_text(encoding="utf-8"), COURSE.labs())
    stale = f"The table of the labs in {readme} is out of date: run `make notebooks`."
    return written(readme, wanted, asked.check, stale)


if __name__ == "__main__":
    raise SystemExit(main())
