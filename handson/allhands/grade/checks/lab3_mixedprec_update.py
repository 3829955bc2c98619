"""The checks of lab 3 that judge a whole step: unscale, test, clip, and the same with torch.amp.

The oracles: moves worked out by hand, and the step in plain PyTorch.
"""

import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from allhands.grade.check import Marker, likely, show
from allhands.grade.checks.lab3_mixedprec_steps import Net


def clipped_step(mark: Marker, clipped_step: Callable) -> None:
    scale, max_norm, rate = 1024.0, 1.0, 0.5
    true_grads = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]  # of norm 5

    def weights(factor: float = 1.0) -> list[torch.Tensor]:
        made = [torch.tensor([1.0, -2.0]), torch.tensor([[0.1]])]
        for weight, grad in zip(made, true_grads, strict=True):
            weight.grad = grad * scale * factor
        return made

    def step(on: list[torch.Tensor]) -> object:
        return mark.run(clipped_step, on, scale, max_norm, rate, none_passes=True)

    def distance(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
        pairs = zip(some, others, strict=True)
        return math.sqrt(sum(((a - b) ** 2).sum().item() for a, b in pairs))

    before, after = weights(), weights()
    made = step(after)
    moved = distance(after, before)
    moves = abs(moved - rate * max_norm) < 1e-4
    mark.require(
        moves and bool(made),
        1,
        "a gradient of norm 5, clipped to 1, at a rate of 0.5: the weights move by 0.5, and the "
        "answer is True",
        f"they move by {moved:.3g}, and it returned {show(made)}",
        likely(
            (moves, "return True when the step is made"),
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
    step(small)
    small_moved = distance(small, small_before)
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
        after=moves,
    )
    kept, passed, said_true = weights(), [], []
    places = [(number, at) for number, each in enumerate(kept) for at in range(each.numel())]
    for bad, (number, at) in itertools.product((math.inf, -math.inf, math.nan), places):
        overflowed = weights()
        overflowed[number].grad.view(-1)[at] = bad
        if step(overflowed):
            said_true.append(bad)
        if not all(torch.equal(a, b) for a, b in zip(overflowed, kept, strict=True)):
            passed.append((bad, number))
    bads, numbers = {str(bad) for bad, _ in passed}, {number for _, number in passed}
    mark.require(
        not passed and not said_true,
        1,
        "inf, -inf or nan anywhere: every bit of the weights stays, and the answer is False",
        f"other weights after {passed[0][0]} in the gradient of weights[{passed[0][1]}]"
        if passed
        else "the same weights, and an answer that counts as True",
        likely(
            (not passed, "return False when the step is skipped"),
            (bads == {"nan"}, "nan passes your test: `isfinite` says no to inf and to nan"),
            ("nan" not in bads, "inf passes your test: `isfinite` says no to inf and to nan"),
            (numbers != {0, 1}, "test the gradients of all weights, not of one"),
            otherwise="test for inf and nan before the weights change, over all weights together",
        ),
        after=moves,
    )


MAX_NORM = 0.25


def amp_step(mark: Marker, amp_step: Callable) -> None:
    random = torch.Generator().manual_seed(1)
    x_nbf = 4 * torch.randn(3, 16, 8, generator=random)
    y_nb = torch.randint(0, 4, (3, 16), generator=random)

    losses: list[torch.Tensor] = []  # of the last run

    def run(step: Callable, scale: float, n_steps: int) -> tuple[Net, float]:
        net = Net()
        for param in net.parameters():
            param.grad = torch.full_like(param, 4.0)  # what an earlier step has left
        losses.clear()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2)
        for x_bf, y_b in zip(x_nbf[:n_steps], y_nb[:n_steps], strict=True):
            loss = mark.run(step, net, optimizer, scaler, x_bf, y_b, MAX_NORM, none_passes=True)
            mark.need(
                isinstance(loss, torch.Tensor) and loss.numel() == 1,
                "the loss, a tensor with one number",
                f"it returned {show(loss)}",
                "return loss.detach() at the end",
            )
            losses.append(loss.detach())
        return net, scaler.get_scale()

    def same(net: Net, other: Net) -> bool:
        pairs = zip(net.parameters(), other.parameters(), strict=True)
        return all(torch.allclose(a, b, rtol=0, atol=2e-3) for a, b in pairs)

    net, scale = run(amp_step, 1024.0, 3)
    got = losses[:]
    wanted, wanted_scale = run(_reference_step, 1024.0, 3)
    true = losses[:]
    in_half = net.logits_dtype == torch.float16
    in_single = all(loss.dtype == torch.float32 for loss in got)
    first, first_true = got[0].item(), true[0].item()
    mark.require(
        in_half and in_single and abs(first - first_true) < 1e-2 * first_true,
        1,
        "the forward pass under autocast: FP16 logits, and the loss in FP32, without the scale",
        f"logits of {net.logits_dtype}, a loss of {got[0].dtype} and {first:.4g} where "
        f"{first_true:.4g} is right",
        likely(
            (net.logits_dtype == torch.bfloat16, "on a CPU autocast means BF16: say torch.float16"),
            (net.logits_dtype is None, "the model was not called"),
            (in_half and not in_single, "F.cross_entropy under autocast too: it chooses FP32"),
            (
                in_half and abs(first - 1024 * first_true) < 10 * first_true,
                "that is the scaled loss: return the loss itself",
            ),
            (in_half, "return F.cross_entropy(logits, y_b) of this step"),
            otherwise='with torch.autocast("cpu", dtype=torch.float16): around model(x_bf)',
        ),
    )
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
            (_equal(net, Net()), "the weights have not moved: scaler.step(optimizer)"),
            (same(net, early), "clipped before unscaling: scaler.unscale_(optimizer) comes first"),
            (same(net, wanted), "the gradients pile up: optimizer.zero_grad() at the start"),
            (off > 1, "the scaled gradient went into the weights: scaler.step(optimizer)"),
            otherwise="zero_grad, scale and backward, unscale_, clip, scaler.step, update",
        ),
        after=in_half,
    )
    skipped, skipped_scale = run(amp_step, 2.0**60, 1)
    untouched = _equal(skipped, Net())
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
