"""`triage(paths)`: which ranks failed, with what, why, and what to try next?

`Triage.as_dict()` has the field names of the truth files beside the test logs: launcher,
world_size, root_error_class, root_ranks, culprit_ranks, silent_ranks, duplicate_count,
rank_dependent (None: undetermined), roots, secondary_errors, cause_id, cause, next_step.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from allhands.triage import roots as rooting
from allhands.triage.conditions import CONDITIONS, CULPRITS, Case
from allhands.triage.failure import Found, Root
from allhands.triage.gather import Facts, gather
from allhands.triage.rules import RULES, SLOW, Rule
from allhands.triage.verdict import (
    Counted,
    counted,
    depends,
    experiment,
    launchers_own,
    patterns,
)
from allhands.triage.waits import odd_ones
from allhands.triage.wording import filled, listed
from allhands.triage.world import World, world_of

DATA_ERRORS = "data_error_one_rank"
REPORTS = frozenset({"param_mismatch", "rank_missing_at_barrier"})
MOST_EVIDENCE = 12
JOB_END = re.compile(r"\[job\] .* ended with exit code (\d+)")  # written by cluster_jobs/lib/run.sh
FIELDS = (
    "launcher", "world_size", "root_error_class", "root_ranks", "culprit_ranks", "silent_ranks",
    "duplicate_count", "rank_dependent", "roots", "secondary_errors", "cause_id", "cause",
    "next_step", "verdict", "patterns", "message", "root_frame", "handled", "files", "lines",
)  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """A line that an answer stands on: `place` is file:line."""

    place: str
    rank: int | None
    text: str
    of: str  # root | cause | consequence | end


@dataclass(frozen=True)
class Triage:
    """The answer for one job's logs."""

    launcher: str
    world_size: int
    root_error_class: str
    root_ranks: tuple[int, ...]
    culprit_ranks: tuple[int, ...]
    silent_ranks: tuple[int, ...]
    duplicate_count: int
    rank_dependent: bool | None
    roots: tuple[dict, ...]
    secondary_errors: tuple[str, ...]
    cause_id: str
    cause: str
    next_step: str
    verdict: str
    patterns: tuple[str, ...]
    count: Counted
    evidence: tuple[Evidence, ...]
    message: str
    root_frame: str | None
    handled: int
    files: tuple[str, ...]
    lines: int
    facts: Facts
    world: World
    found: Found

    @property
    def failed(self) -> bool:
        return self.root_error_class != "None"

    def as_dict(self) -> dict:
        """The answer as plain data, for JSON."""
        plain = {name: getattr(self, name) for name in FIELDS}
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}
        plain["counted"] = {
            name: list(getattr(self.count, name))
            for name in ("complete", "cut", "healthy", "silent")
        }
        plain["evidence"] = [
            {"place": e.place, "rank": e.rank, "text": e.text, "of": e.of} for e in self.evidence
        ]
        return plain


def triage(paths: Sequence[Path]) -> Triage:
    """Read the logs of one job (one file, or one a rank) and answer.

    Raises read.UnreadableLog, whose text is a sentence, for a file that is no log.
    """
    facts = gather([Path(path) for path in paths])
    world = world_of(facts)
    found = rooting.find(facts, world)
    root = found.roots[0] if found.roots else Root("none", "None")
    world.size = max(world.size, 1 + max(root.ranks, default=-1))
    case = Case(facts, world, found, root, tuple(_silent(facts, world, root)))
    rule, lines = _rule(case)
    if rule is not None:
        root.culprits = sorted(CULPRITS[rule.culprits](case))
    about = sorted({r for event in root.events for r in event.about})
    if about and len(about) < world.size:
        root.culprits = about
    if rule is not None and rule.cause_id in REPORTS and _only_reports(root):
        spoke = {e.rank for e in facts.events if e.rank is not None and e.chain}
        silent = tuple(r for r in range(world.size) if r not in spoke)
        case = Case(facts, world, found, root, silent)
    count = counted(case)
    dependent, verdict = depends(case, rule, count)
    cause_id, cause, next_step = _cause(case, rule, dependent)
    if rule is None or dependent is None:
        step = experiment(case, dependent, count)
        next_step = f"{step} {next_step}".strip() if root.kind != "none" else next_step
    return Triage(
        launcher=world.launcher,
        world_size=world.size,
        root_error_class=root.error_class,
        root_ranks=tuple(root.ranks),
        culprit_ranks=tuple(root.culprits),
        silent_ranks=case.silent,
        duplicate_count=root.count,
        rank_dependent=dependent,
        roots=tuple(_root(r) for r in found.roots),
        secondary_errors=tuple(_consequence(r) for r in found.secondary) + _ends(facts, root),
        cause_id=cause_id,
        cause=filled(cause, case),
        next_step=filled(next_step, case),
        verdict=verdict,
        patterns=tuple(patterns(case)),
        count=count,
        evidence=tuple(_evidence(case, lines)),
        message=root.message,
        root_frame="{}:{} in {}".format(*root.frame) if root.frame else None,
        handled=len(found.handled),
        files=tuple(str(path) for path in facts.files),
        lines=facts.lines,
        facts=facts,
        world=world,
        found=found,
    )


def _only_reports(root: Root) -> bool:
    """Does a single rank report what others did?"""
    return len(root.ranks) == 1 and not set(root.ranks) & set(root.culprits)


def _silent(facts: Facts, world: World, root: Root) -> list[int]:
    """Ranks of which the log holds no line."""
    if root.kind == "none":
        return []
    spoke = {r for r, seen in facts.ranks.items() if seen.lines}
    spoke |= {e.rank for e in facts.events if e.rank is not None}
    spoke |= {world.rank_of_pid.get(n.get("pid")) for n in facts.notes if n.kind == "nccl"}
    if root.kind == "exception" or any(n.kind in {"segv", "crash"} for n in facts.notes):
        spoke |= set(root.ranks)
    return [rank for rank in range(world.size) if rank not in spoke]


def _rule(case: Case) -> tuple[Rule | None, list]:
    """The first rule that fits, and the lines that made it fit."""
    lines = case.facts.all_lines()
    if case.root.kind == "none":
        found = [line for line in lines if SLOW.anywhere.search(line.text)]
        return (SLOW, found) if found else (None, [])
    for rule in RULES:
        if case.root.kind not in rule.kinds:
            continue
        if rule.message is not None and not rule.message.search(case.root.text):
            continue
        found = []
        if rule.anywhere is not None:
            found = [line for line in lines if rule.anywhere.search(line.text)]
            if not found:
                continue
        if rule.when is not None and not CONDITIONS[rule.when](case):
            continue
        return rule, found
    return None, []


def _cause(case: Case, rule: Rule | None, dependent: bool | None) -> tuple[str, str, str]:
    root = case.root
    if rule is not None:
        return rule.cause_id, rule.cause, rule.next_step
    if root.kind == "none":
        said = (
            "No error was found: every alarming line is a warning, or an exception that was caught."
        )
        if _is_no_log(case.facts):
            said = "Is this a job's log? There is no label, no rank and no traceback in it."
            return "no_error", said, "Give the file that holds what the job's ranks wrote."
        codes = [found[1] for line in case.facts.all_lines() if (found := JOB_END.match(line.text))]
        if codes and codes[-1] != "0":
            said = f"The job ended with exit code {codes[-1]}, and its log has no error."
            step = "Look at what the program wrote last, here and in its run folder."
            return "no_error", said, step
        apart = [] if case.world.ended_well else odd_ones(case.facts, case.world)
        if not apart:
            return "no_error", said, "Nothing to debug."
        step = (
            f"Did the job end by itself? If it hung, look at rank {listed(apart)}: its last line "
            f"is not like the others'. py-spy dump --pid shows where a rank waits."
        )
        return "no_error", said, step
    if not dependent:
        said = "An ordinary bug in code that every rank runs: {error} at {place}."
        if launchers_own(root):
            said = "The launcher itself failed: {error}."
        elif dependent is None:
            said = "{error} at {place}: whether all ranks meet it is open."
            return "code_bug_undetermined", said, ""
        return "code_bug_all_ranks", said, ""
    if len(root.culprits) == 1:
        said = "Rank {culprits} alone met {error} at {place}: most likely a matter of its data."
        return DATA_ERRORS, said, "Open the data of rank {culprits} with one process."
    if set(root.ranks) == set(range(1, case.world.size)):
        said = "All ranks but rank 0 fail ({error} at {place}): rank 0 or GPU 0 is special."
        step = "Look for `if rank == 0`, cuda:0 and files that rank 0 alone makes."
        return "rank0_special", said, step
    return "error_on_some_ranks", "Ranks {culprits} met {error} at {place}.", ""


def _is_no_log(facts: Facts) -> bool:
    """Does nothing in the text come from a job, or from ranks?"""
    if any(line.text.startswith("[job] ") for line in facts.all_lines()):  # cluster_jobs/lib/run.sh
        return False
    ranks = facts.by_label or facts.ranks or facts.worlds or any(x.any for x in facts.labels)
    return not (ranks or facts.events or facts.bare or facts.notes or facts.words)


def _root(root: Root) -> dict:
    return {
        "error_class": root.error_class,
        "signature": root.message[:300],
        "ranks": root.ranks,
        "count": root.count,
        "normalised": root.normalised[:300],
        "chain": root.chain,
    }


def _consequence(root: Root) -> str:
    plural = "s" * (len(root.ranks) > 1)
    where = f" on rank{plural} {listed(root.ranks)}" if root.ranks else " (launcher)"
    return f"{root.error_class}{where}: {root.message[:160]}".rstrip(": ")


ENDS = {
    "abort": "MPI_ABORT by a rank or its except hook",
    "sigterm": "the launcher ended other processes",
    "cancelled": "the job was cancelled",
    "task_exit": "srun reports the tasks' exit codes",
    "ended": "the launcher reports a failed rank",
    "bad_end": "the launcher reports a failed rank (BAD TERMINATION)",
    "first_exit": "the launcher names the rank that ended first",
}


def _ends(facts: Facts, root: Root) -> tuple[str, ...]:
    """What launchers said at the end, and a warning where they name another rank."""
    kinds = dict.fromkeys(note.kind for note in facts.notes)
    said = [ENDS[kind] for kind in kinds if kind in ENDS]
    named = [n for n in facts.notes if n.kind in {"table", "table_rank"}]
    first = [b.get("rank") for a, b in pairwise(named) if a.kind == "table" != b.kind]
    if first and root.ranks and first[0] not in root.ranks:
        said.append(
            f"torchrun calls rank {first[0]} the first observed failure: by a clock of 1 s, and "
            f"of a process that only followed"
        )
    return tuple(said)


def _evidence(case: Case, lines: list) -> list[Evidence]:
    """Lines of the root on each rank, those of the rule, of consequences, and of the end."""

    def place(file: int, number: int) -> str:
        return f"{case.facts.files[file].name}:{number}"

    found = []
    ranks = {(e.file, n): e.rank for e in case.root.events for n, _ in e.lines}
    for file, number, text in list(dict.fromkeys(case.root.evidence))[:MOST_EVIDENCE]:
        found.append(Evidence(place(file, number), ranks.get((file, number)), text[:400], "root"))
    for line in lines[:4]:
        found.append(Evidence(place(line.file, line.number), line.rank, line.text[:400], "cause"))
    for other in case.found.secondary[:6]:
        for file, number, text in other.evidence[:2]:
            found.append(Evidence(place(file, number), None, text[:300], "consequence"))
    for note in [n for n in case.facts.notes if n.kind in ENDS][:4]:
        at = place(note.file, note.number)
        found.append(Evidence(at, note.rank, note.text.strip()[:300], "end"))
    return found
