"""Do Chainer's optimizers and hooks, given gradients, move the parameters where they should?

The oracles: PyTorch's optimizers on the same gradients, and cases worked by hand.
"""

import re
from pathlib import Path

import chainer
import numpy as np
import pytest

try:
    import torch
except ImportError:  # where PyTorch has no wheel yet, the cases by hand still run
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch, the oracle, is not installed here")

HANDSON = Path(__file__).parents[2] / "handson"

OPTIMIZERS = {
    "SGD": (lambda: chainer.optimizers.SGD(lr=0.1), lambda ps: torch.optim.SGD(ps, 0.1)),
    "MomentumSGD": (
        lambda: chainer.optimizers.MomentumSGD(lr=0.1, momentum=0.9),
        lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
    ),
    # Chainer adds eps before it corrects the bias, PyTorch after: with a vanishing eps they agree.
    "Adam": (
        lambda: chainer.optimizers.Adam(alpha=0.1, eps=1e-30),
        lambda ps: torch.optim.Adam(ps, 0.1, eps=1e-30),
    ),
}


def five_steps_of_chainer(optimizer, w: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    link = chainer.Link()
    with link.init_scope():
        link.w = chainer.Parameter(w.copy())
    optimizer.setup(link)
    for gradient in gradients:
        link.w.grad = gradient.copy()
        optimizer.update()
    return link.w.array


@needs_torch
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_five_updates_are_those_of_pytorch(name):
    chainers, torchs = OPTIMIZERS[name]
    random = np.random.RandomState(4)
    w, gradients = random.randn(3, 2), random.randn(5, 3, 2)
    parameter = torch.tensor(w, requires_grad=True)
    optimizer = torchs([parameter])
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    ours = five_steps_of_chainer(chainers(), w, gradients)
    np.testing.assert_allclose(ours, parameter.detach().numpy(), rtol=1e-12, atol=1e-12)


def test_adams_first_step_is_the_step_size_whatever_the_gradient():
    """m / sqrt(v) is the gradient's sign then (Kingma and Ba 2015, section 2.1)."""
    gradient = np.array([1e-3, -20.0])
    moved = five_steps_of_chainer(
        chainer.optimizers.Adam(alpha=0.1, eps=1e-30), np.zeros(2), gradient[None]
    )
    np.testing.assert_allclose(moved, [-0.1, 0.1], rtol=1e-9)


@pytest.mark.parametrize(("threshold", "factor"), [(2.5, 0.5), (5.0, 1.0), (10.0, 1.0)])
def test_gradient_clipping_scales_all_gradients_by_their_common_norm(threshold, factor):
    link = chainer.Link()
    with link.init_scope():
        link.a, link.b = chainer.Parameter(np.zeros(1)), chainer.Parameter(np.zeros(1))
    optimizer = chainer.optimizers.SGD(lr=1.0).setup(link)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(threshold))
    link.a.grad, link.b.grad = np.array([3.0]), np.array([4.0])  # together of norm 5
    optimizer.update()
    assert link.a.array.item() == pytest.approx(-3 * factor)
    assert link.b.array.item() == pytest.approx(-4 * factor)


def test_every_optimizer_and_hook_that_the_package_uses_is_tested_here():
    source = "".join(file.read_text() for file in HANDSON.rglob("*.py"))
    used = set(re.findall(r"chainer\.(optimizers\.\w+|optimizer_hooks\.\w+)", source))
    tested = {f"optimizers.{name}" for name in OPTIMIZERS} | {"optimizer_hooks.GradientClipping"}
    assert used
    assert used <= tested
