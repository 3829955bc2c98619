"""What must stay in FP32, and why: each fact is computed, and PyTorch's half precision agrees."""

import numpy as np
import pytest
import torch

from allhands.precision.arithmetic import adam_step, norm, running_sum, softmax
from allhands.precision.formats import BF16, FP16, FP32, FP64


def test_ten_thousand_thousandths_add_up_to_four():
    """From 4 on the numbers lie 1/256 apart, and less than half of that changes nothing."""
    values = np.full(10_000, 1e-3)
    assert running_sum(values, FP16) == 4.0
    total = np.float16(0)
    for value in values.astype(np.float16):
        total = np.float16(total + value)
    assert total == 4.0
    assert running_sum(values, FP32) == pytest.approx(10, rel=1e-4)


def test_a_norm_overflows_and_underflows_in_fp16():
    for size, seen in ((4.0, np.inf), (1e-4, 0.0)):
        assert norm(np.full(5000, size), FP16) == seen
        half = torch.full((5000,), size, dtype=torch.float16)
        assert float(half.square().sum().sqrt()) == seen
        assert norm(np.full(5000, size), FP32) == pytest.approx(size * np.sqrt(5000), rel=1e-6)


def test_softmax_of_twelve_is_nan_unless_it_is_shifted():
    scores = [12.0, 11.0]
    assert np.isnan(softmax(scores, FP16, shifted=False)[0])
    exact = torch.softmax(torch.tensor(scores, dtype=torch.float64), 0).numpy()
    np.testing.assert_allclose(softmax(scores, FP16, shifted=True), exact, rtol=2e-3)
    for format in (BF16, FP32, FP64):
        seen = softmax(scores, format, shifted=False)
        np.testing.assert_allclose(seen, exact, rtol=4 * format.epsilon)


def test_adam_s_first_step_is_the_sign_of_the_gradient_but_not_in_fp16():
    for gradient in (1e-5, -1e-5, 0.0):
        weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float16))
        weight.grad = torch.tensor([gradient], dtype=torch.float16)
        torch.optim.Adam([weight], lr=1.0).step()
        np.testing.assert_equal(adam_step(gradient, FP16), -weight.item())
        assert not np.isfinite(adam_step(gradient, FP16))
        assert adam_step(gradient, FP32) == pytest.approx(np.sign(gradient), abs=2e-3)
    assert adam_step(1e-2, FP16, epsilon=1e-4) == pytest.approx(1, abs=0.1)
