"""The checks of lab 3 that judge a step of training: the copy, the masters, the scaler, the order.

The oracles: steps worked out by hand, and torch.amp.GradScaler on planted overflows.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from allhands.grade.check import Marker, likely, show


class _Net(torch.nn.Module):
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
    net = _Net()
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
        for half, grad in zip(halves, (0.2, 0.1), strict=True):
            half.grad = torch.full_like(half, grad)
        return [half.float() for half in halves], halves

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
        raise NotImplementedError  # nothing moves: the stub
    masters, halves = lists()
    for _ in range(n_steps):
        master_step(masters, halves, rate)
    start, fresh = lists()
    right = [m - n_steps * rate * h.grad.float() for m, h in zip(start, fresh, strict=True)]
    moved = not all(torch.equal(m, s) for m, s in zip(masters, start, strict=True))
    close = all(
        torch.allclose(m, r, rtol=0, atol=2e-6) for m, r in zip(masters, right, strict=True)
    )
    mark.require(
        close,
        1,
        "after ten small steps the masters have moved by ten times rate times gradient",
        f"a weight of 1 is now {masters[0][0].item():.6f}, and {right[0][0].item():.6f} is right",
        likely(
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


INTERVAL = 5  # the good steps in a row after which the planted scaler grows


def planted_overflows() -> list[bool]:
    """Which steps overflow: after growth, twice in a row, and just before the scale would grow."""
    steps = [False] * 60
    for step in (0, 7, 8, 17, 30, 31, 32, 46):
        steps[step] = True
    return steps


def torch_scales(overflows: Sequence[bool], scale: float, interval: int) -> list[float]:
    """The scale after each step, by torch.amp.GradScaler itself."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
    scaler.scale(weight.sum())
    scales = []
    for overflow in overflows:
        weight.grad = torch.full_like(weight, math.inf if overflow else 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def next_scale(mark: Marker, next_scale: Callable) -> None:
    first = mark.run(next_scale, 1024.0, 3, True, interval=INTERVAL)
    mark.need(
        isinstance(first, tuple | list) and len(first) == 2,
        "two values: the next scale and the count of good steps",
        show(first),
        "return scale, good_steps",
    )
    after_overflow = float(first[0])
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
    right = torch_scales(overflows, 2.0**16, INTERVAL)
    got, scale, count = [], 2.0**16, 0
    for overflow in overflows:
        scale, count = next_scale(scale, count, overflow, interval=INTERVAL)
        got.append(float(scale))
    steps = range(len(got))
    wrong = next((i for i in steps if got[i] != right[i]), None)
    mark.require(
        wrong is None,
        2,
        f"the scales of torch's GradScaler on {len(got)} steps with planted overflows",
        ""
        if wrong is None
        else f"another scale at step {wrong}: 2^{math.log2(got[wrong]):g} "
        f"where torch has 2^{math.log2(right[wrong]):g}",
        likely(
            (got == _mistaken(overflows, keeps_count=True), "an overflow sets the count to 0"),
            (got == _mistaken(overflows, late=1), f"it grows one step late: {INTERVAL} good steps"),
            (got == _mistaken(overflows, late=-1), f"it grows too early: {INTERVAL} good steps"),
            (got == _mistaken(overflows, goes_on=True), "after growth the count begins at 0 again"),
            (got == _mistaken(overflows, grows=False), "it never grows"),
            otherwise="count good steps in a row; grow when the count reaches the interval",
        ),
        after=backs_off,
    )  # fmt: skip


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


def clipped_step(mark: Marker, clipped_step: Callable) -> None:
    scale, max_norm, rate = 1024.0, 1.0, 0.5
    true_grads = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]  # of norm 5

    def weights(factor: float = 1.0) -> list[torch.Tensor]:
        made = [torch.tensor([1.0, -2.0]), torch.tensor([[0.1]])]
        for weight, grad in zip(made, true_grads, strict=True):
            weight.grad = grad * scale * factor
        return made

    before, after = weights(), weights()
    mark.run(clipped_step, after, scale, max_norm, rate)
    moved = math.sqrt(sum(((a - b) ** 2).sum().item() for a, b in zip(after, before, strict=True)))
    right = mark.require(
        abs(moved - rate * max_norm) < 1e-4,
        1,
        "a gradient of norm 5, clipped to 1, at a rate of 0.5: the weights move by 0.5",
        f"they move by {moved:.3g}",
        likely(
            (
                abs(moved - rate * max_norm / scale) < 1e-6,
                "clipped before unscaling: the gradient is cut to 1, and then divided by the scale",
            ),
            (abs(moved - rate * 5) < 1e-3, "the gradient is not clipped"),
            (abs(moved - rate * 5 * scale) < 1, "neither unscaled nor clipped"),
            (moved == 0, "the weights do not move"),
            otherwise="unscale, test, clip, step, in this order",
        ),
    )
    small_before, small = weights(0.01), weights(0.01)  # of norm 0.05: nothing to clip
    clipped_step(small, scale, max_norm, rate)
    small_moved = math.sqrt(
        sum(((a - b) ** 2).sum().item() for a, b in zip(small, small_before, strict=True))
    )
    mark.require(
        abs(small_moved - rate * 0.05) < 1e-5,
        1,
        "a gradient of norm 0.05 is not clipped: the weights move by 0.025",
        f"they move by {small_moved:.3g}",
        likely(
            (
                abs(small_moved - rate * max_norm) < 1e-4,
                "the scaled gradient was clipped, or the small one blown up",
            ),
            otherwise="max_norm is compared with the unscaled gradient",
        ),
        after=right,
    )
    overflowed, kept = weights(), weights()
    overflowed[1].grad[0, 0] = math.inf
    made = mark.run(clipped_step, overflowed, scale, max_norm, rate)
    same = all(torch.equal(a, b) for a, b in zip(overflowed, kept, strict=True))
    mark.require(
        same and made is not True,
        1,
        "an overflow is skipped: every bit of the weights stays, and the answer is False",
        f"{'the same weights' if same else 'other weights'}, and {show(made)}",
        likely(
            (not same, "test for inf and nan before the weights change, over all weights together"),
            otherwise="return False when the step is skipped",
        ),
        after=right,
    )


MAX_NORM = 0.25


def amp_step(mark: Marker, amp_step: Callable) -> None:
    random = torch.Generator().manual_seed(1)
    x_nbf = 4 * torch.randn(3, 16, 8, generator=random)
    y_nb = torch.randint(0, 4, (3, 16), generator=random)

    def run(step: Callable, scale: float, n_steps: int) -> tuple[_Net, float]:
        net = _Net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
        for x_bf, y_b in zip(x_nbf[:n_steps], y_nb[:n_steps], strict=True):
            mark.run(step, net, optimizer, scaler, x_bf, y_b, MAX_NORM)
        return net, scaler.get_scale()

    def same(net: _Net, other: _Net) -> bool:
        pairs = zip(net.parameters(), other.parameters(), strict=True)
        return all(torch.allclose(a, b, rtol=0, atol=2e-3) for a, b in pairs)

    net, scale = run(amp_step, 1024.0, 3)
    in_half = mark.require(
        net.logits_dtype == torch.float16,
        1,
        "the forward pass under autocast: the logits are FP16",
        f"logits of {net.logits_dtype}",
        likely(
            (net.logits_dtype == torch.bfloat16, "on a CPU autocast means BF16: say torch.float16"),
            (net.logits_dtype is None, "the model was not called"),
            otherwise='with torch.autocast("cpu", dtype=torch.float16): around model(x_bf)',
        ),
    )
    wanted, wanted_scale = run(_reference_step, 1024.0, 3)
    early = run(_clips_early, 1024.0, 3)[0]
    unscaled = run(amp_step, 1.0, 3)[0]  # a large scale hides gradients that pile up
    piles_up = not same(unscaled, run(_reference_step, 1.0, 3)[0])
    pairs = list(zip(net.parameters(), wanted.parameters(), strict=True))
    off = max((a - b).abs().max().item() for a, b in pairs)
    right = mark.require(
        same(net, wanted) and not piles_up,
        1,
        "after three steps the weights of steps that clear, unscale, and then clip",
        f"a weight is off by {off:.2g}",
        likely(
            (_equal(net, _Net()), "the weights have not moved: scaler.step(optimizer)"),
            (same(net, early), "clipped before unscaling: scaler.unscale_(optimizer) comes first"),
            (same(net, wanted), "the gradients pile up: optimizer.zero_grad() at the start"),
            (off > 1, "the scaled gradient went into the weights: scaler.step(optimizer)"),
            otherwise="zero_grad, scale and backward, unscale_, clip, scaler.step, update",
        ),
        after=in_half,
    )
    skipped, skipped_scale = run(amp_step, 2.0**60, 1)
    untouched = _equal(skipped, _Net())
    mark.require(
        untouched and skipped_scale == 2.0**59 and scale == wanted_scale,
        1,
        "an overflow is skipped and halves the scale; two good steps double it",
        f"the weights {'stay' if untouched else 'change'}; 2^60 becomes "
        f"2^{math.log2(skipped_scale):g}, 2^10 becomes 2^{math.log2(scale):g} after three steps",
        likely(
            (not untouched, "scaler.step(optimizer) skips; optimizer.step() does not"),
            (skipped_scale == 2.0**60, "the scale never changes: scaler.update() at the end"),
            otherwise="one scaler.update() in each step",
        ),
        after=right,
    )


def _equal(net: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(map(torch.equal, net.parameters(), other.parameters()))


def _reference_step(model, optimizer, scaler, x_bf, y_b, max_norm, *, clips_early=False):
    """The step by hand, in plain PyTorch; with a mistake in it if asked."""
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x_bf), y_b)
    scaler.scale(loss).backward()
    if not clips_early:
        scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _clips_early(*arguments):
    return _reference_step(*arguments, clips_early=True)
