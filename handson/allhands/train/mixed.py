"""How does mixed-precision training work? Its four steps by hand in PyTorch, then the library's.

    1. half_copy            forward and backward run on an FP16 copy of the model
    2. master_weights       the optimizer changes FP32 weights; the copy follows (to_half)
    3. loss x scale         so that small gradients survive in FP16; LossScaler says how large
    4. step                 backward, unscale in FP32, look for inf and nan, clip, update or skip

Source: Micikevicius et al., "Mixed Precision Training", ICLR 2018, sections 3.1 to 3.3. All of it
runs on a CPU: slower than FP32 there, with the same numbers that a GPU would round to.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn

from allhands.precision.scaler import LossScaler


def half_copy(model: nn.Module, dtype: torch.dtype = torch.float16) -> nn.Module:
    """Return a copy of `model` with its floating-point numbers in `dtype`.

    The model itself stays as it is, and the two share no memory. Whole numbers (a counter, a table
    of ids) keep their type.
    """
    return copy.deepcopy(model).to(dtype)


def master_weights(model: nn.Module) -> list[nn.Parameter]:
    """Return new FP32 parameters with the values of `model.parameters()`, in that order.

    They share no memory with the model. A parameter that is not trained (requires_grad is False)
    stays so. The optimizer is made for these parameters, not for the model's.
    """
    return [
        nn.Parameter(param.detach().to(torch.float32, copy=True), param.requires_grad)
        for param in model.parameters()
    ]


def to_half(master: Sequence[nn.Parameter], half: nn.Module) -> None:
    """Give the parameters of `half` the values of `master`, rounded to their own type.

    The parameters keep their place in memory, so that whoever holds one sees the new values.
    """
    with torch.no_grad():
        for param, exact in zip(half.parameters(), master, strict=True):
            param.copy_(exact)


def unscale(half: nn.Module, master: Sequence[nn.Parameter], scale: float) -> bool:
    """Put the gradients of `half`, in FP32 and divided by `scale`, into `master[i].grad`.

    First FP32, then divide: an FP16 gradient that is divided in FP16 underflows after all. A
    parameter without a gradient leaves None. Returns True if all gradients are finite, False if any
    of them holds inf or nan.
    """
    finite = True
    for param, exact in zip(half.parameters(), master, strict=True):
        exact.grad = None if param.grad is None else param.grad.float() / scale
        if exact.grad is not None and not torch.isfinite(exact.grad).all():
            finite = False
    return finite


def step(
    half: nn.Module,
    master: Sequence[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    scaler: LossScaler,
    loss: torch.Tensor,
    clip_norm: float = math.inf,
) -> bool:
    """Make one step of mixed-precision training; return whether the weights were updated.

    `loss` is what `half` computed, in FP32 and not yet scaled. In this order: clear the gradients
    of `half`; multiply the loss by the scale, and go backward; unscale; if all gradients are
    finite, clip their norm over all parameters to `clip_norm`, let the optimizer (of `master`) make
    its step, and round the new weights into `half`. If one is not finite, leave weights and
    optimizer exactly as they were. At last tell the scaler what happened.

    Clip after unscaling: `clip_norm` is a limit for the true gradients, and they are `scale` times
    as large before. A loss in FP16 would make every scale above 65504 infinite: cast the model's
    output to FP32 before the loss.
    """
    half.zero_grad()
    (loss * scaler.scale).backward()
    finite = unscale(half, master, scaler.scale)
    if finite:
        nn.utils.clip_grad_norm_(master, clip_norm)
        optimizer.step()
        to_half(master, half)
    scaler.update(found_inf=not finite)
    return finite


def sgd_step(weights: Sequence[torch.Tensor], scale: float, max_norm: float, rate: float) -> bool:
    """Make one step of plain SGD on FP32 weights whose `.grad` is still multiplied by `scale`.

    Unscale, look for inf and nan in all gradients, clip their norm over all weights, move. Returns
    True, or False if the step was skipped: then no weight has changed.
    """
    for weight in weights:
        weight.grad = weight.grad / scale
    if not all(weight.grad.isfinite().all() for weight in weights):
        return False
    nn.utils.clip_grad_norm_(weights, max_norm)
    with torch.no_grad():
        for weight in weights:
            weight -= rate * weight.grad
    return True


def library_step(
    model: nn.Module,
    loss_of: Callable[[nn.Module], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    clip_norm: float = math.inf,
    dtype: torch.dtype = torch.float16,
) -> bool:
    """The same step by torch.amp; return whether the weights were updated.

    `model` stays in FP32, and `optimizer` is made for its parameters: they are the master weights.
    autocast makes the FP16 copies on the way and chooses what runs in FP16. `loss_of(model)` runs
    under it and returns the loss.

    Raises ValueError for a scaler that is switched off, as torch.amp.GradScaler() without a device
    is on a machine without a GPU.
    """
    if not scaler.is_enabled():
        raise ValueError(
            "This GradScaler is switched off, so nothing would be scaled: torch.amp.GradScaler() "
            "is for CUDA, and PyTorch sees no GPU here. On a CPU write "
            "torch.amp.GradScaler('cpu')."
        )
    device = next(model.parameters()).device.type
    optimizer.zero_grad()
    with autocast(device, dtype):
        loss = loss_of(model)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale() >= scale


@contextmanager
def autocast(device: str, dtype: torch.dtype) -> Iterator[None]:
    """torch.autocast, under which nn.LSTM runs in float16 on a CPU as well.

    oneDNN (`mkldnn`), which computes an LSTM on a CPU, knows float16 on few CPUs. On the others
    PyTorch 2.13 stops with "could not create a primitive descriptor for the LSTM forward
    propagation primitive". Without oneDNN it computes the same, more slowly.
    """
    onednn = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = onednn and not (device == "cpu" and dtype == torch.float16)
    try:
        with torch.autocast(device, dtype):
            yield
    finally:
        torch.backends.mkldnn.enabled = onednn
