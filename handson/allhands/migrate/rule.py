"""What is a rule of `allhands check`? A fault of data-parallel programs, as data with a matcher.

A matcher gets the facts of one script and yields spots: lines where the fault is. It stays short,
since the walk has done the work, and it keeps silent where something is not known. Severities:

    sure     wrong on more than one rank, whatever the data
    likely   usually wrong; a reason may exist that the text does not show
    look     right or wrong by what you want: worth one look
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from allhands.migrate import naming
from allhands.migrate.facts import Call, Facts, Setting

TORCH_RANKS = {
    *("init_process_group", "DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"),
    *("DistributedSampler", "all_reduce", "init_device_mesh", "get_world_size", "get_rank"),
}
HELPERS = re.compile(  # a function of another file that may make the process group
    r"(init|set_?up).*(dist|ddp|process|parallel|backend)|(dist|ddp).*(init|set_?up)|launch",
    re.IGNORECASE,
)
ONE_FIRST = re.compile(r"lock$|(?:^|_)first(?:_|$)", re.IGNORECASE)
SEVERITIES = ("sure", "likely", "look")


@dataclass(frozen=True)
class Spot:
    """A line where a rule matches; `detail` says more about this one."""

    line: int
    end_line: int
    detail: str = ""


@dataclass(frozen=True)
class Rule:
    """One fault. `source`: the page or the lab where it is explained."""

    rule_id: str
    severity: str
    frameworks: str  # "all", or some of "torch chainer horovod mpi"
    title: str
    why: str
    cure: str
    source: str
    spots: Callable[[Facts], Iterable[Spot]]
    serial: bool = False  # for programs that have no ranks yet


def at(what: Call | Setting, detail: str = "") -> Spot:
    """The spot of a call or a setting."""
    return Spot(what.line, getattr(what, "end_line", what.line), detail)


def asks_for_ranks(call: Call) -> bool:
    """Whether a call is made only if there are several ranks, or only if there are none."""
    words = (word for each in call.conditions for word in re.findall(r"[\w.]+", each.text))
    return any(naming.SIZE.search(word) or "distributed" in word for word in words)


def one_after_the_other(call: Call) -> bool:
    """Whether a `with` around a call lets the ranks in one by one, or one of them first."""
    return any(ONE_FIRST.search(name) for name in call.within)


def begun_elsewhere(facts: Facts) -> bool:
    """Whether a function of a file that is not here may make the process group, and set devices."""
    if facts.mentioned("init_process_group"):
        return False
    return any(HELPERS.search(name) for name in facts.project)


def frameworks(facts: Facts) -> set[str]:
    """What makes this project parallel: torch, chainer, horovod, mpi. Empty: it has no ranks."""
    found = set()
    if facts.uses("torch") and facts.mentioned(*TORCH_RANKS):
        found.add("torch")
    if facts.uses("chainermn") and facts.mentioned("create_communicator", "comm"):
        found.add("chainer")
    if facts.uses("horovod"):
        found.add("horovod")
    if facts.uses("mpi4py"):
        found.add("mpi")
    return found


def first(spots: Iterable[Spot]) -> Iterator[Spot]:
    """Only the first, and how many more there are."""
    lines = sorted({spot.line: spot for spot in spots}.values(), key=lambda spot: spot.line)
    if lines:
        more = f"and {len(lines) - 1} more like it" if len(lines) > 1 else ""
        yield Spot(
            lines[0].line, lines[0].end_line, "; ".join(filter(None, (lines[0].detail, more)))
        )
