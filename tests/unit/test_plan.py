"""Plans: groups of neighbouring gradients that cover all of them, once."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp.plan import Plan, one_per_gradient, single_bucket


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
