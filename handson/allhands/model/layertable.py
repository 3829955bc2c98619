"""Which gradients does a model have, how large are they, and in which order do they arrive?

`arrival_table` runs one backward pass and watches. Works for Chainer and for PyTorch models. The
order is what a plan (mgwfbp/plan.py) numbers: gradient 0 is ready first.
"""

from collections.abc import Callable
from dataclasses import dataclass

import chainer


@dataclass(frozen=True)
class Layer:
    """One parameter and its gradient."""

    name: str
    shape: tuple[int, ...]
    grad_bytes: int


class _LastUse(chainer.FunctionHook):
    """Notes when backward passes the last use of each parameter: its gradient is complete."""

    name = "LastUse"

    def __init__(self) -> None:
        self.last_use: dict[int, int] = {}
        self._count = 0

    def backward_postprocess(self, function, in_data, out_grad) -> None:
        self._count += 1
        for node in function.inputs:
            self.last_use[id(node)] = self._count


def arrival_table(model, compute_loss: Callable[[], object]) -> tuple[Layer, ...]:
    """The parameters of `model` in the order in which one backward pass completes their gradients.

    model: a chainer.Link or a torch.nn.Module. compute_loss() returns a fresh loss of it.
    Parameters that the loss does not use are left out. The gradients of the model are overwritten.
    """
    if isinstance(model, chainer.Link):
        model.cleargrads()
        loss, hook = compute_loss(), _LastUse()
        with hook:
            loss.backward()
        used = [(hook.last_use.get(id(p.node)), name, p) for name, p in model.namedparams()]
        order = sorted((when, name, p.grad) for when, name, p in used if when is not None)
        return tuple(Layer(name, grad.shape, grad.nbytes) for _, name, grad in order)

    arrived: list[Layer] = []

    def note(name: str) -> Callable:
        return lambda p: arrived.append(
            Layer(name, tuple(p.shape), p.grad.numel() * p.grad.element_size())
        )

    model.zero_grad()
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    handles = [p.register_post_accumulate_grad_hook(note(name)) for name, p in named]
    try:
        compute_loss().backward()
    finally:
        for handle in handles:
            handle.remove()
    return tuple(arrived)
