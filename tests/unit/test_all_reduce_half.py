"""Sums in 16 bits: what overflows, is lost, is rounded; half the bytes, all the messages."""

import numpy as np
import pytest

from allhands.mgwfbp.cost import AffineCost
from allhands.precision import formats
from allhands.train import half_all_reduce
from allhands.train.half_all_reduce import BF16, FP16, VALUES, gain, outcomes_of
from allhands.train.rehearsal import rehearse

PAIRS = [(BF16, formats.BF16), (FP16, formats.FP16)]


def numbers(seed=0, n=20_000):
    """Any FP32 bits: subnormal, huge, infinite."""
    bits = np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32)
    values = bits.view(np.float32)
    return values[~np.isnan(values)]


@pytest.mark.parametrize(("half", "format"), PAIRS, ids=["BF16", "FP16"])
def test_packing_rounds_as_the_format_does(half, format):
    halfway = 1 + np.arange(8) * np.float32(format.epsilon) / 2
    values = np.concatenate([numbers(), halfway, -halfway, [0.0, -0.0, np.inf, -np.inf]])
    values = values.astype(np.float32)
    packed = half.pack(values)
    assert packed.dtype == np.uint16
    expected = formats.round_to(values, format)
    np.testing.assert_array_equal(half.unpack(packed), expected)
    np.testing.assert_array_equal(np.signbit(half.unpack(packed)), np.signbit(expected))


@pytest.mark.parametrize("half", [BF16, FP16], ids=["BF16", "FP16"])
def test_every_number_of_the_format_survives_packing_and_nan_stays_nan(half):
    bits = np.arange(2**16, dtype=np.uint16)
    values = half.unpack(bits)
    is_nan = np.isnan(values)
    np.testing.assert_array_equal(half.pack(values)[~is_nan], bits[~is_nan])
    assert np.isnan(half.unpack(half.pack(values)))[is_nan].all()


def sums(half, *given):
    """What each rank has in the end."""
    program = half_all_reduce.sum_over_ranks
    inputs = [np.array(values, np.float32) for values in given]
    return rehearse(lambda comm, values: program(comm, values, half), inputs).results


@pytest.mark.parametrize(("half", "format"), PAIRS, ids=["BF16", "FP16"])
def test_each_partial_sum_is_rounded_once_and_all_ranks_have_it(half, format):
    """Chunk c of a ring starts at rank c and ends at rank c - 1; float64 holds a sum of two."""
    given = [numbers(seed, 4000)[:3000] for seed in range(3)]
    rounded = [formats.round_to(values, format) for values in given]
    expected = np.empty(3000)
    with np.errstate(invalid="ignore"):  # inf - inf
        for chunk in range(3):
            part = slice(1000 * chunk, 1000 * (chunk + 1))
            total = rounded[chunk][part]
            for rank in ((chunk + 1) % 3, (chunk + 2) % 3):
                total = formats.round_to(total + rounded[rank][part], format)
            expected[part] = total
    for result in sums(half, *given):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(("half", "last"), [(BF16, 256.0), (FP16, 2048.0)], ids=["BF16", "FP16"])
def test_bf16_stops_counting_at_256_and_fp16_at_2048(half, last):
    for result in sums(half, [last, last - 1], [1.0, 1.0]):
        assert result.tolist() == [last, last]


@pytest.mark.parametrize("n_ranks", [2, 3, 4, 8])
def test_each_way_loses_what_its_name_says(n_ranks):
    """40,000 from each rank passes 65,504; 2^-24 divided by 2 or more rounds to 0."""
    seen = rehearse(lambda comm, _: outcomes_of(comm), [None] * n_ranks).results[0]
    reference, sum_first, divide_first, bf16 = seen
    assert (reference.overflowed, reference.lost) == ([], [])
    assert (sum_first.overflowed, sum_first.lost) == (["large"], [])
    assert (divide_first.overflowed, divide_first.lost) == ([], ["small"])
    assert (bf16.overflowed, bf16.lost) == ([], [])
    roundings = n_ranks  # of the input, and of each partial sum
    assert max(bf16.relative_errors.values()) <= roundings * 2.0**-8
    for name in ("large", "ordinary"):
        assert divide_first.relative_errors[name] <= roundings * 2.0**-11
    assert bf16.relative_errors["large"] > divide_first.relative_errors["large"]
    assert max(reference.relative_errors.values()) <= roundings * 2.0**-24


def test_the_same_messages_with_half_the_bytes():
    for outcomes in rehearse(lambda comm, _: outcomes_of(comm), [None] * 3).results:
        reference, *halves = outcomes
        for half in halves:
            assert half.n_messages == reference.n_messages == 4
            assert 2 * half.sent_bytes == reference.sent_bytes


def test_all_ways_agree_where_every_number_and_sum_is_exact():
    given = [np.float32([1, 2, -4, 0.5]), np.float32([3, -2, 8, 0.25])]
    for way in half_all_reduce.WAYS.values():
        for mean in rehearse(way, given).results:
            assert mean.dtype == np.float32
            np.testing.assert_array_equal(mean, [2, 0, 2, 0.375])


def test_half_the_bytes_gain_nothing_for_short_messages_and_a_factor_of_two_for_long_ones():
    cost = AffineCost(startup_s=1e-3, s_per_byte=1e-9)
    assert gain(cost, 0) == 1
    assert gain(cost, 1e6) == pytest.approx(2 / 1.5)  # the bytes take as long as the start-up
    assert gain(cost, 1e12) == pytest.approx(2, rel=1e-5)


def test_the_table_names_every_way_and_value():
    seen = rehearse(lambda comm, _: outcomes_of(comm), [None] * 2).results[0]
    head, *rows = half_all_reduce.table(seen).splitlines()
    assert all(name in head for name in VALUES)
    assert [row[:24].strip() for row in rows] == list(half_all_reduce.WAYS)
    assert "inf" in rows[1]


def test_a_nan_whose_upper_bits_are_those_of_infinity_stays_nan():
    """Cut to its upper 16 bits, the first is infinity; rounding carries the second to -0."""
    values = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    for half in (BF16, FP16):
        assert np.isnan(half.unpack(half.pack(values))).all()
