"""When does each gradient of a model arrive? Measured, for a planner; and made equal on all ranks.

    gradients = agree(probe(model, lambda: model.loss(batch)), exchange)
    cost = fit(*measure_link(exchange, sizes)).cost
    plan = fewest_messages(gradients, cost)

The device is not held up: a hook only stamps the moment (on a GPU by a CUDA event), and the stamps
are read when the step is over. A program that waits for the GPU at each tensor makes short layers
look long, and merges too little or too much.

Conventions: as in mgwfbp/gradients.py; seconds from the start of the forward pass.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import chainer
import numpy as np
import torch

from allhands.mgwfbp.gradients import Gradients
from allhands.train.merged.exchange import Exchange
from allhands.train.stamps import stamps_for


@dataclass(frozen=True)
class _Step:
    """One measured step; ready_s counts from the start of backward, by name."""

    forward_s: float
    ready_s: dict[str, float]
    backward_s: float


def probe(
    model: torch.nn.Module | chainer.Link,
    compute_loss: Callable[[], object],
    *,
    steps: int = 5,
    warm_up: int = 3,
) -> Gradients:
    """Measure `steps` steps after `warm_up` others; return medians, sorted by arrival.

    compute_loss() returns a fresh loss of `model`, with a graph; its time is the forward pass.
    Parameters that backward never reaches come last, at the end of it. Gradients are overwritten;
    parameters stay as they are. A Chainer model is probed on a CPU only. Raises ValueError for a
    model without trainable parameters, or fewer than 1 step.
    """
    if steps < 1 or warm_up < 0:
        raise ValueError(
            f"A probe needs 1 step or more, and no less than 0 to warm up; saw {steps} "
            f"and {warm_up}."
        )
    is_chainer = isinstance(model, chainer.Link)
    one_step, n_bytes = (_chainer if is_chainer else _torch)(model, compute_loss)
    if not n_bytes:
        raise ValueError("The model has no trainable parameter, so it has no gradient to probe.")
    measured = [one_step(compute_loss) for _ in range(warm_up + steps)][warm_up:]
    return _median(measured, n_bytes)


def _median(measured: Sequence[_Step], n_bytes: dict[str, int]) -> Gradients:
    forward_s = statistics.median(step.forward_s for step in measured)
    end_s = statistics.median(step.backward_s for step in measured)
    ready_s = {}
    for name in n_bytes:
        seen = [step.ready_s[name] for step in measured if name in step.ready_s]
        ready_s[name] = statistics.median(seen) if seen else end_s
    return in_order(ready_s, n_bytes, forward_s)


def in_order(ready_s: dict[str, float], n_bytes: dict[str, int], forward_s: float) -> Gradients:
    """Make gradients in order of arrival, by name.

    ready_s counts from the start of the backward pass; of equal times, the first named is first.
    """
    order = sorted(ready_s, key=ready_s.__getitem__)
    return Gradients(
        [forward_s + ready_s[name] for name in order],
        [n_bytes[name] for name in order],
        forward_s,
        order,
    )


def _torch(model: torch.nn.Module, _):
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    n_bytes = {name: p.numel() * p.element_size() for name, p in parameters.items()}
    stamps = stamps_for(next((p.device for p in parameters.values()), "cpu"))

    def one_step(compute_loss: Callable[[], torch.Tensor]) -> _Step:
        marks: dict[str, object] = {}

        def note(name: str) -> Callable:
            return lambda _: marks.__setitem__(name, stamps.mark())

        model.zero_grad()
        handles = [
            p.register_post_accumulate_grad_hook(note(name)) for name, p in parameters.items()
        ]
        try:
            start = stamps.mark()
            loss = compute_loss()
            middle = stamps.mark()
            loss.backward()
            end = stamps.mark()
        finally:
            for handle in handles:
                handle.remove()
        start_s, middle_s, *ready_s, end_s = stamps.read([start, middle, *marks.values(), end])
        arrived = {name: at_s - middle_s for name, at_s in zip(marks, ready_s, strict=True)}
        return _Step(middle_s - start_s, arrived, end_s - middle_s)

    return one_step, n_bytes


class _LastUseTimes(chainer.FunctionHook):
    """Notes when backward passes each use of a variable: the last use of a parameter counts."""

    name = "LastUseTimes"

    def __init__(self) -> None:
        self.at_s: dict[int, float] = {}

    def backward_postprocess(self, function, in_data, out_grad) -> None:
        now_s = time.perf_counter()
        for node in function.inputs:
            self.at_s[id(node)] = now_s


def _chainer(model: chainer.Link, compute_loss: Callable[[], chainer.Variable]):
    if model.device.xp is not np:
        raise ValueError(
            "A Chainer model is probed on a CPU only: its hooks tell when a GPU was asked, not "
            "when it was done. Probe the PyTorch twin of the model, or call model.to_cpu() before."
        )
    if any(not p.is_initialized for p in model.params()):
        compute_loss()  # their shapes are known after a first call
    parameters = dict(model.namedparams())
    n_bytes = {name: p.array.nbytes for name, p in parameters.items()}

    def one_step(compute_loss: Callable[[], chainer.Variable]) -> _Step:
        model.cleargrads()
        hook = _LastUseTimes()
        start_s = time.perf_counter()
        loss = compute_loss()
        middle_s = time.perf_counter()
        with hook:
            loss.backward()
        end_s = time.perf_counter()
        arrived = {
            name: hook.at_s[id(p.node)] - middle_s
            for name, p in parameters.items()
            if id(p.node) in hook.at_s
        }
        return _Step(middle_s - start_s, arrived, end_s - middle_s)

    return one_step, n_bytes


def agree(gradients: Gradients, exchange: Exchange) -> Gradients:
    """Return gradients that are the same on all ranks: each as late as on its slowest rank.

    All ranks call it, each with its own probe of the same model. A group can leave when the slowest
    rank has it, so the largest time counts. The order is that of the agreed times. Raises
    RanksDisagree if names or sizes differ.
    """
    n_bytes = dict(sorted(zip(gradients.names, gradients.n_bytes, strict=True)))
    exchange.refuse_different("parameters", repr(n_bytes))
    mine_s = dict(zip(gradients.names, gradients.ready_s, strict=True))
    after_s = [mine_s[name] - gradients.forward_s for name in n_bytes]
    forward_s, *after_s = exchange.all_max([gradients.forward_s, *after_s])
    return in_order(dict(zip(n_bytes, after_s, strict=True)), n_bytes, forward_s)


def measure_link(
    exchange: Exchange,
    sizes_bytes: Sequence[int],
    *,
    repeats: int = 7,
    warm_up: int = 2,
    device: torch.device | str = "cpu",
) -> tuple[list[int], list[float]]:
    """Measure all-reduces one at a time; return sizes and median seconds, for `fit`.

    All ranks call it; all get the same numbers (of the slowest rank). Sizes are rounded up to
    whole 32-bit numbers. The sizes take turns, so that a busy moment does not hit one size alone.
    """
    buffers = [torch.zeros(-(-size // 4), device=device) for size in sizes_bytes]
    stamps = stamps_for(device)
    taken_s: list[list[float]] = [[] for _ in buffers]
    for number in range(warm_up + repeats):
        for buffer, times_s in zip(buffers, taken_s, strict=True):
            start = stamps.mark()
            exchange.all_reduce(buffer, name="probe").wait()
            start_s, end_s = stamps.read([start, stamps.mark()])
            if number >= warm_up:
                times_s.append(end_s - start_s)
    medians_s = exchange.all_max([statistics.median(times_s) for times_s in taken_s])
    return [4 * buffer.numel() for buffer in buffers], medians_s
