"""Number formats: NumPy's float16 and PyTorch's bfloat16, which others wrote, are the oracles."""

import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allhands.precision.formats import BF16, FORMATS, FP16, FP32, FP64, TF32, neighbours, round_to

ALL_FP16 = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
FINITE_FP16 = np.unique(ALL_FP16[np.isfinite(ALL_FP16)])
anything = st.floats(allow_nan=True, allow_infinity=True, width=64)


def same(one: np.ndarray, other: np.ndarray) -> bool:
    """Equal bit for bit, where nan is nan and the zeros' signs count."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    equal = (one == other) & (np.signbit(one) == np.signbit(other))
    return bool(np.all(equal | (np.isnan(one) & np.isnan(other))))


def test_every_fp16_number_stays_as_it_is():
    assert same(round_to(ALL_FP16, FP16), ALL_FP16)


def test_midpoints_of_fp16_and_what_is_just_beside_them_round_as_numpy_rounds():
    middles = (FINITE_FP16[1:] + FINITE_FP16[:-1]) / 2
    for beside in (middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)):
        assert same(round_to(beside, FP16), beside.astype(np.float16))


@given(anything)
def test_any_number_rounds_as_numpy_and_pytorch_round(value):
    with np.errstate(over="ignore"):
        assert same(round_to(value, FP16), np.float64(value).astype(np.float16))
        single = np.float64(value).astype(np.float32)
    assert same(round_to(value, FP32), single)
    assert same(round_to(value, FP64), value)
    assert same(round_to(single, BF16), torch.tensor(single).bfloat16().double().numpy())


@given(st.integers(0, 2**32 - 1))
def test_tf32_drops_the_last_13_bits_of_fp32(bits):
    """Of numbers with these bits 0 nothing is lost; others move by at most half of the 14th."""
    cut = bits & ~(2**13 - 1)
    kept, value = (struct.unpack("<f", struct.pack("<I", word))[0] for word in (cut, bits))
    if np.isfinite(kept):
        assert same(round_to(kept, TF32), kept)
    if np.isfinite(value) and abs(value) < TF32.largest:
        step = max(abs(value) * TF32.epsilon, TF32.smallest)
        assert abs(float(round_to(value, TF32)) - value) <= step / 2


@pytest.mark.parametrize(("one", "numpy"), [(FP16, np.float16), (FP32, np.float32), (FP64, float)])
def test_limits_are_those_of_the_standard(one, numpy):
    said = np.finfo(numpy)
    assert (one.largest, one.epsilon, one.bits) == (said.max, said.eps, said.bits)
    assert (one.smallest_normal, one.smallest) == (said.smallest_normal, said.smallest_subnormal)


def test_limits_of_bfloat16_are_those_of_pytorch():
    said = torch.finfo(torch.bfloat16)
    assert (BF16.largest, BF16.epsilon, BF16.smallest_normal) == (said.max, said.eps, said.tiny)
    assert (BF16.bits, TF32.bits) == (16, 19)


def test_numbers_that_the_lab_speaks_of():
    assert round_to([65504, 65519, 65520], FP16).tolist() == [65504, 65504, np.inf]
    assert round_to([2.0**-24, 2.0**-25, 1.01 * 2.0**-25, 1e-8], FP16).tolist() == [
        *(2.0**-24, 0.0, 2.0**-24, 0.0),
    ]
    assert round_to(1 + 2.0**-11, FP16) == 1 == round_to(1 + 2.0**-8, BF16)
    assert round_to(1 + 3 * 2.0**-11, FP16) == 1 + 2.0**-9  # a tie goes to the even neighbour
    weight = float(round_to(0.1, FP16))
    assert round_to(weight - 3e-5, FP16) == weight != round_to(weight - 4e-5, FP16)


@pytest.mark.parametrize("one", FORMATS, ids=lambda one: one.name)
def test_shapes_stay_and_the_answer_is_float64(one):
    rounded = round_to(np.ones((2, 0, 3), np.float16), one)
    assert (rounded.shape, rounded.dtype) == ((2, 0, 3), np.float64)


def test_neighbours_are_the_fp16_numbers_before_and_after():
    ends = [0, 1, 2, -3, -2, -1]
    places = [*range(1000, len(FINITE_FP16), 97), *(i % len(FINITE_FP16) for i in ends)]
    line = [-np.inf, *FINITE_FP16, np.inf]
    for i in places:
        assert neighbours(FINITE_FP16[i], FP16) == (line[i], line[i + 2])


@given(st.floats(-7e4, 7e4))
def test_neighbours_of_any_value_stand_around_it_with_no_number_between(value):
    below, above = neighbours(value, FP16)
    assert below < value < above
    between = [one for one in FINITE_FP16 if below < one < above]
    assert set(between) <= {value}


def test_infinity_and_nan_have_neighbours_too():
    assert neighbours(np.inf, FP16) == (65504, np.inf)
    assert neighbours(-np.inf, FP16) == (-np.inf, -65504)
    assert all(np.isnan(neighbours(np.nan, FP16)))
