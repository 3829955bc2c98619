"""The loss scaler: the same scale sequence as torch.amp.GradScaler, whatever overflows."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allhands.precision.scaler import LossScaler

PLANTED = [True, False, False, False, True, True, False, False, False, False, True, False, False]


def scales_of_pytorch(overflows, **options) -> list[float]:
    """The scales of GradScaler after steps whose gradient is inf where `overflows` says so."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", **options)
    scales = []
    for found_inf in overflows:
        scaler.scale(torch.zeros(1))  # GradScaler makes its scale at the first use
        weight.grad = torch.full((1,), math.inf if found_inf else 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def scales_of_ours(overflows, scaler: LossScaler) -> list[float]:
    scales = []
    for found_inf in overflows:
        scaler.update(found_inf)
        scales.append(scaler.scale)
    return scales


@pytest.mark.parametrize("interval", [1, 2, 3, 2000])
def test_the_planted_pattern_gives_the_scales_of_pytorch(interval):
    ours = scales_of_ours(PLANTED * 3, LossScaler(interval=interval))
    assert ours == scales_of_pytorch(PLANTED * 3, growth_interval=interval)
    assert ours[0] == 2.0**15


@given(
    st.lists(st.booleans(), max_size=40),
    st.floats(1e-30, 1e38),
    st.floats(1, 1e9),
    st.floats(1e-9, 1, exclude_max=True),
    st.integers(1, 5),
)
def test_any_pattern_and_any_numbers_give_the_scales_of_pytorch(
    overflows, scale, growth, backoff, interval
):
    if growth == 1:
        growth = 1.5  # PyTorch asks for more than 1
    ours = scales_of_ours(overflows, LossScaler(scale, growth, backoff, interval))
    options = {"growth_factor": growth, "backoff_factor": backoff, "growth_interval": interval}
    assert ours == scales_of_pytorch(overflows, init_scale=scale, **options)


def test_by_hand_grow_back_off_and_begin_to_count_anew():
    scaler = LossScaler(scale=8, interval=2)
    assert scales_of_ours([False, False, False, True, False, False], scaler) == [
        *(8, 16, 16),  # the second good step doubles it
        *(8, 8, 16),  # the overflow halves it, and the count begins at 0
    ]


def test_the_scale_never_becomes_infinite():
    scaler = LossScaler(scale=2.0**126, interval=1)
    assert scales_of_ours([False] * 4, scaler) == [2.0**127] * 4


def test_a_static_scale_stays():
    assert scales_of_ours(PLANTED, LossScaler.static(1024)) == [1024] * len(PLANTED)


@pytest.mark.parametrize("scale", [0, -1, math.inf, math.nan])
def test_a_scale_that_cannot_be_divided_by_is_refused(scale):
    with pytest.raises(ValueError, match="must be positive and finite"):
        LossScaler(scale)


@pytest.mark.parametrize(
    "wrong", [{"growth": 0.5}, {"backoff": 0}, {"backoff": 2}, {"interval": 0}]
)
def test_factors_that_would_turn_the_rule_round_are_refused(wrong):
    with pytest.raises(ValueError, match="growth of at least 1, backoff between 0 and 1"):
        LossScaler(**wrong)
