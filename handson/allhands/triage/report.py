"""The answer as text for a terminal: what failed, what the count is worth, why, and what to try.

Colour is used where the terminal has it; nothing is said by colour alone.
"""

import io

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from allhands.triage.marks import ranges
from allhands.triage.scan import Evidence, Triage

MOST_LINES = 4  # of evidence a heading
ANSWERS = {
    True: ("yes", "yellow"),
    False: ("no", "green"),
    None: ("undetermined", "magenta"),
}


def ranks_text(ranks: tuple[int, ...] | list[int]) -> str:
    """`ranks 0-3, 5`, `rank 2` or `no rank`."""
    if not ranks:
        return "no rank"
    return f"rank{'s' * (len(ranks) > 1)} {ranges(ranks)}"


def say(answer: Triage, console: Console) -> None:
    """Print the report on `console`."""
    lines = f"{answer.lines} line{'s' * (answer.lines != 1)}"
    names = ", ".join(answer.files[:3]) + (" ..." if len(answer.files) > 3 else "")
    size = f"{answer.world_size} rank{'s' * (answer.world_size != 1)}"
    console.print(Text(f"{names} ({lines}): {answer.launcher}, {size}", style="dim"))
    if not answer.failed:
        _heading(console, "No failure found", "green")
        _paragraph(console, answer.cause, answer.cause_id)
        _evidence(console, [e for e in answer.evidence if e.of == "cause"])
        if answer.handled:
            caught = f"{answer.handled} traceback(s) were caught: their rank, or the job, went on."
            _paragraph(console, caught)
        _heading(console, "Next")
        _paragraph(console, answer.next_step)
        return
    _heading(console, f"First failure: {answer.root_error_class}", "red")
    for said in _what(answer):
        _paragraph(console, said)
    _evidence(console, [e for e in answer.evidence if e.of == "root"])
    word, colour = ANSWERS[answer.rank_dependent]
    _heading(console, f"Does it depend on the rank? {word}", colour)
    _paragraph(console, answer.verdict)
    for pattern in answer.patterns:
        _paragraph(console, pattern)
    if answer.silent_ranks:
        _paragraph(console, silence(answer))
    if len(answer.roots) > 1:
        _heading(console, "Other failures in the log")
        for other in answer.roots[1:6]:
            who = ranks_text(other["ranks"])
            _paragraph(console, f"- {other['error_class']} on {who}: {other['signature'][:160]}")
    if answer.secondary_errors:
        _heading(console, "Only consequences")
        for error in answer.secondary_errors:
            _paragraph(console, f"- {error}")
    _heading(console, f"Likely cause: {answer.cause_id}", "cyan")
    _paragraph(console, answer.cause)
    if answer.culprit_ranks and len(answer.culprit_ranks) < answer.world_size:
        _paragraph(console, f"Look at {ranks_text(answer.culprit_ranks)}.")
    _evidence(console, [e for e in answer.evidence if e.of == "cause"])
    _heading(console, "Next experiment")
    _paragraph(console, answer.next_step)


def report(answer: Triage, width: int = 100) -> str:
    """The report as plain text of at most `width` columns."""
    out = io.StringIO()
    plain = {"color_system": None, "force_terminal": False, "force_jupyter": False}
    say(answer, Console(file=out, width=width, **plain))
    return out.getvalue()


def silence(answer: Triage) -> str:
    """What is not in the log of ranks that printed no error, or nothing."""
    who = ranks_text(answer.silent_ranks)
    if any(rank in answer.facts.by_label for rank in answer.silent_ranks):
        return f"The log holds no error of {who}."
    if not answer.facts.by_label:
        return f"The lines have no labels: which ones {who} wrote is open."
    return f"The log holds no word of {who}."


def _what(answer: Triage) -> list[str]:
    """What failed, where, and who printed it."""
    said = [answer.message[:500].strip()]
    if answer.root_frame:
        said.append(f"at {answer.root_frame}")
    if answer.root_ranks:
        copies = (
            f"{answer.duplicate_count} complete cop{'ies' if answer.duplicate_count != 1 else 'y'}"
        )
        said.append(f"seen on {ranks_text(answer.root_ranks)} ({copies} in the log)")
    return said


def _heading(console: Console, text: str, style: str = "bold") -> None:
    console.print()
    console.print(Text(text, style=f"bold {style}" if style != "bold" else style))


def _paragraph(console: Console, text: str, label: str = "") -> None:
    if text:
        said = Text(f"{label}: {text}" if label else text)
        console.print(Padding(said, (0, 0, 0, 2), expand=False))


def _evidence(console: Console, lines: list[Evidence]) -> None:
    """Some lines of the log, each cut to one line of the terminal."""
    for line in lines[:MOST_LINES]:
        number = line.place.rpartition(":")[2]
        one_file = all(
            other.place.rpartition(":")[0] == line.place.rpartition(":")[0] for other in lines
        )
        said = Text(f"line {number}: " if one_file else f"{line.place}: ", style="dim")
        if line.rank is not None:
            said.append(f"rank {line.rank}: ", style="not dim bold")
        said.append(" ".join(line.text[:300].split()), style="default not dim")
        said.truncate(console.width - 4, overflow="ellipsis")
        console.print(Padding(said, (0, 0, 0, 4), expand=False), no_wrap=True)
    if len(lines) > MOST_LINES:
        more = f"and {len(lines) - MOST_LINES} more like it"
        console.print(Padding(Text(more, style="dim"), (0, 0, 0, 4), expand=False))
