"""Plans: groups of neighbouring gradients that cover all of them, once."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket


def test_the_two_extremes_of_three_gradients():
    assert one_per_gradient(3).groups == ((0, 0), (1, 1), (2, 2))
    assert single_bucket(3).groups == ((0, 2),)


def test_no_gradient_gives_an_empty_plan():
    assert one_per_gradient(0) == single_bucket(0) == Plan(())
    assert Plan(()).n_gradients == 0


@given(st.sets(st.integers(1, 30)), st.integers(31, 40))
def test_every_cut_of_the_gradients_into_neighbours_is_a_plan(cuts, n_gradients):
    edges = [0, *sorted(cuts), n_gradients]
    plan = Plan(tuple((a, b - 1) for a, b in pairwise(edges)))
    covered = [i for first, last in plan.groups for i in range(first, last + 1)]
    assert covered == list(range(n_gradients))
    assert plan.n_gradients == n_gradients


@pytest.mark.parametrize(
    "groups",
    [((1, 2),), ((0, 0), (2, 3)), ((0, 2), (2, 3)), ((0, -1),), ((0, 1), (2, 1))],
    ids=["late start", "gap", "overlap", "empty group", "backwards"],
)
def test_groups_with_a_gap_or_an_overlap_are_refused(groups):
    with pytest.raises(ValueError, match="without gap or overlap"):
        Plan(groups)


def test_the_finish_of_a_plan_by_hand():
    """Start-up 5, a second a byte; gradients of 4, 1, 1 bytes are ready at 0, 4, 9."""
    gradients, cost = Gradients((0, 4, 9), (4, 1, 1)), AffineCost(5, 1)
    assert finish_s(gradients, one_per_gradient(3), cost) == 9 + 6 + 6
    assert finish_s(gradients, single_bucket(3), cost) == 9 + 5 + 6
    assert finish_s(gradients, Plan(((0, 1), (2, 2))), cost) == 4 + 10 + 6
    assert finish_s(gradients, Plan(((0, 0), (1, 2))), cost) == 9 + 7


def test_a_plan_for_other_gradients_is_refused():
    with pytest.raises(ValueError, match="for 2 gradients, but there are 3"):
        finish_s(Gradients((0, 4, 9), (4, 1, 1)), single_bucket(2), AffineCost(5, 1))


def test_a_plan_can_be_made_from_the_ends_of_its_groups():
    assert Plan.from_ends([0, 3, 4]) == Plan(((0, 0), (1, 3), (4, 4)))
    assert Plan.from_ends([0, 3, 4]).n_groups == 3
