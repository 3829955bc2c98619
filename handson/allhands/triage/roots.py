"""What failed first, and what only followed?

The order of preference (reference: public reports, in which the loudest error is seldom the first):
the earliest exception that is no consequence; a process killed by a signal; a report of missing
ranks; a time limit, read with the ranks' last lines; last of all a consequence alone.
"""

import re
from collections import Counter

from allhands.triage import ends, waits
from allhands.triage.blocks import Event, Raised
from allhands.triage.failure import Found, Root
from allhands.triage.gather import Facts
from allhands.triage.marks import Note
from allhands.triage.normal import normalised, own_frame
from allhands.triage.secondary import TEXTS, of_launcher, root_of
from allhands.triage.unlabelled import HOOKS, ranks_of_hooks
from allhands.triage.world import World

MOST_GROUPS = 100  # of different messages that are compared with each other
MAY_FOLLOW = re.compile(r"nccl|socket|connection|connect to|timed out", re.IGNORECASE)


def find(facts: Facts, world: World) -> Found:
    """Roots in the order of preference; `roots` is empty when nothing failed."""
    handled = _handled(facts, world)
    caught = set(map(id, handled))
    bare = [e for e in facts.bare.values() if not e.after and root_of(e) is not None]
    events = [e for e in facts.events if id(e) not in caught]
    cut = sorted({e.rank for e in events if not e.chain and e.rank is not None})
    whole = [e for e in events if e.chain]
    first = [e for e in whole if root_of(e) is not None and not _is_echo(e)]
    chosen = set(map(id, first))
    rest = [e for e in whole if id(e) not in chosen]
    first += [e for e in bare if _is_copy(e, first)]
    if not first and world.failed:
        first = bare
    roots = _groups(first, root_of, world, facts.notes)
    secondary = _groups(rest, lambda e: e.chain[0], world, facts.notes)
    roots = ends.singletons(facts, world) + roots
    signals = ends.signals(facts, world)
    if signals and roots and all(MAY_FOLLOW.search(root.message) for root in roots):
        secondary, roots = roots + secondary, signals
    elif roots:
        own = {rank for root in roots for rank in root.ranks}
        secondary += [s for s in signals if not set(s.ranks) <= own or not s.ranks]
    else:
        roots = signals
    for more in (waits.stalls, waits.hang_or_limit):
        found = more(facts, world, roots)
        if roots:
            secondary += found
        else:
            roots = found
    if not roots:
        roots = ends.grader(facts) or waits.watchdog(facts, world) or ends.device(facts)
        roots = roots or _as_roots(secondary) or _cut(events)
        secondary = [s for s in secondary if s not in roots]
    if not roots and world.failed:
        roots = ends.aborted(facts, world) or ends.exits(facts, world)
    return Found(roots, secondary, handled, cut)


def _is_copy(bare: Event, events: list[Event]) -> bool:
    """Does a last line without its traceback say what another rank raised?"""
    if bare.rank is None or any(e.rank == bare.rank for e in events):
        return False
    said = bare.chain[0]
    return any(
        said.error_class == r.error_class and normalised(said.message) == normalised(r.message)
        for e in events
        for r in e.chain
    )


def _cut(events: list[Event]) -> list[Root]:
    """Tracebacks of which none came to its last line."""
    cut = [e for e in events if not e.chain]
    if not cut:
        return []
    ranks = sorted({e.rank for e in cut if e.rank is not None})
    said = "tracebacks that end before their last line"
    root = Root("exit", "Unknown", said, ranks, list(ranks), 0, text=said, normalised=said)
    root.events = cut
    root.frame = own_frame(cut[0].frames)
    root.evidence = [(e.file, *e.lines[-1]) for e in cut[:12] if e.lines]
    return [root]


def _handled(facts: Facts, world: World) -> list[Event]:
    """Caught exceptions: their rank went on, in a job that ended well or failed elsewhere."""
    ranks = [e for e in facts.events if not of_launcher(e)]
    if world.ended_well:
        return ranks
    last = {event.rank: event.first for event in ranks}
    hooks = {n.get("rank") for n in facts.notes if n.kind in HOOKS}
    fatal = [e for e in ranks if e.chain and not e.after and root_of(e)]
    elsewhere, copies = bool(fatal), set(map(_said, fatal))
    ended = set(world.code_of) | set(world.signal_of)

    def caught(event: Event) -> bool:
        went_on = event.after or (event.after_apart and not world.failed)
        if event.rank is None or not went_on or event.rank in hooks:
            return False
        if _said(event) in copies:
            return False
        if event.rank in ended:
            return last[event.rank] > event.first
        return elsewhere or not world.failed

    return [event for event in ranks if caught(event)]


def _said(event: Event) -> tuple:
    """What an event says and where, the same on all ranks that fail alike."""
    said = [(r.error_class, normalised(r.message)) for r in event.chain]
    return (*said, own_frame(event.frames))


def _is_echo(event: Event) -> bool:
    """A launcher's own exception about its ranks."""
    last = event.chain[-1]
    return of_launcher(event) and (last.error_class == "ChildFailedError" or "rank" in last.message)


def _groups(events: list[Event], pick, world: World, notes: list[Note]) -> list[Root]:
    """Events that say the same, grouped; the group that begins first comes first."""
    groups: dict[tuple, list[tuple[Event, Raised]]] = {}
    for event in sorted(events, key=lambda e: (e.file, e.first)):
        raised = pick(event)
        frame = own_frame(event.frames) if event.rank is not None else None
        where = frame[:2] if frame else None
        key = (raised.error_class, normalised(raised.message), where)
        groups.setdefault(key, []).append((event, raised))
    return [_exception(pairs, world, notes) for pairs in _joined(groups)]


def _joined(groups: dict[tuple, list]) -> list[list]:
    """Groups of one class whose messages differ in little more than names are one."""
    joined: list[tuple[tuple, list]] = []
    for key, pairs in groups.items():
        for other, kept in joined[:MOST_GROUPS]:
            same = other[0] == key[0] and other[2] == key[2] and _alike(other[1], key[1])
            if same:
                kept += pairs
                break
        else:
            joined.append((key, list(pairs)))
    return [pairs for _, pairs in joined]


def _alike(a: str, b: str) -> bool:
    if a == b:
        return True
    strip = re.compile(r"'[^']*'|\"[^\"]*\"|<\w+>|\d+")
    one, two = strip.sub("", a).split(), strip.sub("", b).split()
    shared = sum((Counter(one) & Counter(two)).values())
    return max(len(one), len(two)) > 3 and shared >= 0.7 * max(len(one), len(two))


def _exception(pairs: list[tuple[Event, Raised]], world: World, notes: list[Note]) -> Root:
    event, raised = pairs[0]
    labelled = sorted({e.rank for e, _ in pairs if e.rank is not None})
    whole = {e.rank for e, _ in pairs if e.complete and e.rank is not None}
    shared = [e for e, _ in pairs if e.rank is None]
    agent = bool(shared) and all(of_launcher(e) for e in shared)
    ranks, count = labelled, len(whole)
    if shared and not labelled:
        count = sum(e.complete for e in shared)
        ranks = [] if agent else _ranks_of_shared(shared, count, world)
        told = ranks_of_hooks(notes, raised.error_class)
        ranks = told if not agent and len(told) == count < world.size else ranks
    root = Root("exception", raised.error_class, raised.message, ranks, list(ranks), count)
    root.text = "\n".join(dict.fromkeys(e.text for e, _ in pairs))[:20_000]
    root.normalised = f"{raised.error_class}: {normalised(raised.message)}"
    root.chain = [r.error_class for r in event.chain]
    root.events = [e for e, _ in pairs]
    for e, r in pairs:
        last = next((n for n, t in reversed(e.lines) if r.error_class in t), e.last)
        root.evidence.append((e.file, last, f"{r.error_class}: {r.message}"))
    root.frame = own_frame(event.frames)
    return root


def _ranks_of_shared(events: list[Event], count: int, world: World) -> list[int]:
    """Ranks of tracebacks without labels: all when there are as many, else what launchers say."""
    if count >= world.size:
        return list(range(world.size))
    if count == 1 and not world.code_of and world.first_exit is not None:
        return [world.first_exit]
    named = sorted(r for r, code in world.code_of.items() if code == 1)
    for ranks in (named, sorted(world.warned)):
        if len(ranks) == count:
            return ranks
    return [r for e in events for r in e.about] or (named if len(named) < world.size else [])


def _as_roots(secondary: list[Root]) -> list[Root]:
    """Consequences alone, those of ranks before the launcher's."""
    real = [s for s in secondary if s.error_class != "ChildFailedError"]
    real.sort(key=lambda s: TEXTS.search(s.message) is not None)  # a victim by its own words: last
    of_ranks = [s for s in real if s.ranks] or real
    for root in of_ranks:
        root.kind = "secondary"
    return of_ranks
