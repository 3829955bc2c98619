"""Whose is a traceback without a label? What a hook or an abort says beside it.

Read: the line before the traceback that this course's hook writes (train/excepthook.py), the lines
behind it that ChainerMN's hook writes, and MPI's own report of the rank that called MPI_Abort.
"""

from collections.abc import Iterable

from allhands.triage.blocks import Event
from allhands.triage.gather import Facts
from allhands.triage.marks import Note
from allhands.triage.secondary import of_launcher

HOOKS = frozenset({"hook", "waiting_hook"})
ABORTED = frozenset({"abort", "mpich_abort"})
NEAR_LINES = 12  # behind a traceback, in which a hook or MPI names its rank


def name_the_ranks(facts: Facts) -> None:
    """Fill the rank of events without one, where each has a line beside it that names another."""
    events = [e for e in facts.events if e.rank is None and e.kind == "python" and e.chain]
    events = [e for e in events if not of_launcher(e)]
    ranks = [_rank_beside(event, facts.notes, events) for event in events]
    known = [e.rank for e in facts.events if e.rank is not None and e.kind == "python"]
    mixed = not all(e.frames for e in events)  # tracebacks that were written into each other
    if None in ranks or known or mixed or len(set(ranks)) < len(ranks):
        return
    for event, rank in zip(events, ranks, strict=True):
        event.rank = rank


def ranks_of_hooks(notes: Iterable[Note], error_class: str) -> list[int]:
    """Ranks whose hooks say that they raised; a hook that names another class does not count."""
    hooks = [n for n in notes if n.kind in HOOKS]
    said = [n for n in hooks if n.about.get("error", error_class).split(".")[-1] == error_class]
    return sorted({n.get("rank") for n in said})


def _rank_beside(event: Event, notes: list[Note], events: list[Event]) -> int | None:
    here = [n for n in notes if n.file == event.file and n.rank in (None, n.get("rank"))]
    for note in here:
        if note.kind == "waiting_hook" and note.number == event.first - 1:
            return note.get("rank")
    others = [e.last for e in events if e is not event and e.file == event.file]
    end = min((last for last in others if last > event.last), default=1 << 60)
    end = min(end, event.last + NEAR_LINES)
    kinds = HOOKS - {"waiting_hook"} | (ABORTED if len(events) == 1 else set())
    for note in here:
        if "Fatal error in" in note.text:
            continue  # an error that MPI found itself
        if note.kind in kinds and event.last < note.number <= end and "rank" in note.about:
            return note.get("rank")
    return None
