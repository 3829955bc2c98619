"""The answer as text for a terminal: grouped by fault, the gravest first, and what to do first."""

from __future__ import annotations

import io
from itertools import groupby

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from allhands.migrate.check import Checked, Finding
from allhands.migrate.rule import SEVERITIES

MOST_PLACES = 6  # of one fault
MOST_COLUMNS = 100
COLOURS = {"sure": "red", "likely": "yellow", "look": "cyan"}
MEANING = {
    "sure": "wrong on more than one rank",
    "likely": "usually wrong",
    "look": "worth a look",
}
COUNTED = {"sure": "sure", "likely": "likely", "look": "to look at"}
NAMES = {
    "torch": "PyTorch (torch.distributed)",
    "chainer": "ChainerMN",
    "horovod": "Horovod",
    "mpi": "mpi4py",
}


def say(answer: Checked, console: Console) -> None:
    """Print the report on `console`."""
    _head(answer, console)
    grave = sorted(
        answer.findings,
        key=lambda each: (SEVERITIES.index(each.rule.severity), not each.rule.serial),
    )
    many = len(answer.files) > 1
    for _, group in groupby(grave, key=lambda each: each.rule.rule_id):
        _group(list(group), many, console)
    for sentence in answer.unread:
        console.print(Padding(Text(f"Not read: {sentence}"), (1, 0, 0, 0), expand=False))
    _end(answer, console)


def report(answer: Checked, width: int = MOST_COLUMNS) -> str:
    """The report as plain text."""
    out = io.StringIO()
    plain = {"color_system": None, "force_terminal": False, "force_jupyter": False}
    say(answer, Console(file=out, width=width, **plain))
    return out.getvalue()


def _head(answer: Checked, console: Console) -> None:
    n = len(answer.files)
    what = str(answer.files[0]) if n == 1 else f"{n} files"
    by = ", ".join(filter(None, (*(NAMES[each] for each in answer.frameworks), answer.started_by)))
    console.print(Text(f"{what}: {by or 'no ranks yet'}", style="dim"))
    if not answer.frameworks and answer.findings:
        _paragraph(
            console,
            "This program runs on one device. These are the lines that the edits of lab 2 change, "
            "in the order in which to make them.",
        )


def _group(findings: list[Finding], many: bool, console: Console) -> None:
    rule = findings[0].rule
    console.print()
    heading = Text(f"{rule.title}", style=f"bold {COLOURS[rule.severity]}")
    kind = "an edit" if rule.serial else f"{rule.severity}: {MEANING[rule.severity]}"
    heading.append(f"  [{rule.rule_id}, {kind}]", style="not bold dim")
    console.print(heading)
    for each in findings[:MOST_PLACES]:
        place = f"{each.path}:{each.place}" if many else _line(each.place)
        said = Text(f"{place}: ", style="dim")
        said.append(each.code, style="not dim bold")
        if each.detail:
            said.append(f"  ({each.detail})", style="not bold dim")
        console.print(Padding(said, (0, 0, 0, 4), expand=False))
    if len(findings) > MOST_PLACES:
        _paragraph(
            console, f"  and {len(findings) - MOST_PLACES} more places (--json has them all)"
        )
    _paragraph(console, rule.why)
    _paragraph(console, f"Cure: {rule.cure}")
    _paragraph(console, f"See: {rule.source}", "dim")


def _line(place: str) -> str:
    return place if place.startswith("cell") else f"line {place}"


def _paragraph(console: Console, text: str, style: str = "") -> None:
    console.print(Padding(Text(text, style=style), (0, 0, 0, 2), expand=False))


def _end(answer: Checked, console: Console) -> None:
    counts = {each: len(answer.of(each)) for each in SEVERITIES}
    console.print()
    if not answer.findings:
        said = f"Nothing found. That is no proof: {_proof(answer)}"
        if answer.started_by:
            said = (
                f"Nothing found. {answer.started_by} makes the ranks and most edits itself, and "
                f"this check knows little of it: {_proof(answer)}"
            )
        elif not answer.frameworks:
            said = "Nothing found: no training with PyTorch or Chainer is in sight here."
        console.print(Text(said, style="green"))
    else:
        named = COUNTED if answer.frameworks else {"look": "edits to make"}
        parts = [f"{n} {named[each]}" for each, n in counts.items() if n]
        console.print(Text(f"Found: {', '.join(parts)}.", style="bold"))
        _paragraph(console, first_step(answer))
    if answer.silenced:
        _paragraph(console, f"{answer.silenced} silenced by `# allhands: ok`.", "dim")


def first_step(answer: Checked) -> str:
    """What to do first, in one or two sentences."""
    grave = answer.of("sure") or answer.of("likely")
    if grave:
        each = grave[0]
        return (
            f"First: {each.rule.title.lower()} ({each.path.name}, {_line(each.place)}). Mend one, "
            f"check again, and when nothing is left, {_proof(answer)} A line that is right as it "
            f"is: # allhands: ok {each.rule.rule_id}"
        )
    if not answer.frameworks:
        return "First: measure this program on one device, as it is. Then make the edits in order."
    return f"Nothing that must change. Read the lines above once, and {_proof(answer)}"


def _proof(answer: Checked) -> str:
    """How one sees that N ranks give the answer of one."""
    if "chainer" in answer.frameworks:
        return "run `allhands compare`, one rank against two."
    return "compare the losses of one rank and of two, step by step."
