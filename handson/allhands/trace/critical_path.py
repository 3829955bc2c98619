"""How long would a parallel run take if each rank had a core for itself? From its CPU seconds.

On a busy machine wall-clock times say who else was there. The CPU seconds of a rank change less:
they grow only where others use its caches, the memory, or the other half of its core.
A step is over when its slowest rank is through, so a run takes at least, summed over its steps, the
CPU seconds of the slowest rank: the critical path. What a rank does in a collective is left out,
because waiting burns CPU seconds too; the time of a quiet transfer is added instead. The threads of
a rank count together: they share its one core.

Conventions: events of all ranks; the CPU events have their rank's CPU seconds as clock (start_s and
end_s), the wall events one clock for all ranks.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from allhands.trace.events import Event

COLLECTIVE = "communicate"


def critical_path_s(events: Iterable[Event], transfer_s: float = 0.0) -> float:
    """Return the length of the critical path in seconds.

    events: the CPU events of all ranks. Per step: the CPU seconds of the rank that has most, all
    events but `communicate`; then `transfer_s` for the exchange of a step. Summed over the steps.
    """
    spent_s: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for event in events:
        if event.what != COLLECTIVE:
            spent_s[event.step][event.rank] += event.duration_s
    return sum(max(by_rank.values()) + transfer_s for by_rank in spent_s.values())


def transfer_s(events: Sequence[Event], names: Sequence[str] = ("all", "probe")) -> float:
    """Return the time of a quiet exchange: the shortest `communicate` of these names; 0 if none.

    events: the wall events of all ranks. The last rank to come does not wait for others, so the
    shortest one is the nearest to the transfer itself. `probe`: the same exchange, several times in
    a row, so that also on a busy machine some find all ranks at work.
    """
    times_s = [e.duration_s for e in events if e.what == COLLECTIVE and e.name in names]
    return min(times_s, default=0.0)
