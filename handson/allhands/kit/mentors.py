"""The table of the exercises in each mentors' page, written from labs.toml. For authors.

    python -m allhands.kit.mentors           # write it into handson/<stem>/mentors.md
    python -m allhands.kit.mentors --check   # exit 1 if one is out of date, or missing
    python -m allhands.kit.mentors --print build/mentors    # to print: HTML, a page of A4 a lab

A mentors' page is one printed page about a lab, for those who walk between the tables. People
write it; only the part between two marks is written here. Two sections hold tables that a test
compares with the course (tests/house/test_mentors.py):

    ## How the minutes go     | until | exercise | runs, s | late if |
    ## Usual mistakes         | exercise | the check says | they | ask |

`until` is the minute by which the exercise should be done; the last one is the lab's minutes. In
the column `the check says`, what stands in double quotes is a check's own text, or a reply of
labs.toml; `...` stands for what differs from run to run.
"""

import argparse
import re
from pathlib import Path

import mistune

from allhands.kit.table import between, written
from allhands.labs import COURSE, Lab

BENCHES = COURSE.labs_file.parent
BEGIN, END = "<!-- exercises -->", "<!-- /exercises -->"

# In this size the longest of our pages is one side of A4.
PAPER = """<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>
@page {{ size: A4; margin: 8mm }}
body {{ font: 7.2pt/1.15 "DejaVu Sans", sans-serif; margin: 0 }}
h1 {{ font-size: 12pt; margin: 0 }} h2 {{ font-size: 9pt; margin: 4pt 0 1pt }} p {{ margin: 2pt 0 }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ border: 0.3pt solid #999; padding: 0 2pt; vertical-align: top; text-align: left }}
</style><body>
{body}</body></html>
"""


def page(stem: str, benches: Path = BENCHES) -> Path:
    """Where the mentors' page of a lab is."""
    return benches / stem / "mentors.md"


def exercises(lab: Lab) -> str:
    """What labs.toml says: a line about the lab, and a Markdown table with a row an exercise."""
    before = f", after {', '.join(f'`{stem}`' for stem in lab.needs)}" if lab.needs else ""
    rows = [
        f"{lab.minutes} minutes, {lab.points:g} points{before}. "
        f"[Notebook](../../notebooks/{lab.stem}.ipynb), [bench](README.md). Aim: {lab.aim}.",
        "",
        "| exercise | kind | points | check, s | first hint (`desk.hint` gives more) |",
        "|---|---|---:|---:|---|",
    ]
    for each in lab.exercises:
        hint = each.hints[0].replace("|", "\\|")
        rows.append(f"| `{each.id}` | {each.kind} | {each.points:g} | {each.limit_s:g} | {hint} |")
    return "\n".join(rows)


def with_exercises(text: str, lab: Lab) -> str:
    """`text` with the table between the marks. Raises ValueError without both marks, once each."""
    return between(text, BEGIN, END, exercises(lab), f"the table of {lab.stem}'s exercises")


def rows(text: str, section: str) -> list[list[str]]:
    """The cells of the rows of the table in the section `## section`, without its head."""
    found = re.search(rf"^## {re.escape(section)}.*?\n(.*?)(?=^## |\Z)", text, re.M | re.DOTALL)
    lines = re.findall(r"^\|(.*)\|\s*$", found[1] if found else "", re.MULTILINE)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines[2:]]


def print_pages(folder: Path, benches: Path = BENCHES) -> list[Path]:
    """Write each lab's page as HTML that a browser prints on one side of A4; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    html = mistune.create_markdown(escape=False, plugins=["table"])
    paths = []
    for stem, lab in COURSE.labs().items():
        body = html(page(stem, benches).read_text(encoding="utf-8"))
        paths.append(folder / f"{stem}.html")
        text = PAPER.format(title=f"{lab.title}: mentors", body=body)
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def main(arguments: list[str] | None = None, benches: Path = BENCHES) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.mentors", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="exit 1 if a page is out of date")
    parser.add_argument("--print", type=Path, metavar="DIR", dest="folder", help="write HTML there")
    asked = parser.parse_args(arguments)
    if asked.folder is not None:
        print(*print_pages(asked.folder, benches), sep="\n")
        return 0
    code = 0
    for stem, lab in COURSE.labs().items():
        path = page(stem, benches)
        if not path.exists():
            print(f"{path} is missing: write it, with {BEGIN} and {END} in it.")
            code = 1
            continue
        wanted = with_exercises(path.read_text(encoding="utf-8"), lab)
        stale = f"The exercises in {path} are out of date: run `make notebooks`."
        code |= written(path, wanted, asked.check, stale)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
