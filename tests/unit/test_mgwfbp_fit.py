"""The fit of a cost: right on clean data, robust on dirty data, honest about both."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp import measured
from allhands.mgwfbp.fit import fit

SIZES = np.array([2.0**k for k in range(6, 24)])
LINES = st.tuples(st.floats(1e-6, 1e-1), st.floats(1e-12, 1e-7))


@given(LINES)
def test_points_on_a_line_give_that_line(line):
    startup_s, s_per_byte = line
    found = fit(SIZES, startup_s + s_per_byte * SIZES)
    assert found.cost.startup_s == pytest.approx(startup_s, rel=1e-5)
    assert found.cost.s_per_byte == pytest.approx(s_per_byte, rel=1e-5)
    assert found.worst_error < 1e-5
    assert (found.n_points, found.window_bytes) == (18, (64.0, 2.0**23))


# One to three of the 18 sizes, no two of them neighbours.
PLACES = st.sets(st.integers(0, 17), min_size=1, max_size=3).filter(
    lambda places: not any(place + 1 in places for place in places)
)


@given(LINES, PLACES, st.floats(3, 1000))
def test_a_few_slow_points_do_not_move_the_line(line, places, slower):
    startup_s, s_per_byte = line
    true_s = startup_s + s_per_byte * SIZES
    times_s = true_s.copy()
    times_s[list(places)] *= slower
    found = fit(SIZES, times_s)
    others = [i for i in range(18) if i not in places]
    np.testing.assert_allclose(found.cost(SIZES[others]), true_s[others], rtol=1e-3)
    assert found.worst_n_bytes in SIZES[list(places)]
    assert found.worst_error == pytest.approx(1 - 1 / slower, rel=1e-2)
    assert found.median_error < 1e-3


def test_least_squares_would_have_followed_one_bad_point():
    """The same line by ordinary least squares, to show what the robust fit is for."""
    times_s = 1e-4 + 1e-9 * SIZES
    times_s[-1] *= 3
    slope, startup_s = np.polyfit(SIZES, times_s, 1)
    assert startup_s < 0
    found = fit(SIZES, times_s)
    assert found.cost.startup_s == pytest.approx(1e-4, rel=1e-2)
    assert found.cost.s_per_byte == pytest.approx(1e-9, rel=1e-2)
    assert slope > 2e-9


def test_noise_of_two_per_cent_moves_the_parameters_little():
    noise = 1 + 0.02 * np.random.default_rng(0).standard_normal(200)
    sizes = np.geomspace(64, 2**23, 200)
    found = fit(sizes, (1e-4 + 1e-9 * sizes) * noise)
    assert found.cost.startup_s == pytest.approx(1e-4, rel=0.01)
    assert found.cost.s_per_byte == pytest.approx(1e-9, rel=0.01)
    assert 0.005 < found.median_error < 0.03


@given(st.permutations(range(18)), st.floats(1e-3, 1e3))
def test_order_plays_no_part_and_time_may_have_any_unit(order, unit):
    times_s = (1e-4 + 1e-9 * SIZES) * (1 + 0.05 * np.cos(np.arange(18)))
    found, other = fit(SIZES, times_s), fit(SIZES[order], unit * times_s[order])
    assert other.cost.startup_s == pytest.approx(unit * found.cost.startup_s, rel=1e-6)
    assert other.cost.s_per_byte == pytest.approx(unit * found.cost.s_per_byte, rel=1e-6)
    np.testing.assert_allclose(other.relative_errors, found.relative_errors, atol=1e-6)


def test_only_the_window_is_fitted_and_it_is_stated():
    times_s = np.where(SIZES < 2**12, 1.0, 1e-4 + 1e-9 * SIZES)
    found = fit(SIZES, times_s, window_bytes=(2**12, 2**20))
    assert found.window_bytes == (2.0**12, 2.0**20)
    assert found.cost.startup_s == pytest.approx(1e-4)
    assert "9 points of 4096 to 1048576 bytes" in str(found)


def test_free_start_up_and_free_bytes_are_found_as_zero():
    assert fit(SIZES, 1e-9 * SIZES).cost.startup_s == 0.0
    assert fit(SIZES, np.full(18, 0.5)).cost.s_per_byte == 0.0


@pytest.mark.parametrize(
    ("n_bytes", "time_s", "sentence"),
    [
        ([1, 2, 3], [3.0, 2.0, 1.0], "measured faster"),
        ([1, 2, 3], [1.0, 10.0, 19.0], "negative start-up"),
        ([5, 5, 5], [1.0, 1.1, 1.2], "at least 2 distinct sizes"),
        ([], [], "at least 2 distinct sizes"),
        ([1, 2], [1.0, math.nan], "finite"),
        ([1, math.inf], [1.0, 2.0], "finite"),
        ([1, 2], [1.0], "one time"),
        ([1, 2], [0.0, 1.0], "more than 0 s"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(n_bytes, time_s, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit(n_bytes, time_s)


def test_an_empty_window_is_refused():
    with pytest.raises(ValueError, match="widen window_bytes"):
        fit(SIZES, SIZES, window_bytes=(65, 127))


def test_a_measured_table_agrees_with_an_independent_fit_of_the_same_window():
    """alpha_beta.csv has a fit of 200 to 500 kB at 8 nodes by another program."""
    found = fit(*measured.osu_allreduce_10gbe(8), window_bytes=(200e3, 500e3))
    assert found.cost.startup_s == pytest.approx(1.1120e-03, rel=0.02)
    assert found.cost.s_per_byte == pytest.approx(1.9945e-09, rel=0.02)


def test_a_change_of_protocol_shows_in_the_quality():
    table = measured.osu_allreduce_10gbe(8)
    narrow, all_sizes = fit(*table, window_bytes=(200e3, 500e3)), fit(*table)
    assert narrow.worst_error < 0.05 < all_sizes.median_error
