"""Is the plan still good? Looks at real steps, and changes the plan when that pays.

    tuner = Tuner(merged, gradients, cost)
    ...
    optimizer.step()
    tuner.after_step()         # on all ranks, after every step

A link slows down when others use it, and a GPU when it gets warm. Every `every` steps the tuner
fits the link again from the messages of these steps, takes the median arrival times of the
gradients, plans, and compares both plans by what it now knows. It changes the plan between two
steps, and only if the predicted step becomes shorter by more than `threshold`: times are noisy, and
each change of plan changes the order of sums, and so the last bits of the gradients.

All ranks decide alike, because they decide from the same numbers (`all_max`), not from their own.
"""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.optimal import fewest_messages
from allhands.mgwfbp.plan import Plan, finish_s
from allhands.train.merged.hooks import MergedAllReduce
from allhands.train.merged.times import StepTimes
from allhands.train.probe import in_order

SPREAD = 4.0  # of sizes, for a line through them
Planner = Callable[[Gradients, AffineCost], Plan]


@dataclass(frozen=True)
class Decision:
    """What the tuner saw and chose; all ranks have the same. Times of one step, in seconds."""

    gradients: Gradients
    cost: AffineCost
    old_finish_s: float
    new_finish_s: float
    new_plan: Plan
    changed: bool

    @property
    def gain(self) -> float:
        """The share of the step that the new plan saves, as predicted."""
        return 1.0 - self.new_finish_s / self.old_finish_s if self.old_finish_s else 0.0


class Tuner:
    """Changes the plan of `merged` (made with timed=True, or a recorder) when that pays.

    gradients, cost: what the present plan was made from. Call `merged.backward(loss)`, so that the
    start of the backward pass is known. every: steps between two looks. threshold: least gain.
    """

    def __init__(
        self,
        merged: MergedAllReduce,
        gradients: Gradients,
        cost: AffineCost,
        *,
        planner: Planner = fewest_messages,
        every: int = 50,
        threshold: float = 0.05,
    ) -> None:
        if not merged.is_timed:
            raise ValueError("A tuner needs times: make MergedAllReduce with timed=True.")
        if every < 1 or not 0 <= threshold < 1:
            raise ValueError(
                f"A tuner looks every 1 step or more, for a gain from 0 to 1; saw {every} and "
                f"{threshold}."
            )
        self.merged, self.planner, self.every, self.threshold = merged, planner, every, threshold
        self.gradients, self.cost = gradients, cost
        self._steps: list[StepTimes] = []

    def after_step(self) -> Decision | None:
        """Note the last step; every `every` steps, decide. Returns None when it is not yet time."""
        if self.merged.last_times is not None:
            self._steps.append(self.merged.last_times)
        if len(self._steps) < self.every:
            return None
        decision = self._decide()
        self._steps = []
        self.gradients, self.cost = decision.gradients, decision.cost
        if decision.changed:
            self.merged.replan(decision.new_plan, decision.gradients.names)
        return decision

    def _decide(self) -> Decision:
        """Plan by the medians of the noted steps, and compare with the present plan."""
        order, plan = self.merged.order, self.merged.plan
        arrival_s, link_s = self._agreed_medians()
        cost = refit(self.cost, self._steps[-1].n_bytes, link_s)
        forward_s = self.gradients.forward_s
        sizes = dict(zip(self.gradients.names, self.gradients.n_bytes, strict=True))
        gradients = in_order(dict(zip(order, arrival_s, strict=True)), sizes, forward_s)
        in_present_order = Gradients(
            [forward_s + after_s for after_s in accumulate(arrival_s, max)],
            [sizes[name] for name in order],
            forward_s,
        )
        new_plan = self.planner(gradients, cost)
        old_s = finish_s(in_present_order, plan, cost)
        new_s = finish_s(gradients, new_plan, cost)
        changed = new_s < (1.0 - self.threshold) * old_s
        return Decision(gradients, cost, old_s, new_s, new_plan, changed)

    def _agreed_medians(self) -> tuple[list[float], list[float]]:
        """Return arrival of each gradient after the start of backward, and link time of each group.

        The slowest rank has a gradient last: its time counts. The last rank to come sees the link
        alone, the others have waited too: the shortest time is the link's.
        """
        n = len(self.merged.order)
        arrival_s = [
            statistics.median(step.arrival_s[i] - step.begin_s for step in self._steps)
            for i in range(n)
        ]
        link_s = [
            statistics.median(step.end_s[k] - step.start_s[k] for step in self._steps)
            for k in range(self.merged.plan.n_groups)
        ]
        agreed = self.merged.exchange.all_max([*arrival_s, *(-time_s for time_s in link_s)])
        return agreed[:n], [-time_s for time_s in agreed[n:]]


def refit(cost: AffineCost, n_bytes: Sequence[float], time_s: Sequence[float]) -> AffineCost:
    """Return the cost that messages of these sizes and times show; `cost` is the one before.

    A line needs sizes that differ: by a factor of 4 at least, so that noise does not turn it. If
    they do not, or if no sensible line fits, only a factor is known: start-up and time per byte
    both change by the median of measured / predicted.
    """
    seen = [(size, t) for size, t in zip(n_bytes, time_s, strict=True) if t > 0]
    sizes, times_s = [size for size, _ in seen], [t for _, t in seen]
    if seen and max(sizes) >= SPREAD * min(sizes):
        with contextlib.suppress(ValueError):
            return fit(sizes, times_s).cost
    ratios = [t / cost(size) for size, t in seen if cost(size) > 0]
    factor = statistics.median(ratios) if ratios else 1.0
    return AffineCost(factor * cost.startup_s, factor * cost.s_per_byte)
