"""What did `kit.verify` find on this machine? One report, written three ways.

    report.txt     for the job's log and for people
    report.html    the same with links to the graded notebooks and their figures
    junit.xml      the same for a CI: a test suite a part, a test case a cell, an exercise, a test

All three are written anew after every part, so that a job that is stopped leaves what it found.
Times are seconds.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import jinja2

NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd]")
COLOURS = re.compile(r"(?:\x1b|#x1B)\[[0-9;]*m")


@dataclass(frozen=True)
class Case:
    """One cell, exercise, test or command. trouble: why it is not good; left_out: why it is not."""

    name: str
    seconds: float = 0.0
    trouble: str = ""
    left_out: str = ""


@dataclass(frozen=True)
class Part:
    """What ran as one: a notebook's cells, its exercises, a lab's GPU preset, the tests for GPUs.

    points: (reached, all) where there are points. page: a file beside the report that shows more.
    beyond: it needs more than this machine has, so that it is not wrong if nothing of it ran.
    """

    lab: str
    what: str
    cases: tuple[Case, ...]
    seconds: float
    points: tuple[float, float] | None = None
    page: str = ""
    beyond: bool = False

    @property
    def troubles(self) -> list[Case]:
        return [case for case in self.cases if case.trouble]

    @property
    def left_out(self) -> list[Case]:
        return [case for case in self.cases if case.left_out]

    @property
    def good(self) -> bool:
        """Nothing failed, and something ran."""
        return not self.troubles and (self.n_run > 0 or self.beyond)

    @property
    def n_run(self) -> int:
        return len(self.cases) - len(self.left_out)


@dataclass
class Report:
    """machine: facts by name. level: `gpu` or `cpu`; said: what that means here, a sentence."""

    machine: Mapping[str, str]
    level: str
    said: str
    parts: list[Part] = field(default_factory=list)
    not_done: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return bool(self.parts) and all(part.good for part in self.parts) and not self.not_done

    @property
    def verdict(self) -> str:
        if self.good:
            beyond = [f"{part.lab}: {part.what}" for part in self.parts if part.beyond]
            return "All that ran is right" + "; left out: " * bool(beyond) + ", ".join(beyond) + "."
        bad = [f"{part.lab}: {part.what}" for part in self.parts if not part.good]
        return "Not all is right: " + ", ".join([*bad, *self.not_done] or ["nothing ran"]) + "."

    def write(self, folder: Path) -> None:
        """Write the three files into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        ET.ElementTree(junit(self)).write(
            folder / "junit.xml", encoding="utf-8", xml_declaration=True
        )
        (folder / "report.html").write_text(_PAGE.render(report=self), encoding="utf-8")
        (folder / "report.txt").write_text(text(self), encoding="utf-8")


def plain(said: str) -> str:
    """Without colours, and without what XML cannot hold."""
    return NOT_IN_XML.sub("?", COLOURS.sub("", said)).strip()


def text(report: Report) -> str:
    """The report as lines: the machine, a table, and what is not right."""
    lines = [report.said, report.verdict, ""]
    lines += [f"{name:<17} {fact}" for name, fact in report.machine.items()]
    lines += ["", f"{'lab':<20}{'what':<27}{'level':<7}{'run':>5}{'bad':>5}{'points':>10}{'s':>7}"]
    for part in report.parts:
        points = f"{part.points[0]:g}/{part.points[1]:g}" if part.points else "-"
        lines.append(
            f"{part.lab:<20}{part.what:<27}{report.level:<7}{part.n_run:>5}"
            f"{len(part.troubles):>5}{points:>10}{part.seconds:>7.0f}"
        )
    lines += [f"not done, the time was over: {what}" for what in report.not_done]
    for part in report.parts:
        for case in part.left_out:
            lines.append(f"\n{part.lab}, {part.what}, {case.name}: left out, {case.left_out}")
        for case in part.troubles:
            lines.append(f"\n{part.lab}, {part.what}, {case.name}:")
            lines += ["    " + line for line in case.trouble.splitlines()]
    return "\n".join(lines) + "\n"


def junit(report: Report) -> ET.Element:
    """The report in JUnit's form; what was not done is an error."""
    suites = ET.Element("testsuites", name="All Hands: notebooks, level " + report.level)
    for part in report.parts:
        suite = ET.SubElement(
            suites,
            "testsuite",
            name=f"{part.lab}: {part.what}",
            tests=str(len(part.cases)),
            failures=str(len(part.troubles)),
            skipped=str(len(part.left_out)),
            errors="0",
            time=f"{part.seconds:.3f}",
        )
        facts = ET.SubElement(suite, "properties")
        for name, fact in {**report.machine, "level": report.level}.items():
            ET.SubElement(facts, "property", name=name, value=plain(fact))
        for case in part.cases:
            classname = f"{part.lab}.{part.what}".replace(" ", "_")
            told = ET.SubElement(
                suite,
                "testcase",
                classname=classname,
                name=plain(case.name),
                time=f"{case.seconds:.3f}",
            )
            if case.trouble:
                first = case.trouble.splitlines()[0]
                ET.SubElement(told, "failure", message=plain(first)).text = plain(case.trouble)
            elif case.left_out:
                ET.SubElement(told, "skipped", message=plain(case.left_out))
    if report.not_done or not report.parts:
        missing = report.not_done or [report.said]
        n = str(len(missing))
        suite = ET.SubElement(suites, "testsuite", name="not done", tests=n, errors=n)
        for what in missing:
            told = ET.SubElement(suite, "testcase", classname="not_done", name=plain(what))
            ET.SubElement(told, "error", message=plain(report.verdict))
    return suites


_PAGE = jinja2.Template(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>All Hands: do the notebooks hold?</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; color: #222 }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; vertical-align: top; padding: .35em .8em .35em 0 }
td { border-top: 1px solid #ddd }
td.n, th.n { text-align: right; white-space: nowrap }
.good { color: #2e7d32 } .bad { color: #c62828 }
pre { background: #f5f5f5; padding: .6em 1em; overflow-x: auto }
</style>
<h1>Do the notebooks hold?</h1>
<p><strong>{{ report.said }}</strong>
<span class="{{ 'good' if report.good else 'bad' }}">{{ report.verdict }}</span></p>
<table>{% for name, fact in report.machine.items() %}<tr><td>{{ name }}<td>{{ fact }}</tr>
{% endfor %}</table>
<h2>What ran</h2>
<table><tr><th>Lab<th>What<th>Level<th class="n">Run<th class="n">Not right
<th class="n">Left out<th class="n">Points<th class="n">Seconds</tr>
{% for part in report.parts %}<tr><td>{{ part.lab }}
<td>{% if part.page %}<a href="{{ part.page }}">{{ part.what }}</a>{% else %}{{ part.what }}
{% endif %}<td>{{ report.level }}<td class="n">{{ part.n_run }}
<td class="n {{ 'good' if part.good else 'bad' }}">{{ part.troubles|length }}
<td class="n">{{ part.left_out|length }}
<td class="n">{% if part.points %}{{ '%g of %g'|format(*part.points) }}{% endif %}
<td class="n">{{ '%.0f'|format(part.seconds) }}</tr>
{% endfor %}</table>
{% if report.not_done %}<p class="bad">Not done, because the time was over:
{{ report.not_done|join(', ') }}.</p>{% endif %}
{% for part in report.parts %}{% for case in part.troubles %}
<h3 class="bad">{{ part.lab }}, {{ part.what }}, {{ case.name }}</h3><pre>{{ case.trouble }}</pre>
{% endfor %}{% for case in part.left_out %}
<p>{{ part.lab }}, {{ part.what }}, {{ case.name }}: left out, {{ case.left_out }}</p>
{% endfor %}{% endfor %}
</html>
""",
    autoescape=True,
)
