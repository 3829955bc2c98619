"""What if the second half of the all-reduce hides under the next forward pass? (DeAR)

An all-reduce is a reduce-scatter and then an all-gather, with no more bytes. DeAR (Zhang et al.,
ICDCS 2023) sends the reduce-scatters under the backward pass, and the all-gathers under the next
forward pass: a layer's forward pass waits only for its own group. So groups are gathered in
reverse: the last to arrive has the first layers.

Conventions: steady state, all iterations alike. Seconds from the start of a forward pass that waits
for nothing; the backward pass follows at forward_s, and the next forward pass (step + 1) runs as
its gradients come. An iteration lasts from one start of the backward pass to the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from allhands.mgwfbp.cost import AffineCost, Cost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, group_bytes
from allhands.mgwfbp.schedule import simulate
from allhands.trace.events import Event


@dataclass(frozen=True)
class DearSchedule:
    """Iteration time of DeAR, and the events of rank 0 that show it."""

    iteration_s: float
    events: tuple[Event, ...]


def halves(all_reduce: AffineCost) -> tuple[AffineCost, AffineCost]:
    """Split an all-reduce into reduce-scatter and all-gather of half the cost each.

    Right for a ring, when adding costs nothing: both halves take N - 1 steps of s/N bytes.
    """
    half = AffineCost(all_reduce.startup_s / 2, all_reduce.s_per_byte / 2)
    return half, half


def simulate_dear(
    gradients: Gradients,
    plan: Plan,
    reduce_scatter: Cost,
    all_gather: Cost,
    *,
    forward_parts_s: Sequence[float] | None = None,
    step: int = 0,
) -> DearSchedule:
    """Simulate DeAR on one link.

    forward_parts_s: (L,) forward time of the layers of each gradient, in order of *arrival*.
    Without it, the forward time is split like the backward time.
    """
    parts_s = _forward_parts(gradients) if forward_parts_s is None else list(forward_parts_s)
    if len(parts_s) != len(gradients):
        raise ValueError(
            f"Each gradient needs its forward time: expected {len(gradients)} values in "
            f"forward_parts_s, saw {len(parts_s)}."
        )
    scatter = simulate(gradients, plan, reduce_scatter)
    events = [
        Event(event.start_s, event.end_s, 0, event.what, _half(event, "scatter"), step)
        for event in scatter.events(step=step)
        if event.what != "idle"
    ]
    link_s = now_s = scatter.finish_s
    sizes = group_bytes(gradients, plan)
    for (first, last), n_bytes in zip(plan.groups[::-1], sizes[::-1], strict=True):
        name = f"{first}-{last}"
        start_s, link_s = link_s, link_s + all_gather(n_bytes)
        events.append(Event(start_s, link_s, 0, "communicate", f"gather {name}", step))
        begin_s = max(now_s, link_s)
        now_s = begin_s + sum(parts_s[first : last + 1])
        events.append(Event(begin_s, now_s, 0, "forward", name, step + 1))
    return DearSchedule(now_s - gradients.forward_s, tuple(sorted(events)))


def _half(event: Event, half: str) -> str:
    return f"{half} {event.name}" if event.what in ("communicate", "wait") else event.name


def _forward_parts(gradients: Gradients) -> list[float]:
    backward_s = gradients.backward_s
    whole_s = sum(backward_s)
    if whole_s == 0:
        return [gradients.forward_s / len(gradients)] * len(gradients)
    return [gradients.forward_s * part_s / whole_s for part_s in backward_s]
