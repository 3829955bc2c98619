"""Failures that are no exception of a rank: processes that a signal ended, jobs of one process
each, a device, a grader's limit, and bare exit codes.
"""

import re
from collections import Counter

from allhands.triage.failure import Root
from allhands.triage.gather import Facts
from allhands.triage.marks import Note
from allhands.triage.normal import normalised
from allhands.triage.world import SIGNALS, World


def singletons(facts: Facts, world: World) -> list[Root]:
    notes = [n for n in facts.notes if n.kind == "singleton"]
    ranks = sorted({n.rank for n in notes if n.rank is not None})
    if not facts.by_label:
        most = Counter(normalised(n.text) for n in notes).most_common(1)
        copies = most[0][1] if most else 0
        ranks = list(range(world.size)) if copies > 1 and copies >= world.size > 1 else []
    if len(ranks) < 2 or len(ranks) < world.size:
        return []
    evidence = [(n.file, n.number, n.text.strip()) for n in notes]
    return [
        Root(
            "singletons", "MPISingletons", "rank 0 of 1", ranks, list(ranks), len(ranks),
            text="rank 0 of 1", normalised="rank 0 of 1", evidence=evidence,
        )
    ]  # fmt: skip


TELL_OF_SIGNALS = frozenset(
    {
        "signal", "noticed", "table_code", "failed", "task_exit", "process_exit", "oom_kill",
        "bad_signal",
    }
)  # fmt: skip
FATAL = (9, 11, 7, 4, 8, 10)


def signals(facts: Facts, world: World) -> list[Root]:
    """Processes that a signal ended: their own crash reports, else a launcher's table."""
    roots = []
    crashes: dict[int, list[Note]] = {}
    for note in facts.notes:
        if note.kind == "segv" and (note.get("signal") or 11) != 15:
            crashes.setdefault(note.get("signal") or 11, []).append(note)
    for signal, notes in crashes.items():
        if signal == 6 and len(crashes) > 1:
            continue
        keys = list(dict.fromkeys(n.get("pid") if n.get("pid") else n.rank for n in notes))
        ranks = [world.rank_of_pid.get(n.get("pid"), n.rank) for n in notes]
        ranks = sorted({r for r in ranks if r is not None})
        if len(keys) > len(ranks):
            ranks = list(range(world.size)) if len(keys) >= world.size else ranks
        roots.append(_signal(signal, ranks, len(keys), notes))
    for signal in FATAL:
        ranks = sorted(r for r, s in world.signal_of.items() if s == signal)
        if ranks and signal not in crashes:
            notes = [n for n in facts.notes if n.kind in TELL_OF_SIGNALS]
            roots.append(_signal(signal, ranks, len(ranks), notes))
    if not roots:
        notes = [n for n in facts.notes if n.kind in {"bad_signal", "bad_code"}]
        signal = next((n.get("signal") for n in notes if n.get("signal")), None)
        if signal is None:
            code = next((n.get("code") for n in notes if n.get("code")), 0)
            signal = code if code in FATAL else code - 128 if code > 128 else None
        if signal in FATAL:
            named = [n.get("rank") for n in facts.notes if n.kind == "bad_pid"]
            pids = [n.get("pid") for n in facts.notes if n.kind == "bad_pid"]
            named += [world.rank_of_pid[p] for p in pids if p in world.rank_of_pid]
            ranks = sorted({r for r in named if r is not None})
            roots.append(_signal(signal, ranks, max(1, len(ranks)), notes))
    if not roots and any(n.kind == "oom_kill" for n in facts.notes):
        notes = [n for n in facts.notes if n.kind == "oom_kill"]
        killed = {world.rank_of_pid.get(n.get("pid")) for n in notes if n.get("pid")} - {None}
        roots.append(_signal(9, sorted(killed), max(1, len(killed)), notes))
    return roots


def aborted(facts: Facts, world: World) -> list[Root]:
    """Processes that ended themselves (signal 6) without a message that an exception has."""
    told = {"assertion", "bad_signal", "bad_code", *TELL_OF_SIGNALS}
    notes = [n for n in facts.notes if n.kind in told]
    said = [n for n in notes if n.kind == "assertion"]
    own = {rank for rank, signal in world.signal_of.items() if signal == 6}
    ranks = sorted((own | {n.rank for n in said}) - {None})
    if not ranks and not any(n.get("signal") == 6 or n.get("code") in (6, 134) for n in notes):
        return []
    root = _signal(6, ranks, max(1, len(ranks)), said + [n for n in notes if n not in said])
    if said:
        root.message = said[0].text.strip()[:300]
        root.text = f"{root.text}\n{root.message}"
    return [root]


def _signal(signal: int, ranks: list[int], count: int, notes: list[Note]) -> Root:
    name = SIGNALS.get(signal, f"signal {signal}")
    root = Root("signal", name, f"ended by signal {signal} ({name})", ranks, list(ranks), count)
    root.text = root.normalised = root.message
    root.evidence = [(n.file, n.number, n.text.strip()) for n in notes][:20]
    return root


def device(facts: Facts) -> list[Root]:
    notes = [n for n in facts.notes if n.kind == "xid"]
    if not notes:
        return []
    ranks = sorted({n.rank for n in notes if n.rank is not None})
    root = Root("signal", "GPUError", notes[0].text.strip(), ranks, list(ranks), max(1, len(ranks)))
    root.text = root.normalised = root.message
    root.evidence = [(n.file, n.number, n.text.strip()) for n in notes]
    return [root]


def grader(facts: Facts) -> list[Root]:
    """A grader's time limit for a cell; what ranks print when they are interrupted follows."""
    notes = [n for n in facts.notes if n.kind == "grader"]
    if not notes:
        return []
    said = notes[0].text.strip()
    named = [m[0] for n in notes if (m := re.search(r"\b[A-Z]\w*Timeout(?:Error)?\b", n.text))]
    name = named[0] if named else "TimeLimit"
    root = Root("exception", name, said, [], [], 1, text=said, normalised=normalised(said))
    root.evidence = [(n.file, n.number, n.text.strip()) for n in notes[:6]]
    return [root]


FROM_OUTSIDE = {"cancelled", "step_abort", "task_exit", "sigterm", "finished"}


def exits(facts: Facts, world: World) -> list[Root]:
    """Nothing but exit codes, or an end from outside."""
    ends = [n for n in facts.notes if n.kind not in {"pid", "nccl", "on_node", "bootstrap"}]
    evidence = [(n.file, n.number, n.text.strip()) for n in ends][:12]
    refused = [n for n in ends if n.kind == "not_started"]
    if refused:
        root = Root("exit", "LauncherError", refused[0].text.strip()[:300], count=1)
        root.text = root.normalised = f"LauncherError: {root.message}"
        root.evidence = [(n.file, n.number, n.text.strip()) for n in refused][:12]
        return [root]
    outside = {n.kind for n in ends} <= FROM_OUTSIDE and not world.code_of
    if outside and any(n.kind == "cancelled" for n in ends):
        said = "cancelled by a user or the scheduler"
        root = Root("cancelled", "Cancelled", said, text=said, normalised=said)
        root.evidence = evidence
        return [root]
    ranks = sorted(world.code_of)
    codes = ", ".join(map(str, sorted(set(world.code_of.values())))) or "not 0"
    said = f"exit code {codes}, and no message that says why"
    root = Root("exit", "ExitCode", said, [], ranks, len(ranks), text=said, normalised=said)
    root.evidence = evidence
    return [root]
