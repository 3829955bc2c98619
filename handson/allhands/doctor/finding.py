"""What did the doctor see, and what should one do? Findings, as a table and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

MARKS = {"good": ("good", "green"), "warn": ("warn", "yellow"), "bad": ("bad", "bold red")}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    status: "good"; "warn": the labs run, and something is lost; "bad": a lab cannot run.
    seen: what is there. advice: what to do, empty if nothing.
    """

    name: str
    status: Literal["good", "warn", "bad"]
    seen: str
    advice: str = ""


def exit_code(findings: Sequence[Finding]) -> int:
    """1 if anything is bad, else 0."""
    return int(any(finding.status == "bad" for finding in findings))


def to_json(findings: Sequence[Finding]) -> str:
    """{"good": true or false, "findings": [{"name", "status", "seen", "advice"}, ...]}"""
    content = {
        "good": exit_code(findings) == 0,
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def report(findings: Sequence[Finding], as_json: bool = False) -> None:
    """Print the findings: as JSON, or for people."""
    if as_json:
        print(to_json(findings))
    else:
        render(findings)


def render(findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print one line a finding, the advice under it, and a summary."""
    console = console or Console()
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        mark, style = MARKS[finding.status]
        table.add_row(Text(mark, style=style), Text(finding.name), Text(finding.seen))
        if finding.advice:
            table.add_row("", "", Text("-> " + finding.advice, style=style))
    console.print(table)
    bad = sum(finding.status == "bad" for finding in findings)
    warned = sum(finding.status == "warn" for finding in findings)
    if bad:
        console.print(Text(f"{bad} bad: mend these first, then run the doctor again.", "bold red"))
    elif warned:
        console.print(Text(f"The labs run here; {warned} could be better.", "yellow"))
    else:
        console.print(Text("The labs run here.", "green"))
