"""The checks of lab 3 that judge the parts of a step: the copy, the masters, the scaler.

The oracles: steps worked out by hand, and torch.amp.GradScaler on planted overflows.
"""

import math
from collections.abc import Callable, Sequence

import torch

from allhands.grade.check import Marker, has_body, likely, show


class Net(torch.nn.Module):
    """A tiny FP32 classifier that remembers the dtype of its last logits and how often it ran."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(8, 4)
        self.logits_dtype: torch.dtype | None = None

    def forward(self, x_bf: torch.Tensor) -> torch.Tensor:
        logits_bc = self.layer(x_bf)
        self.logits_dtype = logits_bc.dtype
        return logits_bc


def half_copy(mark: Marker, half_copy: Callable) -> None:
    net = Net()
    kept = [param.detach().clone() for param in net.parameters()]
    copied = mark.run(half_copy, net)
    mark.need(
        isinstance(copied, torch.nn.Module),
        "a model",
        type(copied).__name__,
        "return the copy itself",
    )
    still = all(
        param.dtype == torch.float32 and torch.equal(param, before)
        for param, before in zip(net.parameters(), kept, strict=True)
    )
    halves = list(copied.parameters())
    mark.need(
        [half.shape for half in halves] == [param.shape for param in kept],
        "a copy of the whole model",
        f"{len(halves)} weights, and the model has {len(kept)}",
        "copy.deepcopy(model) copies all of it",
    )
    mark.require(
        still and all(torch.equal(h, k.half()) for h, k in zip(halves, kept, strict=True)),
        1,
        "a copy with the same values in FP16, and the model itself as it was",
        f"the copy is {halves[0].dtype}, the model {next(net.parameters()).dtype}",
        likely(
            (copied is net and not still, "model.half() changes the model: deepcopy first"),
            (not still, "the model has changed: copy.deepcopy(model), then half() on the copy"),
            (halves[0].dtype == torch.float32, "the copy is still FP32: .half() is missing"),
            otherwise="copy.deepcopy(model).half()",
        ),
    )


def master_step(mark: Marker, master_step: Callable) -> None:
    def lists() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        halves = [torch.ones(3, dtype=torch.float16), torch.full((2, 2), 0.5, dtype=torch.float16)]
        give_gradients(halves)
        return [half.float() for half in halves], halves

    def give_gradients(halves: list[torch.Tensor]) -> None:
        for half, grad in zip(halves, (0.2, 0.1), strict=True):
            half.grad = torch.full_like(half, grad)

    rate, n_steps = 1e-3, 10
    masters, halves = lists()
    held = [tensor.data_ptr() for tensor in (*masters, *halves)]
    master_step(masters, halves, 1.0)
    mark.need(
        [tensor.data_ptr() for tensor in (*masters, *halves)] == held,
        "the same tensors, changed in place",
        "new tensors",
        "master -= ... and half.copy_(...), in place; do not put new tensors into the lists",
    )
    untouched = [map(torch.equal, *each) for each in zip((masters, halves), lists(), strict=True)]
    if all(all(same) for same in untouched):
        if not has_body(master_step):
            raise NotImplementedError
        mark.need(
            False,
            "the tensors in the lists changed",
            "all of them as they were",
            "master -= ... changes the tensor; master = master - ... makes a new one",
        )
    masters, halves = lists()
    for _ in range(n_steps):
        give_gradients(halves)
        master_step(masters, halves, rate)
    start, fresh = lists()
    right = [m - n_steps * rate * h.grad.float() for m, h in zip(start, fresh, strict=True)]
    moved = not all(torch.equal(m, s) for m, s in zip(masters, start, strict=True))
    close = all(
        torch.allclose(m, r, rtol=0, atol=2e-6) for m, r in zip(masters, right, strict=True)
    )
    tiny, right_tiny = _tiny_move(master_step, rate)
    fp32_product = abs(tiny - right_tiny) <= 1e-2 * right_tiny
    mark.require(
        close and fp32_product,
        1,
        "after ten small steps the masters have moved by ten times rate times gradient"
        if not close
        else "the masters move by rate times gradient, however small the product is",
        f"a weight of 1 is now {masters[0][0].item():.6f}, and {right[0][0].item():.6f} is right"
        if not close
        else f"a gradient of 0.00002 moves its master by {tiny:.2g}, and {right_tiny:.2g} is right",
        likely(
            (
                close,
                "the product rate x grad was FP16, where it is 0: first half.grad.float()",
            ),
            (not moved, "the masters do not move: is the sum made in FP16?"),
            (masters[0][0].item() > 1, "the sign: go against the gradient"),
            (
                all(
                    torch.allclose(m, s - n_steps * h.grad.float(), atol=1e-3)
                    for m, s, h in zip(masters, start, fresh, strict=True)
                ),
                "multiply the gradient by the rate",
            ),
            (
                all(torch.equal(m, m.half().float()) for m in masters),
                "each step is rounded to FP16: the FP32 sum must stay in the master",
            ),
            otherwise="master -= rate * half.grad.float(): FP32 first, then the rate, then the sum",
        ),
    )
    mark.require(
        all(torch.equal(h, m.half()) for h, m in zip(halves, masters, strict=True)),
        1,
        "each FP16 weight is its master, rounded",
        f"a half is {halves[0][0].item():.6f}, its master {masters[0][0].item():.6f}",
        likely(
            (
                all(torch.equal(h, f) for h, f in zip(halves, fresh, strict=True)),
                "the FP16 weights still have their old values: half.copy_(master)",
            ),
            otherwise="copy the master into the half, after the step",
        ),
        after=close,
    )


def _tiny_move(master_step: Callable, rate: float) -> tuple[float, float]:
    """How far one step moves a small master by a gradient of 2e-5, and how far it should.

    The product is 2e-8: fine in FP32, and less than half of the smallest FP16 number.
    """
    half = torch.full((1,), 2.0**-14, dtype=torch.float16)
    half.grad = torch.full_like(half, 2e-5)
    master, right = half.float(), rate * half.grad.item()
    before = master.item()
    master_step([master], [half], rate)
    return before - master.item(), right


INTERVAL = 5  # the good steps in a row after which the planted scaler grows


def planted_overflows() -> list[bool]:
    """Which steps overflow: after growth, twice in a row, and just before the scale would grow."""
    steps = [False] * 60
    for step in (0, 7, 8, 17, 30, 31, 32, 46):
        steps[step] = True
    return steps


def torch_scales(
    overflows: Sequence[bool], scale: float, *, growth: float, backoff: float, interval: int
) -> list[float]:
    """The scale after each step, by torch.amp.GradScaler itself."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", scale, growth, backoff, interval)
    scaler.scale(weight.sum())
    scales = []
    for overflow in overflows:
        weight.grad = torch.full_like(weight, math.inf if overflow else 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


USUAL = {"growth": 2.0, "backoff": 0.5, "interval": INTERVAL}
OTHER = {"growth": 8.0, "backoff": 0.25, "interval": 3}


def next_scale(mark: Marker, next_scale: Callable) -> None:
    def one(*state, **parameters) -> tuple[float, float]:
        pair = mark.run(next_scale, *state, none_passes=True, **parameters)
        mark.need(
            isinstance(pair, tuple | list) and len(pair) == 2,
            "two values: the next scale and the count of good steps",
            f"it returned {show(pair)}",
            "return scale, good_steps",
        )
        return float(pair[0]), float(pair[1])

    def played(overflows: Sequence[bool], **parameters) -> tuple[list[float], list[float]]:
        state, states = (2.0**16, 0.0), []
        for overflow in overflows:
            state = one(state[0], int(state[1]), overflow, **parameters)
            states.append(state)
        return [scale for scale, _ in states], [count for _, count in states]

    after_overflow = one(1024.0, 3, True, interval=INTERVAL)[0]
    backs_off = mark.require(
        after_overflow == 512.0,
        1,
        "after an overflow the scale is halved: 512 from 1024",
        show(after_overflow),
        likely(
            (after_overflow == 2048.0, "that is growth; an overflow means: too large"),
            (after_overflow == 1024.0, "the scale stays, and the next step overflows again"),
            otherwise="return scale * backoff, 0",
        ),
    )
    overflows = planted_overflows()
    got, counts = played(overflows, **USUAL)
    others, _ = played(overflows, **OTHER)
    right, right_others = (torch_scales(overflows, 2.0**16, **each) for each in (USUAL, OTHER))
    changed = [a != b for a, b in zip([2.0**16, *right], right, strict=False)]
    wrong = next((i for i, each in enumerate(got) if each != right[i]), None)
    counted = all(count == 0 for count, new in zip(counts, changed, strict=True) if new)
    mark.require(
        wrong is None and counted and others == right_others,
        2,
        f"the scales of torch's GradScaler on {len(got)} steps with planted overflows, and the "
        "count at 0 after each change",
        likely(
            (wrong is not None, f"another scale at step {wrong}: {_power(got[wrong or 0])} where "
             f"torch has {_power(right[wrong or 0])}"),
            (not counted, "the right scales, and a count that is not 0 after a change"),
            otherwise="the right scales, but not with growth=8 and backoff=0.25",
        ),
        likely(
            (got == _mistaken(overflows, keeps_count=True), "an overflow sets the count to 0"),
            (got == _mistaken(overflows, late=1), f"it grows one step late: {INTERVAL} good steps"),
            (got == _mistaken(overflows, late=-1), f"it grows too early: {INTERVAL} good steps"),
            (got == _mistaken(overflows, goes_on=True), "after growth the count begins at 0 again"),
            (got == _mistaken(overflows, grows=False), "it never grows"),
            (wrong is None and not counted, "after growth the count begins at 0 again"),
            (wrong is None, "use `growth`, `backoff` and `interval`; do not write numbers instead"),
            otherwise="count good steps in a row; grow when the count reaches the interval",
        ),
        after=backs_off,
    )  # fmt: skip


def _power(scale: float) -> str:
    """A scale as a power of two, where it is one that has a logarithm."""
    return f"2^{math.log2(scale):g}" if 0 < scale < math.inf else show(scale)


def _mistaken(
    overflows: Sequence[bool],
    *,
    keeps_count: bool = False,
    late: int = 0,
    goes_on: bool = False,
    grows: bool = True,
) -> list[float]:
    """The scales of a scaler with one mistake in it."""
    scales, scale, count = [], 2.0**16, 0
    for overflow in overflows:
        if overflow:
            scale, count = scale * 0.5, count if keeps_count else 0
        else:
            count += 1
            if grows and count >= INTERVAL + late:
                scale, count = scale * 2.0, count if goes_on else 0
        scales.append(scale)
    return scales
