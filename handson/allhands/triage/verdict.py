"""What is the count of tracebacks worth: is the failure a matter of rank or device?

All ranks print it: no matter of rank. Some: it depends on the rank. But a launcher that ends the
job at the first failure leaves no time to the others (measured: 1 to 8 of 8 tracebacks of the same
fault), so that fewer than all may prove nothing: then the answer is None, with the experiment that
decides, unless other evidence decides.
"""

import re
from dataclasses import dataclass

from allhands.triage.conditions import Case
from allhands.triage.failure import Root
from allhands.triage.rule import Rule
from allhands.triage.secondary import of_launcher

SAME_EVERYWHERE = frozenset(
    {
        "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError",
        "NameError", "UnboundLocalError",
    }
)  # fmt: skip
CODE = frozenset({"AttributeError", "TypeError", "NotImplementedError", "KeyError"})
CALLS = re.compile(
    r"unexpected keyword argument|positional argument|required keyword|is not defined|has no "
    r"attribute|not callable|unrecognized arguments"
)
LONG_ENOUGH_S = 1.0  # for ranks with the same fault to print it before a hook's abort
WAITS = re.compile(r"wait|enter|all_?reduce|all_?gather|broadcast|barrier|alltoall", re.IGNORECASE)


@dataclass(frozen=True)
class Counted:
    """Ranks by what they printed of the root."""

    complete: tuple[int, ...]
    cut: tuple[int, ...]
    healthy: tuple[int, ...]
    silent: tuple[int, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.complete)} complete, {len(self.cut)} cut, {len(self.healthy)} without it, "
            f"{len(self.silent)} silent"
        )


def counted(case: Case) -> Counted:
    ranks, root = set(range(case.world.size)), case.root
    whole = {e.rank for e in root.events if e.complete and e.rank is not None}
    complete = whole or (set(root.ranks) if root.count >= len(root.ranks) else set())
    cut = (set(case.found.cut) | (set(root.ranks) - complete)) - complete
    silent = set(case.silent) - complete - cut
    healthy = ranks - complete - cut - silent
    return Counted(*(tuple(sorted(s)) for s in (complete, cut, healthy, silent)))


def victims(case: Case) -> set[int]:
    """Ranks that print consequences, and not the root."""
    found = {rank for other in case.found.secondary for rank in other.ranks}
    found |= {note.get("rank") for note in case.facts.notes if note.kind == "watchdog"}
    return found - set(case.root.ranks)


def patterns(case: Case) -> list[str]:
    """What the set of ranks shows beyond its size."""
    ranks, culprits, world = set(case.root.ranks), set(case.root.culprits), case.world
    size = world.size
    if not ranks or size < 2:
        return []
    found = []
    if size > 2 and ranks == set(range(1, size)):
        found.append("All but rank 0: process 0 or GPU 0 is special.")
    nodes = sorted(set(world.node_of.values()))
    for node in nodes:
        if len(nodes) > 1 and ranks == world.ranks_of(node) and len(ranks) < size:
            found.append(f"Exactly the ranks of node {node}: look at the node or its network.")
    local = {r for node in nodes for r in sorted(world.ranks_of(node))[1:]}
    if len(nodes) > 1 and len(world.node_of) == size and ranks == local:
        found.append("All but the first rank of each node: local rank 0 or its GPU is special.")
    lost = victims(case)
    if len(ranks) == 1 and size > 2 and len(lost) == size - 1:
        found.append(f"One rank failed, and the other {size - 1} only lost it.")
    if culprits and not culprits & ranks:
        found.append("Who prints it is not who caused it.")
    elif culprits < ranks and len(ranks) == size:
        found.append("All print it, and compare themselves: one side is the odd one out.")
    return found


def depends(case: Case, rule: Rule | None, count: Counted) -> tuple[bool | None, str]:
    """Is it a matter of rank (None: undetermined), and the sentences that say why."""
    root, size = case.root, case.world.size
    everyone = bool(root.ranks) and len(root.ranks) >= size
    said = rule.depends if rule is not None else None
    if root.kind == "none":
        return False, "No rank printed a failure that was not caught."
    about = sorted({r for event in root.events for r in event.about})
    if about and len(about) < size:
        return True, f"{_some(case, count)} The message says whose failure it is: rank {about}."
    if said == "some":
        said = not everyone
        if said:
            why = "The message itself names a device or a node."
            if root.kind == "signal":
                why = "The others ran on until the launcher ended them."
            return True, f"{_some(case, count)} {why}"
    if root.kind in {"hang", "stall"}:
        apart = ", ".join(map(str, root.culprits))
        return True, f"The ranks do not do the same: the others wait for rank {apart}."
    if said is True:
        return True, f"{_some(case, count)} What was found compares or singles out ranks."
    if said is False:
        return (
            False,
            f"{_some(case, count)} The cause is the same for all, whoever prints it.",
        )
    if everyone and root.kind == "secondary":
        return None, (
            f"All {size} ranks lost a peer: a consequence on every rank, so that counting says "
            f"nothing of the cause."
        )
    if size == 1 and case.world.aborted and not case.world.size_said and not _needs_no_rank(root):
        return None, (
            "One rank printed it, the job was aborted, and no line says how many ranks there were: "
            "undetermined."
        )
    if everyone or root.count >= size:
        return False, f"All {size} ranks printed the same: not a matter of rank or device."
    if root.kind == "secondary":
        return True, f"{_some(case, count)} It is a consequence: something happened elsewhere."
    if root.kind == "signal":
        return True, f"{_some(case, count)} The others ran on until the launcher ended them."
    return _exception(case, count, size)


def _some(case: Case, count: Counted) -> str:
    """How many ranks show the root, in the words that fit its kind."""
    size, root = case.world.size, case.root
    if root.kind == "signal":
        return f"The signal ended {max(root.count, len(root.ranks))} of {size} processes."
    if root.kind in {"time_limit", "cancelled"}:
        return f"No rank of {size} failed."
    if launchers_own(root):
        return "The launcher or its agent printed it, not a rank."
    if root.kind == "exception" and not root.ranks and not count.complete:
        return f"{root.count} complete cop{'ies' if root.count != 1 else 'y'} on {size} ranks."
    if root.kind == "singletons":
        return f"{root.count} of {size} tasks say so."
    return f"{len(count.complete)} of {size} ranks printed it whole ({count})."


def _exception(case: Case, count: Counted, size: int) -> tuple[bool | None, str]:
    root, some = case.root, _some(case, count)
    if launchers_own(root):
        return False, "The launcher or its agent failed, not a rank."
    if not root.ranks and not count.complete and not _needs_no_rank(root):
        return None, f"{some} Undetermined: the lines have no labels, and nothing names their rank."
    if len(count.complete) + len(count.cut) >= size and count.complete:
        return False, f"{some} Every rank began the same traceback: not a matter of rank."
    if victims(case):
        return True, f"{some} The others were in good health: they lost a peer afterwards."
    if _others_go_on(case, count):
        return True, f"{some} The others had come further, and waited."
    if not case.world.aborted:
        return True, f"{some} Nobody ended the job early, so the others did not fail."
    waited_s = waited(case)
    if waited_s >= LONG_ENOUGH_S:
        return True, (
            f"{some} The abort came {waited_s:g} s after the error, time enough for the others to "
            f"print theirs, and they did not."
        )
    if _needs_no_rank(root) and not _pattern(case):
        return False, f"{some} The launcher ended the others, but this error needs no rank."
    began = len(count.complete) + len(count.cut)
    if began == 1 and size > 2 and case.world.launcher.startswith("torchrun"):
        return True, f"{some} torchrun leaves the others time to print, and they did not."
    several = began >= 2 and not _pattern(case)
    if several and (root.error_class in CODE or 2 * began > size or _identical(root)):
        return False, (
            f"{some} The launcher ended the others too early; the same line failed with the same "
            f"words on several ranks without a pattern, so it is probably no matter of rank."
        )
    return None, (
        f"{some} Undetermined: the launcher ended the job at the first failure, and the others may "
        f"have had no time to print theirs."
    )


def launchers_own(root: Root) -> bool:
    """Did the launcher or its agent raise it, and no rank?"""
    return root.kind == "exception" and not root.ranks and all(map(of_launcher, root.events))


def waited(case: Case) -> float:
    """Seconds between a failing rank's error and its abort, as its hook says; 0 if none says it."""
    hooks = [n for n in case.facts.notes if n.kind == "waiting_hook"]
    said = [n.about["wait"] for n in hooks if n.get("rank") in case.root.ranks]
    return max((float(s) for s in said if re.fullmatch(r"\d+(?:\.\d+)?", s)), default=0.0)


def _needs_no_rank(root: Root) -> bool:
    """Is it an error of the program's text, the same wherever it runs?"""
    return root.error_class in SAME_EVERYWHERE or CALLS.search(root.message) is not None


def _identical(root: Root) -> bool:
    """Do all copies say the very same, names and data included?"""
    return len({raised.message for e in root.events for raised in e.chain[:1]}) == 1


def _pattern(case: Case) -> bool:
    """Do the failing ranks form a pattern: all but rank 0, or one node's?"""
    ranks = set(case.root.ranks)
    nodes = {case.world.node_of.get(r) for r in ranks}
    if ranks == set(range(1, case.world.size)):
        return True
    alone = len(nodes) == 1 and None not in nodes
    return (
        alone
        and case.world.ranks_of(nodes.pop()) == ranks
        and len(set(case.world.node_of.values())) > 1
    )


def _others_go_on(case: Case, count: Counted) -> bool:
    seen, root = case.facts.ranks, case.root
    failing = [seen[r].progress for r in root.ranks if r in seen]
    far = max(((p.epoch or 0, p.step or 0) for p in failing), default=(0, 0))
    first = min((e.last for e in root.events), default=0)
    for rank in count.healthy:
        if rank not in seen:
            continue
        progress = seen[rank].progress
        if far > (0, 0) and (progress.epoch or 0, progress.step or 0) > far:
            return True
        if any(number > first and WAITS.search(text) for _, number, text in seen[rank].last):
            return True
    return False


def experiment(case: Case, dependent: bool | None, count: Counted) -> str:
    """The experiment that comes next by counting alone."""
    if dependent is None and case.root.kind == "secondary":
        return "One process cannot show it: run two on one node, then two nodes."
    if dependent is None and not case.facts.by_label:
        return (
            "Run again with -prepend-rank (Open MPI: --tag-output, srun: -l), so that each line "
            "says its rank, and with an abort that waits 10 s; or run one process: if it fails "
            "there too, it is no matter of rank."
        )
    if dependent is None:
        return (
            "Run again with an abort that waits 10 s, or without the except hook, and count again; "
            "or run one process: if it fails there too, it is no matter of rank."
        )
    if dependent:
        return (
            "One process; then two on one node; then two nodes: the first step that fails says "
            "whether it is the data of a rank, the number of ranks, or the network."
        )
    return "Reproduce with one process: it will fail there too. Debug it as a program for one GPU."
