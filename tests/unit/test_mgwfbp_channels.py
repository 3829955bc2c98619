"""Concurrent channels and DeAR: limits that must hold, and cases worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp import measured
from allhands.mgwfbp.channels import simulate_channels
from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.dear import halves, simulate_dear
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.optimal import fewest_messages
from allhands.mgwfbp.plan import Plan, one_per_gradient, single_bucket
from allhands.mgwfbp.schedule import simulate

NUMBER = st.integers(0, 9)


@st.composite
def planned(draw):
    pieces = draw(st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=10))
    backward_s, n_bytes = zip(*pieces, strict=True)
    gradients = Gradients.from_backward(backward_s, n_bytes, forward_s=draw(NUMBER))
    cuts = draw(st.sets(st.integers(0, len(pieces) - 1)))
    plan = Plan.from_ends(sorted(cuts | {len(pieces) - 1}))
    return gradients, plan, AffineCost(draw(NUMBER), draw(NUMBER))


@given(planned(), st.sampled_from([0, 0.5, 1]))
def test_one_channel_is_the_simple_simulation(problem, contention):
    one = simulate_channels(*problem, n_channels=1, contention=contention)
    simple = simulate(*problem)
    assert one.start_s == pytest.approx(simple.start_s)
    assert one.end_s == pytest.approx(simple.end_s)


@given(planned(), st.integers(1, 5))
def test_a_fairly_shared_link_without_start_ups_ends_when_one_channel_does(problem, n_channels):
    """The link works whenever there is work, in whatever order: the last byte comes the same."""
    gradients, plan, cost = problem
    free = AffineCost(0, cost.s_per_byte)
    shared = simulate_channels(gradients, plan, free, n_channels=n_channels, contention=1)
    assert shared.finish_s == pytest.approx(simulate(gradients, plan, free).finish_s)


@given(planned())
def test_enough_channels_without_contention_are_a_link_for_each_group(problem):
    gradients, plan, cost = problem
    schedule = simulate_channels(gradients, plan, cost, n_channels=plan.n_groups, contention=0)
    assert schedule.start_s == schedule.ready_s
    alone = [ready + cost(n) for ready, n in zip(schedule.ready_s, schedule.n_bytes, strict=True)]
    assert schedule.end_s == pytest.approx(alone)


@given(planned(), st.integers(1, 4), st.sampled_from([0, 0.5, 1]))
def test_no_more_groups_run_at_once_than_there_are_channels(problem, n_channels, contention):
    schedule = simulate_channels(*problem, n_channels=n_channels, contention=contention)
    spans = list(zip(schedule.start_s, schedule.end_s, strict=True))
    assert all(a <= b for a, b in zip(schedule.start_s, schedule.start_s[1:], strict=False))
    for now, _ in spans:
        assert sum(start <= now < end for start, end in spans) <= n_channels


@pytest.mark.parametrize(("contention", "end_s"), [(1, (9, 9)), (0.5, (7, 7)), (0, (5, 5))])
def test_two_equal_groups_at_once_by_hand(contention, end_s):
    """Both start at 0; start-up 1, then 4 s of bytes each: shared, 8; half shared, 6; alone, 4."""
    gradients = Gradients((0, 0), (4, 4))
    schedule = simulate_channels(
        gradients, one_per_gradient(2), AffineCost(1, 1), n_channels=2, contention=contention
    )
    assert schedule.end_s == end_s


def test_a_start_up_runs_beside_the_bytes_of_another_group():
    """0 flows from 2 to 6. 1 starts up from 3 to 5; from 5 both flow at half speed.

    0 has 1 s left at 5, through at 7. 1 then has 3 of its 4 s left, alone: through at 10.
    """
    gradients = Gradients((0, 3), (4, 4))
    schedule = simulate_channels(
        gradients, one_per_gradient(2), AffineCost(2, 1), n_channels=2, contention=1
    )
    assert (schedule.start_s, schedule.end_s) == ((0, 3), (7, 10))
    assert schedule.busy_s == 10


def test_stragglers_hold_channels_back_too():
    schedule = simulate_channels(
        Gradients((1, 2), (1, 1)), one_per_gradient(2), AffineCost(1, 1),
        n_channels=2, slow_down=[1, 3],
    )  # fmt: skip
    assert schedule.start_s == (3, 6)


@pytest.mark.parametrize("arguments", [{"n_channels": 0}, {"n_channels": 1, "contention": -1}])
def test_channels_that_cannot_be_are_refused(arguments):
    with pytest.raises(ValueError, match="at least 1 channel"):
        simulate_channels(Gradients([1], [1]), single_bucket(1), AffineCost(1, 1), **arguments)


def test_dear_by_hand():
    """Two groups. Forward 4, backward 6 + 2 from 4 to 12. Scatter 1 + s/2, gather the same.

    Scatters: 10 to 13 (4 bytes), 13 to 15 (2 bytes). Gathers in reverse: group 1 from 15 to 17,
    group 0 from 17 to 20. Forward: group 1 takes 1 s, from 17 to 18; group 0 waits until 20, takes
    3 s, ends at 23: 19 after the forward pass before ended.
    """
    gradients = Gradients.from_backward([6, 2], [4, 2], forward_s=4.0)
    scatter, gather = halves(AffineCost(2, 1))
    dear = simulate_dear(gradients, one_per_gradient(2), scatter, gather)
    assert dear.iteration_s == 19
    shown = [
        (e.start_s, e.end_s, e.what, e.name) for e in dear.events if e.start_s >= 10 and e.name
    ]
    assert sorted(shown) == [
        (10, 12, "backward", "1-1"),
        (10, 13, "communicate", "scatter 0-0"),
        (12, 13, "wait", "scatter 1-1"),
        (13, 15, "communicate", "scatter 1-1"),
        (15, 17, "communicate", "gather 1-1"),
        (17, 18, "forward", "1-1"),
        (17, 20, "communicate", "gather 0-0"),
        (20, 23, "forward", "0-0"),
    ]
    assert {e.step for e in dear.events if e.start_s >= 15 and e.what == "forward"} == {1}


@given(planned())
def test_dear_is_bounded_by_computing_by_the_link_and_by_hiding_nothing(problem):
    gradients, plan, cost = problem
    scatter, gather = halves(cost)
    dear = simulate_dear(gradients, plan, scatter, gather)
    link_s = simulate(gradients, plan, cost).busy_s
    tolerance = 1 + 1e-12
    assert dear.iteration_s * tolerance >= max(gradients.compute_s, link_s)
    assert dear.iteration_s <= (gradients.compute_s + link_s) * tolerance
    sent = [e.duration_s for e in dear.events if e.what == "communicate"]
    assert sum(sent) == pytest.approx(link_s)
    assert len(sent) == 2 * plan.n_groups


@given(planned())
def test_dear_costs_nothing_on_a_free_link(problem):
    gradients, plan, _ = problem
    free = AffineCost(0, 0)
    assert simulate_dear(gradients, plan, free, free).iteration_s == pytest.approx(
        gradients.compute_s
    )


def test_dear_with_a_single_bucket_hides_nothing():
    gradients, cost = measured.googlenet_k80(), measured.k80_10gbe(64)
    plan = single_bucket(len(gradients))
    dear = simulate_dear(gradients, plan, *halves(cost))
    assert dear.iteration_s == pytest.approx(simulate(gradients, plan, cost).finish_s)


def test_dear_hides_on_googlenet_what_merging_alone_cannot():
    gradients, cost = measured.googlenet_k80(), measured.k80_10gbe(64)
    plan = fewest_messages(gradients, cost)
    merged_s = simulate(gradients, plan, cost).finish_s
    assert simulate_dear(gradients, plan, *halves(cost)).iteration_s < merged_s


def test_dear_takes_measured_forward_times():
    gradients = Gradients.from_backward([6, 2], [4, 2], forward_s=4.0)
    scatter, gather = halves(AffineCost(2, 1))
    plan = one_per_gradient(2)
    dear = simulate_dear(gradients, plan, scatter, gather, forward_parts_s=[1, 3])
    assert dear.iteration_s == 20 + 1 - 4
    with pytest.raises(ValueError, match="expected 2 values in forward_parts_s, saw 1"):
        simulate_dear(gradients, plan, scatter, gather, forward_parts_s=[4])


def test_dear_splits_the_forward_time_evenly_where_the_backward_pass_takes_none():
    gradients = Gradients.from_backward([0, 0], [0, 0], forward_s=4.0)
    free = AffineCost(0, 0)
    dear = simulate_dear(gradients, one_per_gradient(2), free, free)
    assert [e.duration_s for e in dear.events if e.what == "forward" and e.step == 1] == [2, 2]
