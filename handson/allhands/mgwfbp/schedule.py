"""What happens when a plan runs? Simulates one iteration, and writes the events of a real run.

Conventions: seconds from the start of the forward pass, which starts on all ranks at once. One link
(channel) for all; an all-reduce is synchronous: it starts when its group is ready on the slowest
rank and the link is free, and ends on all ranks at once. Event kinds:

- `forward`, `backward`: the rank computes; a backward span ends when its group of gradients is
  ready.
- `wait`: a group is ready on this rank, but waits for the link or for a slower rank. Several groups
  may wait at once.
- `communicate`: the all-reduce of a group.
- `idle`: the link has nothing to do. All `communicate` and `idle` spans fill the iteration.

The names of groups are `first-last`, gradients in order of arrival.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from allhands.mgwfbp.cost import Cost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, group_bytes
from allhands.trace.events import Event


@dataclass(frozen=True)
class Schedule:
    """When each group of a plan was ready on all ranks, started and ended: (groups,) seconds.

    `slow_down` is the factor of each rank's computing time, (N,); 1 is the speed of `gradients`.
    """

    gradients: Gradients
    plan: Plan
    n_bytes: tuple[float, ...]
    ready_s: tuple[float, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    slow_down: tuple[float, ...] = (1.0,)

    @property
    def n_ranks(self) -> int:
        return len(self.slow_down)

    @property
    def finish_s(self) -> float:
        """End of the iteration: of the last all-reduce."""
        return max(self.end_s)

    @property
    def compute_s(self) -> float:
        """End of the backward pass on the slowest rank."""
        return self.gradients.compute_s * max(self.slow_down)

    @property
    def exposed_s(self) -> float:
        """Communication that the backward pass does not hide."""
        return self.finish_s - self.compute_s

    @property
    def busy_s(self) -> float:
        """Time in which the link carries something."""
        return self.finish_s - sum(end - start for start, end in self._gaps())

    def _gaps(self) -> list[tuple[float, float]]:
        gaps, free_s = [], 0.0
        for start_s, end_s in sorted(zip(self.start_s, self.end_s, strict=True)):
            if start_s > free_s:
                gaps.append((free_s, start_s))
            free_s = max(free_s, end_s)
        return gaps

    def events(self, ranks: Iterable[int] = (0,), *, step: int = 0) -> list[Event]:
        """Return the events of the chosen ranks, in order of time. Raises ValueError for others."""
        events: list[Event] = []
        for rank in ranks:
            if not 0 <= rank < self.n_ranks:
                raise ValueError(f"There are ranks 0 to {self.n_ranks - 1}; asked for rank {rank}.")
            events += self._events_of(rank, step)
        return sorted(events)

    def _events_of(self, rank: int, step: int) -> list[Event]:
        factor = self.slow_down[rank]
        done_s = self.gradients.forward_s * factor
        events = [Event(0.0, done_s, rank, "forward", "", step)]
        for (first, last), start_s, end_s in zip(
            self.plan.groups, self.start_s, self.end_s, strict=True
        ):
            name = f"{first}-{last}"
            before_s, done_s = done_s, self.gradients.ready_s[last] * factor
            events.append(Event(before_s, done_s, rank, "backward", name, step))
            if start_s > done_s:
                events.append(Event(done_s, start_s, rank, "wait", name, step))
            events.append(Event(start_s, end_s, rank, "communicate", name, step))
        events += [Event(start, end, rank, "idle", "", step) for start, end in self._gaps()]
        return events


def simulate(
    gradients: Gradients,
    plan: Plan,
    cost: Cost,
    *,
    slow_down: Sequence[float] | np.ndarray | None = None,
    not_before_s: Sequence[float] | None = None,
) -> Schedule:
    """Simulate one iteration of `plan` on one link.

    slow_down: (N,) factor of each rank's computing time, 1 = as in `gradients`; see `stragglers`.
    not_before_s: (groups,) earliest start of each group, as Horovod's ticks. Compression is a
    property of the cost: `cost.compressed(0.5)` is FP16. The work does not grow with N, but for one
    maximum over the ranks.
    """
    ready_s, factors = ready_on_all(gradients, plan, slow_down)
    if not_before_s is not None and len(not_before_s) != plan.n_groups:
        raise ValueError(
            f"The plan has {plan.n_groups} groups: expected as many values in not_before_s, "
            f"saw {len(not_before_s)}."
        )
    n_bytes = group_bytes(gradients, plan)
    starts_s, ends_s, free_s = [], [], 0.0
    for k, size in enumerate(n_bytes):
        start_s = max(free_s, ready_s[k])
        if not_before_s is not None:
            start_s = max(start_s, not_before_s[k])
        free_s = start_s + cost(size)
        starts_s.append(start_s)
        ends_s.append(free_s)
    return Schedule(
        gradients, plan, tuple(n_bytes), ready_s, tuple(starts_s), tuple(ends_s), factors
    )


def ready_on_all(
    gradients: Gradients, plan: Plan, slow_down: Sequence[float] | np.ndarray | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return when each group is ready on the slowest rank, (groups,), and the factors, (N,)."""
    factors = np.ones(1) if slow_down is None else np.asarray(slow_down, dtype=float)
    if factors.ndim != 1 or not factors.size or not np.all(np.isfinite(factors) & (factors > 0)):
        raise ValueError(
            "The slow-down needs one finite factor above 0 for each rank; saw "
            f"{factors.size} values, smallest {factors.min(initial=np.inf)}."
        )
    slowest = float(factors.max())
    group_bytes(gradients, plan)  # refuses a plan for other gradients
    ready_s = tuple(gradients.ready_s[last] * slowest for _, last in plan.groups)
    return ready_s, tuple(factors.tolist())


def stragglers(
    n_ranks: int, *, seed: int, share: float = 0.0, factor: float = 1.0, jitter: float = 0.0
) -> np.ndarray:
    """Return a slow-down for each rank, (N,), the same for the same seed.

    A `share` of the ranks (rounded, at random places) computes `factor` times as long. On top, each
    rank is slower by the absolute value of a normal number with standard deviation `jitter`.
    """
    if n_ranks < 1 or not 0 <= share <= 1 or not factor >= 1 or not jitter >= 0:
        raise ValueError(
            "Stragglers need n_ranks >= 1, a share from 0 to 1, a factor >= 1 and a jitter >= 0; "
            f"saw {n_ranks}, {share}, {factor} and {jitter}."
        )
    random = np.random.default_rng(seed)
    slow_down = 1.0 + jitter * np.abs(random.standard_normal(n_ranks))
    slow_down[random.permutation(n_ranks)[: round(share * n_ranks)]] *= factor
    return slow_down
