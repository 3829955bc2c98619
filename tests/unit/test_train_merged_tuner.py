"""The tuner: what it concludes from steps whose times are made by hand."""

import numpy as np
import pytest

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, one_per_gradient, single_bucket
from allhands.train.merged.times import StepTimes
from allhands.train.merged.tuner import Tuner, refit

SIZES = (16, 12, 8, 4)


class HandMerged:
    """What the tuner needs of MergedAllReduce, and of its exchange."""

    is_timed = True

    def __init__(self, plan: Plan) -> None:
        self.plan, self.order, self.exchange = plan, ("a", "b", "c", "d"), self
        self.last_times: StepTimes | None = None
        self.replanned: list[tuple[Plan, tuple[str, ...]]] = []
        self.peer: list[float] | None = None  # what the other rank gives to all_max

    def all_max(self, values):
        return list(values) if self.peer is None else list(map(max, values, self.peer))

    def replan(self, plan, order):
        self.replanned.append((plan, order))
        self.plan, self.order = plan, order


def tuned(present: Plan, offered: Plan, **options) -> tuple[HandMerged, Tuner]:
    """Gradients arrive at 1, 2, 3, 4 after a forward pass of 10; the link takes 5 a message."""
    merged = HandMerged(present)
    gradients = Gradients((11, 12, 13, 14), SIZES, 10.0, merged.order)
    cost = AffineCost(1.0, 0.0)
    return merged, Tuner(merged, gradients, cost, planner=lambda *_: offered, **options)


def step(merged: HandMerged, tuner: Tuner, order=(0, 1, 2, 3)):
    """Note a step in which the gradients arrived in this order."""
    arrival_s = [101.0 + order.index(i) for i in range(4)]
    groups = merged.plan.groups
    spans_s = [(110.0 + 10 * k, 115.0 + 10 * k) for k in range(len(groups))]
    sizes = [sum(SIZES[first : last + 1]) for first, last in groups]
    merged.last_times = StepTimes.of(100.0, arrival_s, groups, spans_s, sizes)
    return tuner.after_step()


def test_the_tuner_changes_the_plan_when_the_gain_is_large_enough():
    """Four messages of 5: 11 + 20 = 31. One for all: 14 + 5 = 19. The gain is 12 / 31."""
    merged, tuner = tuned(one_per_gradient(4), single_bucket(4), every=2, threshold=0.38)
    assert step(merged, tuner) is None
    decision = step(merged, tuner)
    assert (decision.old_finish_s, decision.new_finish_s) == pytest.approx((31.0, 19.0))
    assert decision.gain == pytest.approx(12 / 31)
    assert decision.changed
    assert merged.plan == single_bucket(4)
    assert step(merged, tuner) is None


def test_the_tuner_leaves_the_plan_when_the_gain_is_too_small():
    merged, tuner = tuned(one_per_gradient(4), single_bucket(4), every=1, threshold=0.39)
    assert not step(merged, tuner).changed
    assert merged.plan == one_per_gradient(4)
    assert merged.replanned == []


def test_the_tuner_follows_a_new_order_of_arrival():
    """Gradient 3 comes first now: in the old order it could not leave before the others."""
    merged, tuner = tuned(single_bucket(4), Plan(((0, 0), (1, 3))), every=1, threshold=0.0)
    names = merged.order
    step(merged, tuner, order=(3, 0, 1, 2))
    assert tuner.gradients.names == tuple(names[i] for i in (3, 0, 1, 2))
    assert tuner.gradients.ready_s == pytest.approx((11, 12, 13, 14))


def test_the_latest_arrival_and_the_shortest_time_on_the_link_count():
    """Here: arrivals 1, 2, 3, 4, link 5. The other rank: 2, 2, 2, 9 and 3, as it came last."""
    merged, tuner = tuned(single_bucket(4), one_per_gradient(4), every=1, threshold=0.5)
    merged.peer = [2.0, 2.0, 2.0, 9.0, -3.0]
    decision = step(merged, tuner)
    assert decision.gradients.ready_s == pytest.approx((12, 12, 13, 19))
    assert (decision.cost.startup_s, decision.cost.s_per_byte) == (3.0, 0.0)
    assert decision.old_finish_s == pytest.approx(19 + 3)


def test_a_tuner_without_times_is_refused():
    merged, gradients = HandMerged(single_bucket(4)), Gradients((1, 2, 3, 4), (1, 1, 1, 1))
    merged.is_timed = False
    with pytest.raises(ValueError, match="timed=True"):
        Tuner(merged, gradients, AffineCost(1.0, 0.0))
    merged.is_timed = True
    with pytest.raises(ValueError, match="every 1 step or more"):
        Tuner(merged, gradients, AffineCost(1.0, 0.0), every=0)


def test_a_link_is_fitted_again_from_sizes_that_differ():
    truth = AffineCost(3.0, 0.5)
    sizes = np.array([4.0, 8.0, 64.0])
    seen = refit(AffineCost(1.0, 1.0), sizes, truth(sizes))
    assert (seen.startup_s, seen.s_per_byte) == pytest.approx((3.0, 0.5))


@pytest.mark.parametrize("sizes", [(100,), (100, 101, 102)])
def test_sizes_that_are_alike_give_a_factor_alone(sizes):
    before = AffineCost(50.0, 0.5)
    times_s = [2.0 * before(size) for size in sizes]
    assert refit(before, sizes, times_s) == AffineCost(100.0, 1.0)


def test_times_that_fit_no_sensible_link_give_a_factor_alone():
    """Larger messages were faster; 9 and 30 predicted, 18 and 15 seen: factors 2 and 1/2."""
    seen = refit(AffineCost(2.0, 7.0), (1, 4), (18.0, 15.0))
    assert seen == AffineCost(2.0 * 1.25, 7.0 * 1.25)
    assert refit(AffineCost(2.0, 7.0), (1, 4), (0.0, 0.0)) == AffineCost(2.0, 7.0)
