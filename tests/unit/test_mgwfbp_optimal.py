"""The optimum: compared with all 2^(L-1) plans, for thousands of cases with zeros and ties."""

from functools import cache
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allhands.mgwfbp.cost import AffineCost, TabulatedCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.optimal import fewest_messages, optimum, optimum_any_cost
from allhands.mgwfbp.plan import finish_s


@cache
def every_plan(n):
    """All plans of n gradients, as tuples of (first, last)."""
    plans = []
    for cuts in range(2 ** (n - 1)):
        ends = [i for i in range(n - 1) if cuts >> i & 1] + [n - 1]
        plans.append(tuple(zip([0, *(e + 1 for e in ends[:-1])], ends, strict=True)))
    return plans


def by_brute_force(ready_s, n_bytes, cost):
    """Return the least finish time of all plans, and the fewest groups of a plan that has it."""
    results = []
    for plan in every_plan(len(ready_s)):
        free_s = 0
        for first, last in plan:
            free_s = max(free_s, ready_s[last]) + cost(sum(n_bytes[first : last + 1]))
        results.append((free_s, len(plan)))
    return min(results)


def few(number, most=9):
    """Pieces of a backward pass (time, bytes), start-up and time per byte, forward time."""
    pieces = st.lists(st.tuples(number, number), min_size=1, max_size=most)
    return st.tuples(pieces, number, number, number)


@pytest.mark.parametrize("largest", [1, 3, 9, 50])
def test_whole_numbers_agree_with_brute_force_exactly(largest):
    """Small numbers give many zeros and ties; whole numbers have no rounding: exact equality."""

    @settings(max_examples=700)
    @given(few(st.integers(0, largest)))
    def check(problem):
        pieces, a, b, forward_s = problem
        backward_s, n_bytes = zip(*pieces, strict=True)
        gradients = Gradients.from_backward(backward_s, n_bytes, forward_s=forward_s)
        cost = AffineCost(a, b)
        least_s, fewest = by_brute_force(gradients.ready_s, n_bytes, cost)
        assert finish_s(gradients, optimum(gradients, cost), cost) == least_s
        assert finish_s(gradients, optimum_any_cost(gradients, cost), cost) == least_s
        plan = fewest_messages(gradients, cost)
        assert (finish_s(gradients, plan, cost), plan.n_groups) == (least_s, fewest)

    check()


@settings(max_examples=700)
@given(few(st.floats(0, 5, allow_subnormal=False)))
def test_real_numbers_agree_with_brute_force(problem):
    pieces, a, b, forward_s = problem
    backward_s, n_bytes = zip(*pieces, strict=True)
    gradients = Gradients.from_backward(backward_s, n_bytes, forward_s=forward_s)
    cost = AffineCost(a, b)
    least_s, most = by_brute_force(gradients.ready_s, n_bytes, cost)
    for planner in (optimum, optimum_any_cost, fewest_messages):
        plan = planner(gradients, cost)
        assert finish_s(gradients, plan, cost) == pytest.approx(least_s, rel=1e-11)
    assert fewest_messages(gradients, cost).n_groups <= most


@pytest.mark.parametrize("seed", range(3))
def test_ten_random_gradients_agree_with_brute_force(seed):
    """The regime of a training: all gaps, sizes and start-ups of about the same weight."""
    random = np.random.default_rng(seed)
    for _ in range(60):
        gradients = Gradients.from_backward(
            random.integers(0, 100, 10), random.integers(0, 100, 10), forward_s=0
        )
        cost = AffineCost(int(random.integers(0, 200)), int(random.integers(0, 3)))
        least_s, fewest = by_brute_force(gradients.ready_s, gradients.n_bytes, cost)
        plan = fewest_messages(gradients, cost)
        assert finish_s(gradients, optimum(gradients, cost), cost) == least_s
        assert (finish_s(gradients, plan, cost), plan.n_groups) == (least_s, fewest)


STEPS = st.lists(st.integers(0, 9), min_size=8, max_size=8)


@settings(max_examples=500)
@given(few(st.integers(0, 3), most=8), STEPS)
def test_any_cost_table_agrees_with_brute_force(problem, steps):
    """Tables with steps and bends: start-ups that come back at a change of protocol."""
    pieces, _, _, forward_s = problem
    backward_s, n_bytes = zip(*pieces, strict=True)
    gradients = Gradients.from_backward(backward_s, n_bytes, forward_s=forward_s)
    cost = TabulatedCost(tuple(range(0, 24, 3)), tuple(accumulate(steps, initial=1))[1:])
    least_s, _ = by_brute_force(gradients.ready_s, n_bytes, cost)
    plan = optimum_any_cost(gradients, cost)
    assert finish_s(gradients, plan, cost) == pytest.approx(least_s, rel=1e-12)


@settings(max_examples=50)
@given(st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_the_two_exact_forms_agree_on_long_chains(n, seed):
    random = np.random.default_rng(seed)
    gradients = Gradients.from_backward(random.exponential(1, n), random.lognormal(0, 2, n))
    cost = AffineCost(*random.exponential(1, 2))
    times_s = [
        finish_s(gradients, planner(gradients, cost), cost)
        for planner in (optimum, optimum_any_cost, fewest_messages)
    ]
    assert times_s == pytest.approx([times_s[0]] * 3, rel=1e-10)


def test_many_short_groups_do_not_lose_the_optimum_to_rounding():
    """Gradients that arrive far apart are sent alone or in twos: thousands of groups."""
    random = np.random.default_rng(0)
    n = 20_000
    gradients = Gradients.from_backward(random.exponential(1, n), random.exponential(0.9, n))
    cost = AffineCost(0.1, 1.0)
    plan, other = fewest_messages(gradients, cost), optimum(gradients, cost)
    least_s = finish_s(gradients, other, cost)
    assert finish_s(gradients, plan, cost) == pytest.approx(least_s, rel=1e-11)
    assert plan.n_groups <= other.n_groups


def test_gradients_that_are_all_ready_at_once_travel_together():
    gradients = Gradients([3] * 50, [7] * 50)
    assert optimum(gradients, AffineCost(1, 1)).groups == ((0, 49),)


def test_without_a_start_up_nothing_is_lost_by_sending_each_alone():
    """The end is that of the busiest tail: one becomes ready, then it and all after it pass."""
    gradients = Gradients.from_backward([1, 2, 3, 1], [5, 1, 0, 2], forward_s=1)
    cost = AffineCost(0, 1)
    alone_s = finish_s(gradients, optimum(gradients, cost), cost)
    assert alone_s == max(2 + 8, 4 + 3, 7 + 2, 8 + 2)


def test_one_gradient_has_one_plan():
    gradients = Gradients([2], [3])
    for planner in (optimum, optimum_any_cost, fewest_messages):
        assert planner(gradients, AffineCost(1, 1)).groups == ((0, 0),)
