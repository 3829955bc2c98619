"""What if several all-reduces may run at once? Simulates a plan on concurrent channels.

Model of contention: an all-reduce first spends its start-up, which costs no bandwidth, and runs
beside anything. Then its bytes flow. While m all-reduces have bytes in flow, each flows 1 +
contention * (m - 1) times slower than alone:

- contention = 1: they share one link fairly. Nothing is gained in bandwidth, but start-ups are
  hidden.
- contention = 0.5: two at once take 1.5 times as long, as the authors of ASC-WFBP measured (Shi,
  Chu and Li, INFOCOM 2021).
- contention = 0: each has a link of its own.

Groups start in plan order, each when it is ready and a channel is free. Conventions as in
schedule.py.
"""

from collections.abc import Sequence

import numpy as np

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, group_bytes
from allhands.mgwfbp.schedule import Schedule, ready_on_all


def simulate_channels(
    gradients: Gradients,
    plan: Plan,
    cost: AffineCost,
    *,
    n_channels: int,
    contention: float = 1.0,
    slow_down: Sequence[float] | np.ndarray | None = None,
) -> Schedule:
    """Simulate one iteration on `n_channels` channels; one channel is `simulate`.

    O(groups * channels). Raises ValueError for no channel, or a negative contention.
    """
    if n_channels < 1 or not contention >= 0:
        raise ValueError(
            f"Expected at least 1 channel and a contention of 0 or more; saw {n_channels} and "
            f"{contention}."
        )
    ready_s, factors = ready_on_all(gradients, plan, slow_down)
    n_bytes = group_bytes(gradients, plan)
    starts_s, ends_s = _run(ready_s, n_bytes, cost, n_channels, contention)
    return Schedule(
        gradients, plan, tuple(n_bytes), ready_s, tuple(starts_s), tuple(ends_s), factors
    )


def _run(
    ready_s: Sequence[float],
    n_bytes: Sequence[float],
    cost: AffineCost,
    n_channels: int,
    contention: float,
) -> tuple[list[float], list[float]]:
    """Go from event to event: a group starts, a start-up ends, the bytes of a group are through."""
    starts_s, ends_s = [0.0] * len(n_bytes), [0.0] * len(n_bytes)
    starting: dict[int, float] = {}  # group: end of its start-up
    flowing: dict[int, float] = {}  # group: seconds that its bytes still need, alone
    now_s, following = 0.0, 0
    while following < len(n_bytes) or starting or flowing:
        room = following < len(n_bytes) and len(starting) + len(flowing) < n_channels
        slower = 1.0 + contention * max(len(flowing) - 1, 0)
        next_s = min(
            ready_s[following] if room else np.inf,
            min(starting.values(), default=np.inf),
            now_s + slower * min(flowing.values(), default=np.inf),
        )
        next_s = max(next_s, now_s)
        through = [group for group, rest_s in flowing.items() if now_s + slower * rest_s <= next_s]
        for group in flowing:
            flowing[group] -= (next_s - now_s) / slower
        for group in through:
            del flowing[group]
            ends_s[group] = next_s
        now_s = next_s
        for group in [group for group, end_s in starting.items() if end_s <= now_s]:
            del starting[group]
            flowing[group] = cost.s_per_byte * n_bytes[group]
        if room and ready_s[following] <= now_s:
            starts_s[following] = now_s
            starting[following] = now_s + cost.startup_s
            following += 1
    return starts_s, ends_s
