"""Costs by algorithm: the bounds that none may beat, and cases worked by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.theory import (
    ALGORITHMS,
    Wire,
    double_binary_tree,
    halving_doubling,
    hierarchical,
    recursive_doubling,
    rescale,
    ring,
    tree,
)

WIRE = Wire(latency_s=1.0, s_per_byte=100.0, reduce_s_per_byte=10000.0)
WORKERS = st.one_of(st.integers(2, 70), st.integers(2, 70000))
NAMES = st.sampled_from(sorted(ALGORITHMS))


@given(NAMES, WORKERS)
def test_no_algorithm_beats_the_lower_bounds(name, n):
    cost = ALGORITHMS[name](n, WIRE)
    share = (n - 1) / n
    assert cost.startup_s >= math.log2(n) * WIRE.latency_s
    assert cost.s_per_byte >= (2 * share * 100 + share * 10000) * (1 - 1e-12)


@given(WORKERS)
def test_a_ring_sends_as_few_bytes_as_any_algorithm_can(n):
    share = (n - 1) / n
    assert ring(n, WIRE).s_per_byte == pytest.approx(2 * share * 100 + share * 10000)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_worker_has_nothing_to_reduce(name):
    assert ALGORITHMS[name](1, WIRE) == AffineCost(0.0, 0.0)


@pytest.mark.parametrize(
    ("algorithm", "startup_s", "s_per_byte"),
    [
        (ring, 14, 1.75 * 100 + 0.875 * 10000),
        (recursive_doubling, 3, 3 * 10100),
        (halving_doubling, 6, 1.75 * 100 + 0.875 * 10000),
        (tree, 6, 3 * 10200),
        (double_binary_tree, 6, 10200),
    ],
)
def test_eight_workers_by_hand(algorithm, startup_s, s_per_byte):
    cost = algorithm(8, WIRE)
    assert (cost.startup_s, cost.s_per_byte) == (startup_s, pytest.approx(s_per_byte))


@pytest.mark.parametrize("algorithm", [recursive_doubling, halving_doubling])
@pytest.mark.parametrize("n", [5, 6, 7])
def test_five_to_seven_workers_fold_into_four(algorithm, n):
    core, folded = algorithm(4, WIRE), algorithm(n, WIRE)
    assert folded.startup_s == core.startup_s + 2
    assert folded.s_per_byte == pytest.approx(core.s_per_byte + 2 * 100 + 10000)


@pytest.mark.parametrize("n", [0, -1, 2.5])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_number_of_workers_that_cannot_be_is_refused(name, n):
    with pytest.raises(ValueError, match="whole number of workers"):
        ALGORITHMS[name](n, WIRE)


@given(st.integers(1, 100), st.integers(1, 100))
def test_two_levels_of_rings_send_no_more_bytes_than_one_ring(n_nodes, n_per_node):
    cost = hierarchical(n_nodes, n_per_node, WIRE, WIRE)
    flat = ring(n_nodes * n_per_node, WIRE)
    assert cost.s_per_byte == pytest.approx(flat.s_per_byte)
    assert cost.startup_s == 2 * (n_nodes - 1) + 2 * (n_per_node - 1) <= flat.startup_s


@given(st.integers(1, 100), NAMES)
def test_a_level_with_one_worker_is_no_level(n, name):
    nothing, algorithm = Wire(7.0, 7.0), ALGORITHMS[name]
    assert hierarchical(n, 1, nothing, WIRE, algorithm) == algorithm(n, WIRE)
    assert hierarchical(1, n, WIRE, nothing, algorithm) == ring(n, WIRE)


@given(NAMES, WORKERS, WORKERS, st.floats(0, 10), st.floats(0, 10))
def test_a_cost_from_theory_scales_as_theory_says(name, n, m, latency_s, s_per_byte):
    algorithm, wire = ALGORITHMS[name], Wire(latency_s, s_per_byte)
    scaled = rescale(algorithm(n, wire), n_measured=n, n_workers=m, algorithm=name)
    there = algorithm(m, wire)
    assert scaled.startup_s == pytest.approx(there.startup_s)
    assert scaled.s_per_byte == pytest.approx(there.s_per_byte)


def test_a_ring_of_64_has_21_times_the_start_ups_of_a_ring_of_4():
    scaled = rescale(AffineCost(1.0, 1.0), n_measured=4, n_workers=64)
    assert scaled.startup_s == pytest.approx(63 / 3)
    assert scaled.s_per_byte == pytest.approx((63 / 64) / (3 / 4))


def test_scaling_from_one_worker_or_by_an_unknown_algorithm_is_refused():
    with pytest.raises(ValueError, match="measure at least 2"):
        rescale(AffineCost(1.0, 1.0), n_measured=1, n_workers=4)
    with pytest.raises(ValueError, match="no all-reduce algorithm 'star'"):
        rescale(AffineCost(1.0, 1.0), n_measured=2, n_workers=4, algorithm="star")
