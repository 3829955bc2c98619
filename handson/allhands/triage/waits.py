"""Failures in which ranks wait: reports of missing ranks, hangs, time limits, watchdogs.

A hang is told from a slow run by the ranks' last lines: whoever stands apart is the one to look at.
"""

import re
from collections import Counter
from collections.abc import Iterable

from allhands.triage.failure import Root
from allhands.triage.gather import Facts
from allhands.triage.marks import numbers
from allhands.triage.normal import normalised
from allhands.triage.secondary import of_launcher
from allhands.triage.world import World

NEAR_STEPS = 3  # ranks whose steps differ by no more go on together


def stalls(facts: Facts, world: World, roots: list[Root]) -> list[Root]:
    """Reports that some ranks wait for others: Horovod's stall check, monitored barriers."""
    notes = [n for n in facts.notes if n.kind == "stall"]
    if not notes and any(n.kind == "stall_text" for n in facts.notes):
        notes = [n for n in facts.notes if n.kind == "stall_rank"]
    if not notes:
        return []
    missing = sorted({r for n in notes for r in numbers(n.about["ranks"])})
    writers = sorted({n.rank for n in notes if n.rank is not None}) or missing
    said = f"[missing ranks: {', '.join(map(str, missing))}]"
    root = Root("stall", "HorovodStall", said, writers, missing, 1, text=said, normalised=said)
    root.evidence = [(n.file, n.number, n.text.strip()[:300]) for n in notes]
    return [root]


def hang_or_limit(facts: Facts, world: World, roots: list[Root]) -> list[Root]:
    """A scheduler's or a user's end of the job: was it hanging, or only not ready?"""
    limit = [n for n in facts.notes if n.kind == "time_limit"]
    notes = limit or [n for n in facts.notes if n.kind == "cancelled"]
    if not notes or (roots and not limit):
        return []
    evidence = [(n.file, n.number, n.text.strip()) for n in notes]
    odd = [] if roots else odd_ones(facts, world, before=(notes[0].file, notes[0].number))
    if odd:
        last = [facts.ranks[r].last[-1] for r in odd if r in facts.ranks and facts.ranks[r].last]
        root = Root("hang", "Hang", "the ranks' last lines differ", odd, list(odd), len(odd))
        root.evidence = last + evidence
    elif limit:
        root = Root("time_limit", "TimeLimit", limit[0].text.strip(), count=0)
        root.evidence = evidence
    else:
        return []
    root.text = "\n".join(text for _, _, text in root.evidence)
    root.normalised = root.message
    return [root]


END_OF_LOG = (1 << 60, 0)


def odd_ones(facts: Facts, world: World, before: tuple[int, int] = END_OF_LOG) -> list[int]:
    """The ranks whose last line or step stands apart from the others'; [] if none does.

    `before` is the file and line of the end from outside: what ranks say of it does not count.
    """
    seen = {r: s for r, s in facts.ranks.items() if s.last and r < world.size}
    last = {r: _last_line(s.last, before) for r, s in seen.items()}
    seen = {r: s for r, s in seen.items() if last[r]}
    if len(seen) < 2:
        return []
    shapes = {r: _shape(last[r]) for r in seen}
    steps = {r: (s.progress.epoch or 0, s.progress.step or 0) for r, s in seen.items()}
    moving = {r: step for r, step in steps.items() if step != (0, 0)}
    totals = Counter(s.progress.of for s in seen.values() if s.progress.of)
    if len(moving) == len(seen) and len(totals) <= 1:
        epochs = {e for e, _ in moving.values()}
        counts = [s for _, s in moving.values()]
        if len(epochs) == 1 and max(counts) - min(counts) <= NEAR_STEPS:
            return _minority(shapes, strict=True)
    return _minority(shapes, strict=False) or (_behind(moving) if len(moving) == len(seen) else [])


def _last_line(lines: Iterable[tuple[int, int, str]], before: tuple[int, int]) -> str:
    said = [t for file, number, t in lines if file != before[0] or number < before[1]]
    return said[-1] if said else ""


def _shape(text: str) -> str:
    return re.sub(r"[\d.e+-]+", "#", text).strip()


def _minority(said: dict[int, str], strict: bool) -> list[int]:
    counts = Counter(said.values()).most_common()
    if len(counts) < 2 or counts[0][1] == counts[1][1]:
        return []
    odd = sorted(r for r, text in said.items() if text != counts[0][0])
    return odd if len(odd) * (4 if strict else 2) <= len(said) else []


def _behind(moving: dict[int, tuple[int, int]]) -> list[int]:
    """Ranks that stopped earlier than most."""
    most = Counter(moving.values()).most_common(1)[0]
    behind = sorted(r for r, step in moving.items() if step < most[0])
    return behind if most[1] > len(moving) / 2 else []


def watchdog(facts: Facts, world: World) -> list[Root]:
    """Time-outs of collectives alone: the rank that is behind, or silent, is the one to look at."""
    notes = [n for n in facts.notes if n.kind == "watchdog"]
    if not notes:
        return []
    ranks = sorted({n.get("rank") for n in notes})
    works = {n.get("rank"): (n.get("seq"), n.about["op"]) for n in notes}
    silent = [r for r in range(world.size) if r not in works]
    most = Counter(works.values()).most_common(1)[0][0]
    behind = sorted(r for r, (seq, _) in works.items() if seq < most[0])
    odd = sorted(r for r, work in works.items() if work != most)
    root = Root("hang", "Hang", "a collective timed out", ranks, silent or behind or odd or ranks)
    classes = [e.chain[0].error_class for e in facts.events if e.chain and not of_launcher(e)]
    if classes:
        root.error_class = Counter(classes).most_common(1)[0][0]
    root.count = len(ranks)
    root.text = "\n".join(n.text for n in notes)[:20_000]
    root.normalised = normalised(notes[0].text)
    root.evidence = [(n.file, n.number, n.text.strip()[:400]) for n in notes]
    return [root]
