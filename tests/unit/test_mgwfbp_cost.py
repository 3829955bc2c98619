"""Costs of an all-reduce: what they say, what they refuse, and what compression does to them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp.cost import AffineCost, TabulatedCost

PART = st.floats(0, 10)
SIZE = st.integers(0, 10**9)


def test_an_affine_cost_is_start_up_and_bytes():
    cost = AffineCost(startup_s=2.0, s_per_byte=0.5)
    assert cost(0) == 2.0
    assert cost(10) == 7.0
    assert cost(np.array([0, 10])).tolist() == [2.0, 7.0]


@given(st.integers(0, 100), st.integers(0, 100), SIZE, SIZE)
def test_two_messages_cost_one_start_up_more_than_one(startup_s, s_per_byte, x, y):
    cost = AffineCost(startup_s, s_per_byte)
    assert cost(x) + cost(y) - cost(x + y) == startup_s


@pytest.mark.parametrize("value", [-1e-9, math.nan, math.inf])
@pytest.mark.parametrize("name", ["startup_s", "s_per_byte"])
def test_a_cost_that_cannot_be_is_refused(name, value):
    parts = {"startup_s": 1.0, "s_per_byte": 1.0, name: value}
    with pytest.raises(ValueError, match=f"expected {name}"):
        AffineCost(**parts)


def test_a_table_is_met_at_its_points_and_straight_between_and_after_them():
    cost = TabulatedCost((10, 20, 40), (1.0, 2.0, 8.0))
    assert [cost(s) for s in (0, 10, 15, 20, 30, 40, 50)] == [1.0, 1.0, 1.5, 2.0, 5.0, 8.0, 11.0]
    assert cost(np.array([[10], [50]])).tolist() == [[1.0], [11.0]]
    assert cost.startup_s == 1.0


@given(PART.filter(lambda a: a > 0), PART, SIZE)
def test_a_table_of_a_straight_line_is_that_line(startup_s, s_per_byte, n_bytes):
    line = AffineCost(startup_s, s_per_byte)
    table = TabulatedCost((0, 1000, 5000), tuple(line(s) for s in (0, 1000, 5000)))
    assert table(n_bytes) == pytest.approx(line(n_bytes), rel=1e-6)


def test_noise_is_ironed_out_of_measured_points():
    cost = TabulatedCost.from_measured([20, 10, 10, 10, 30], [1.5, 1.0, 9.0, 2.0, 3.0])
    assert cost == TabulatedCost((10, 20, 30), (2.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("n_bytes", "time_s", "sentence"),
    [
        ((1, 2), (1.0,), "one time"),
        ((1,), (1.0,), "at least 2 sizes"),
        ((2, 2), (1.0, 1.0), "larger than the one before"),
        ((1, 2), (2.0, 1.0), "cannot cost less"),
        ((1, 2), (1.0, math.nan), "finite"),
        ((-1, 2), (1.0, 2.0), "0 bytes or more"),
        ((1, 2), (0.0, 2.0), "more than 0 s"),
    ],
)
def test_a_table_that_cannot_be_is_refused(n_bytes, time_s, sentence):
    with pytest.raises(ValueError, match=sentence):
        TabulatedCost(n_bytes, time_s)


@given(st.floats(0.01, 2), st.floats(0, 1), SIZE)
def test_compression_sends_fewer_bytes_and_adds_its_own_time(bytes_factor, overhead_s, n_bytes):
    for cost in (AffineCost(0.25, 1e-9), TabulatedCost((1, 2**20, 2**30), (0.1, 0.3, 0.9))):
        smaller = cost.compressed(bytes_factor, overhead_s)
        assert smaller(n_bytes) == pytest.approx(cost(bytes_factor * n_bytes) + overhead_s)


@pytest.mark.parametrize("arguments", [(0.0,), (-1.0,), (math.nan,), (0.5, -1.0), (0.5, math.inf)])
def test_a_compression_that_cannot_be_is_refused(arguments):
    for cost in (AffineCost(1, 1), TabulatedCost((1, 2), (1, 2))):
        with pytest.raises(ValueError, match=r"compress"):
            cost.compressed(*arguments)
