"""What do the known systems merge? Their rules, as plans.

Conventions as in plan.py. None of these rules finds the optimum always; optimal.py does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from allhands.mgwfbp.cost import Cost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan

MIB = 2**20
DDP_CAPS_BYTES = (1 * MIB, 25 * MIB)  # torch.nn.parallel.DistributedDataParallel: the first, others
HOROVOD_THRESHOLD_BYTES = 64 * MIB
HOROVOD_CYCLE_S = 1e-3


def by_size(gradients: Gradients, caps_bytes: Sequence[float] = DDP_CAPS_BYTES) -> Plan:
    """PyTorch DDP: close a bucket as soon as it holds its cap or more.

    The first bucket has the first cap, and so on; the last cap repeats. Times play no part.
    """
    if not caps_bytes or not all(cap > 0 for cap in caps_bytes):
        raise ValueError(f"A bucket needs a cap of more than 0 bytes; saw {list(caps_bytes)}.")
    ends, held = [], 0.0
    for i, n_bytes in enumerate(gradients.n_bytes):
        held += n_bytes
        if held >= caps_bytes[min(len(ends), len(caps_bytes) - 1)]:
            ends.append(i)
            held = 0.0
    if not ends or ends[-1] != len(gradients) - 1:
        ends.append(len(gradients) - 1)
    return Plan.from_ends(ends)


@dataclass(frozen=True)
class Launches:
    """A plan whose groups may not start before `not_before_s`, (groups,) seconds."""

    plan: Plan
    not_before_s: tuple[float, ...]


def horovod(
    gradients: Gradients,
    cost: Cost,
    *,
    threshold_bytes: float = HOROVOD_THRESHOLD_BYTES,
    cycle_s: float = HOROVOD_CYCLE_S,
) -> Launches:
    """Horovod's tensor fusion: at a tick, send everything that is ready, up to the threshold.

    A background loop wakes at multiples of `cycle_s` (0: at any time). When the link is free and
    something is ready, the next tick takes the ready gradients in order, as many as fit into
    `threshold_bytes` (one at least). Blocking operations: nothing is queued behind a transfer.
    """
    if not (cycle_s >= 0 and threshold_bytes > 0):
        raise ValueError(
            f"Horovod needs a cycle of 0 s or more and a threshold above 0 bytes; saw {cycle_s} s "
            f"and {threshold_bytes} bytes."
        )
    ready_s, before = gradients.ready_s, gradients.bytes_before
    ends, ticks_s = [], []
    first, free_s = 0, 0.0
    while first < len(gradients):
        start_s = max(free_s, ready_s[first])
        if cycle_s > 0:
            start_s = max(start_s, math.ceil(start_s / cycle_s) * cycle_s)
        last = first
        while (
            last + 1 < len(gradients)
            and ready_s[last + 1] <= start_s
            and before[last + 2] - before[first] <= threshold_bytes
        ):
            last += 1
        ends.append(last)
        ticks_s.append(start_s)
        free_s = start_s + cost(before[last + 1] - before[first])
        first = last + 1
    return Launches(Plan.from_ends(ends), tuple(ticks_s))


def send_when_ready(gradients: Gradients, cost: Cost) -> Plan:
    """Work-conserving: whenever the link is free, send all that is ready in one message.

    Needs no profile of the backward pass: it is Horovod's rule without cycle and threshold.
    """
    return horovod(gradients, cost, threshold_bytes=math.inf, cycle_s=0.0).plan


def mg_wfbp(gradients: Gradients, cost: Cost) -> Plan:
    """MG-WFBP as published (Shi, Chu and Li, INFOCOM 2019), in one pass, O(L).

    Merge a gradient with the next one if the next one arrives less than one start-up after the
    moment at which this one could start. The rule looks one gradient ahead and is not optimal: with
    startup_s=5, s_per_byte=1, ready at 0, 4, 9 and sizes 4, 1, 1 it ends at 20; the optimum is 16.
    It is never worse than a single bucket, and so at most twice the optimum.
    """
    ready_s, before = gradients.ready_s, gradients.bytes_before
    startup_s, last = cost.startup_s, len(gradients) - 1
    ends, first, free_s = [], 0, 0.0
    for i, now_s in enumerate(ready_s):
        start_s = max(free_s, now_s)
        if i < last and ready_s[i + 1] - start_s < startup_s:
            continue
        ends.append(i)
        free_s = start_s + cost(before[i + 1] - before[first])
        first = i + 1
    return Plan.from_ends(ends)


def mg_wfbp_recomputed(gradients: Gradients, cost: Cost) -> Plan:
    """The same rule in its published form: all start times are computed again after each merge.

    O(L^2). It follows the authors' planner step by step (their test `ready < start + time` too,
    which the rule implies), so that tests and bench have something to compare `mg_wfbp` with.
    """
    n_bytes, ready_s = list(gradients.n_bytes), gradients.ready_s
    time_s = [cost(size) for size in n_bytes]
    starts_s = _starts(ready_s, time_s)
    ends = []
    for i in range(len(gradients) - 1):
        next_s = ready_s[i + 1]
        within = next_s < starts_s[i] + time_s[i]
        if within and (starts_s[i] > next_s or next_s - starts_s[i] < cost.startup_s):
            n_bytes[i + 1] += n_bytes[i]
            n_bytes[i] = 0
            time_s[i], time_s[i + 1] = 0.0, cost(n_bytes[i + 1])
            starts_s = _starts(ready_s, time_s)
        else:
            ends.append(i)
    return Plan.from_ends([*ends, len(gradients) - 1])


def _starts(ready_s: Sequence[float], time_s: Sequence[float]) -> list[float]:
    """Start of each message: when it is ready and the one before is through."""
    starts_s, free_s = [], 0.0
    for now_s, takes_s in zip(ready_s, time_s, strict=True):
        starts_s.append(max(free_s, now_s))
        free_s = starts_s[-1] + takes_s
    return starts_s
