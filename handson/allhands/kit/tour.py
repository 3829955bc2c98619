"""Run every lab's solved notebook on this machine, grade it, and write one HTML report.

    python -m allhands.kit.tour                    # all labs, report in build/tour/index.html
    python -m allhands.kit.tour lab1_seq2seq --out /tmp/tour

Exit code 1 if a lab fails or has not all its points.
"""

import argparse
import copy
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import jinja2
import nbconvert
from nbformat import NotebookNode
from rich.console import Console

from allhands.grade import source
from allhands.grade.notebook import Grader, GradingError, Score
from allhands.labs import COURSE, Course, Lab

OUT = Path("build/tour")


@dataclass(frozen=True)
class Stop:
    """One lab of the tour: its score, or why there is none."""

    lab: Lab
    seconds: float
    score: Score | None
    trouble: str = ""

    @property
    def good(self) -> bool:
        return self.score is not None and self.score.full


def tour(course: Course, stems: list[str], out: Path, console: Console) -> list[Stop]:
    """Grade the solved notebooks of `stems`; write index.html and <stem>.html into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    stops: list[Stop] = []
    with Grader(course, say=console.print) as grader:
        for number, stem in enumerate(stems, start=1):
            with console.status(f"Lab {number} of {len(stems)}: {stem} is running"):
                stops.append(visit(grader, course.lab(stem), out))
            last = stops[-1]
            told = f"{last.score.score:g} of {last.score.max:g}" if last.score else last.trouble
            console.print(f"{stem}: {told} ({last.seconds:.0f} s)", markup=False)
    (out / "index.html").write_text(_report(stops), encoding="utf-8")
    return stops


def visit(grader: Grader, lab: Lab, out: Path) -> Stop:
    """Grade the solved notebook of one lab; write <stem>.ipynb, .json and .html into `out`."""
    start_s = time.monotonic()
    path = out / f"{lab.stem}.ipynb"
    try:
        source.write(source.solved_notebook(lab.stem, grader.course), path)
        score = grader.grade(path, expect=lab.stem)
    except (GradingError, ValueError) as error:
        return Stop(lab, time.monotonic() - start_s, None, str(error))
    seconds = time.monotonic() - start_s
    source.write(score.executed, path)
    score.write(out / f"{lab.stem}.json")
    page, _ = nbconvert.HTMLExporter().from_notebook_node(
        _seen_from(out, score.executed, grader.course),
        resources={"metadata": {"name": lab.title}},
    )
    (out / f"{lab.stem}.html").write_text(page, encoding="utf-8")
    return Stop(lab, seconds, score)


def _seen_from(out: Path, notebook: NotebookNode, course: Course) -> NotebookNode:
    """Return a copy whose links to the project (`../slides/...`) hold in the folder `out`."""
    project = os.path.relpath(course.notebooks.parent, out)
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("](../", f"]({project}/")
    return notebook


_PAGE = jinja2.Template(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>All Hands: the tour</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; color: #222 }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .35em .8em .35em 0 }
td { border-top: 1px solid #ddd }
td.n { text-align: right; white-space: nowrap }
.good { color: #2e7d32 } .bad { color: #c62828 } small { color: #555 }
</style>
<h1>The tour</h1>
<p>Every lab's solved notebook ran on this machine and was graded. <small>{{ machine }}</small></p>
<table><tr><th>Lab<th>Points<th>Seconds<th>Notebook</tr>
{% for stop in stops %}<tr><td>{{ stop.lab.title }}
{% if stop.score %}<td class="n {{ 'good' if stop.good else 'bad' }}">
{{ '%g of %g'|format(stop.score.score, stop.score.max) }}
<td class="n">{{ '%.0f'|format(stop.seconds) }}
<td><a href="{{ stop.lab.stem }}.html">with its figures</a>
{% else %}<td class="n bad">failed<td class="n">{{ '%.0f'|format(stop.seconds) }}
<td>{{ stop.trouble }}
{% endif %}</tr>{% endfor %}</table>
{% for stop in stops if stop.score %}<h2>{{ stop.lab.title }}</h2>
<table><tr><th>Exercise<th>Points<th>What the check said</tr>
{% for each in stop.score.exercises %}<tr><td>{{ stop.lab.exercise(each.id).title }}
<td class="n {{ 'good' if each.score >= each.max else 'bad' }}">
{{ '%g of %g'|format(each.score, each.max) }}
<td>{% for line in each.said %}{{ line }}<br>{% endfor %}</tr>
{% endfor %}</table>{% endfor %}
</html>
""",
    autoescape=True,
)


def _report(stops: list[Stop]) -> str:
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return _PAGE.render(stops=stops, machine=machine)


def main(arguments: list[str] | None = None, course: Course = COURSE) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.tour", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("stems", nargs="*", metavar="STEM", help="the labs to visit (default: all)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"default: {OUT}")
    asked = parser.parse_args(arguments)
    unknown = [stem for stem in asked.stems if stem not in course.labs()]
    if unknown:
        known = ", ".join(course.labs())
        print(f"There is no lab {', '.join(unknown)}. There are: {known}.", file=sys.stderr)
        return 2
    stops = tour(course, asked.stems or list(course.labs()), asked.out, Console())
    print(f"The report: {asked.out / 'index.html'}")
    return 0 if all(stop.good for stop in stops) else 1


if __name__ == "__main__":
    raise SystemExit(main())
