"""The simulated iteration: worked by hand, equal to the formula, and nothing lost or sent twice."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp.cost import AffineCost, TabulatedCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket
from allhands.mgwfbp.schedule import simulate, stragglers
from allhands.trace.events import Event

GRADIENTS = Gradients((2, 6, 11), (4, 1, 1), forward_s=2.0)
COST = AffineCost(5, 1)
PIECES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)


@st.composite
def planned(draw):
    """Gradients, a plan for them, and a cost; whole numbers."""
    pieces = draw(PIECES)
    backward_s, n_bytes = zip(*pieces, strict=True)
    forward_s = draw(st.integers(0, 9))
    gradients = Gradients.from_backward(backward_s, n_bytes, forward_s=forward_s)
    cuts = draw(st.sets(st.integers(0, len(pieces) - 1)))
    plan = Plan.from_ends(sorted(cuts | {len(pieces) - 1}))
    return gradients, plan, AffineCost(draw(st.integers(0, 9)), draw(st.integers(0, 9)))


def test_the_timeline_of_the_best_plan_of_three_gradients():
    """0 is sent alone as soon as it is ready; 1 waits for 2; the link is free when 2 comes."""
    schedule = simulate(GRADIENTS, Plan(((0, 0), (1, 2))), COST)
    assert schedule.events() == [
        Event(0, 2, 0, "forward"),
        Event(0, 2, 0, "idle"),
        Event(2, 2, 0, "backward", "0-0"),
        Event(2, 11, 0, "backward", "1-2"),
        Event(2, 11, 0, "communicate", "0-0"),
        Event(11, 18, 0, "communicate", "1-2"),
    ]
    assert (schedule.finish_s, schedule.compute_s, schedule.exposed_s) == (18, 11, 7)
    assert schedule.busy_s == 16


def test_groups_wait_while_the_link_carries_another_one():
    events = simulate(GRADIENTS, one_per_gradient(3), COST).events()
    assert [e for e in events if e.what == "wait"] == [Event(6, 11, 0, "wait", "1-1"),
                                                       Event(11, 17, 0, "wait", "2-2")]  # fmt: skip


def test_all_communication_of_a_single_bucket_is_exposed():
    schedule = simulate(GRADIENTS, single_bucket(3), COST)
    assert schedule.exposed_s == schedule.busy_s == 11
    assert [e for e in schedule.events() if e.what == "idle"] == [Event(0, 11, 0, "idle")]


@given(planned())
def test_the_simulation_ends_when_the_formula_says(problem):
    gradients, plan, cost = problem
    assert simulate(gradients, plan, cost).finish_s == finish_s(gradients, plan, cost)
    table = TabulatedCost((0, 50, 100), (1, 4, 9))
    assert simulate(gradients, plan, table).finish_s == finish_s(gradients, plan, table)


@given(planned())
def test_every_byte_is_sent_once_and_no_second_of_the_link_is_lost(problem):
    gradients, plan, cost = problem
    schedule = simulate(gradients, plan, cost)
    assert sum(schedule.n_bytes) == gradients.total_bytes
    link = sorted(e for e in schedule.events() if e.what in ("communicate", "idle"))
    assert link[0].start_s == 0
    assert link[-1].end_s == schedule.finish_s
    assert all(a.end_s == b.start_s for a, b in pairwise(link))
    sent = [e for e in link if e.what == "communicate"]
    assert sum(e.duration_s for e in sent) == schedule.busy_s
    assert schedule.busy_s == plan.n_groups * cost.startup_s + cost.s_per_byte * sum(
        gradients.n_bytes
    )


@given(planned())
def test_the_backward_pass_is_covered_and_nothing_is_sent_before_it_is_ready(problem):
    gradients, plan, cost = problem
    events = simulate(gradients, plan, cost).events()
    computed = [e for e in events if e.what in ("forward", "backward")]
    assert sum(e.duration_s for e in computed) == gradients.compute_s
    ready = {e.name: e.end_s for e in events if e.what == "backward"}
    start = {e.name: e.start_s for e in events if e.what == "communicate"}
    waited = {e.name: e.duration_s for e in events if e.what == "wait"}
    assert all(start[name] == ready[name] + waited.get(name, 0) for name in ready)
    assert set(ready) == set(start)


def test_a_group_may_be_held_back_until_a_given_time():
    schedule = simulate(GRADIENTS, Plan(((0, 0), (1, 2))), COST, not_before_s=(4, 0))
    assert schedule.start_s == (4, 13)
    with pytest.raises(ValueError, match="2 groups"):
        simulate(GRADIENTS, Plan(((0, 0), (1, 2))), COST, not_before_s=(4,))


def test_all_wait_for_the_slowest_rank():
    """Rank 1 computes twice as long: its gradients come at 4, 12 and 22."""
    schedule = simulate(GRADIENTS, Plan(((0, 0), (1, 2))), COST, slow_down=[1, 2])
    assert schedule.start_s == (4, 22)
    assert (schedule.finish_s, schedule.compute_s) == (29, 22)
    fast, slow = schedule.events([0]), schedule.events([1])
    assert [e for e in fast if e.what == "wait"] == [Event(2, 4, 0, "wait", "0-0"),
                                                     Event(11, 22, 0, "wait", "1-2")]  # fmt: skip
    assert [e for e in slow if e.what == "wait"] == []
    for one, other in zip(fast, slow, strict=False):
        if one.what == other.what == "communicate":
            assert (one.start_s, one.end_s) == (other.start_s, other.end_s)
    assert schedule.events([1, 0]) == sorted(fast + slow)


def test_65_536_ranks_end_with_the_slowest():
    slow_down = stragglers(65_536, seed=3, share=0.001, factor=1.5, jitter=0.02)
    plan = Plan(((0, 0), (1, 2)))
    schedule = simulate(GRADIENTS, plan, COST, slow_down=slow_down)
    alone = simulate(GRADIENTS, plan, COST, slow_down=[slow_down.max()])
    assert schedule.finish_s == alone.finish_s
    assert schedule.n_ranks == 65_536
    slowest = int(np.argmax(slow_down))
    assert {e.rank for e in schedule.events([0, slowest, 65_535])} == {0, slowest, 65_535}
    assert not any(e.what == "wait" and e.name == "0-0" for e in schedule.events([slowest]))


def test_stragglers_are_as_many_as_asked_and_the_same_for_the_same_seed():
    slow_down = stragglers(1000, seed=1, share=0.05, factor=3.0)
    assert sorted(slow_down) == [1.0] * 950 + [3.0] * 50
    np.testing.assert_array_equal(slow_down, stragglers(1000, seed=1, share=0.05, factor=3.0))
    assert np.any(slow_down != stragglers(1000, seed=2, share=0.05, factor=3.0))
    assert stragglers(4, seed=0).tolist() == [1.0] * 4


def test_jitter_only_slows_down_and_has_the_asked_size():
    slow_down = stragglers(100_000, seed=0, jitter=0.1)
    assert slow_down.min() >= 1
    assert np.mean((slow_down - 1) ** 2) == pytest.approx(0.1**2, rel=0.02)


@pytest.mark.parametrize(
    "arguments", [{"n_ranks": 0}, {"share": 1.1}, {"factor": 0.5}, {"jitter": -1}]
)
def test_stragglers_that_cannot_be_are_refused(arguments):
    with pytest.raises(ValueError, match="Stragglers need"):
        stragglers(**{"n_ranks": 2, "seed": 0, **arguments})


@pytest.mark.parametrize("slow_down", [[], [1, 0], [1, -2], [1, np.nan], [[1, 1]]])
def test_a_slow_down_that_cannot_be_is_refused(slow_down):
    with pytest.raises(ValueError, match="factor above 0 for each rank"):
        simulate(GRADIENTS, single_bucket(3), COST, slow_down=slow_down)


def test_a_rank_that_is_not_there_has_no_events():
    with pytest.raises(ValueError, match="ranks 0 to 0; asked for rank 1"):
        simulate(GRADIENTS, single_bucket(3), COST).events([1])


def test_a_plan_for_other_gradients_is_refused():
    with pytest.raises(ValueError, match="for 2 gradients, but there are 3"):
        simulate(GRADIENTS, single_bucket(2), COST)


@given(planned())
def test_half_the_bytes_never_take_longer_and_leave_the_start_ups(problem):
    gradients, plan, cost = problem
    whole, half = (simulate(gradients, plan, c) for c in (cost, cost.compressed(0.5)))
    assert half.finish_s <= whole.finish_s
    saved = 0.5 * cost.s_per_byte * gradients.total_bytes
    assert whole.busy_s - half.busy_s == pytest.approx(saved)
