"""Which parts of mixed precision does a training need? One small net, seven recipes.

The task is built so that each part can be missed, and it says so: the loss is multiplied by 1e-5,
as an auxiliary loss with a small weight is, so that gradients underflow in FP16; and the learning
rate is small, as at the end of a long training, so that FP16 weights lose updates. FP32 does not
care about the weight of the loss: Adam divides each gradient by its own size. For that its eps must
be far below the gradients: the usual 1e-8 is as large as they are here, so it is 1e-12. PyTorch's
own half precision computes all of it on the CPU; nothing is emulated.
"""

import itertools
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from rich.table import Table
from torch import nn

from allhands.precision.scaler import LossScaler
from allhands.train import digits, mixed


@dataclass(frozen=True)
class Recipe:
    """Which number format the model runs in, and which of the two remedies it gets.

    Without master weights the weights live in `dtype` alone. `pure` leaves the optimizer, too, to
    `dtype`: its moments and all its arithmetic.
    """

    title: str
    dtype: torch.dtype
    master: bool = True
    scaling: bool = False
    pure: bool = False


RECIPES = {
    "fp32": Recipe("FP32", torch.float32),
    "fp16": Recipe("pure FP16", torch.float16, master=False, pure=True),
    "fp16_scaling": Recipe("FP16, loss scaling", torch.float16, master=False, scaling=True),
    "fp16_master": Recipe("FP16, master weights", torch.float16),
    "mixed": Recipe("FP16, master weights, loss scaling", torch.float16, scaling=True),
    "bf16_alone": Recipe("BF16 alone", torch.bfloat16, master=False),
    "bf16": Recipe("BF16, master weights", torch.bfloat16),
}
ADAM_EPS = 1e-12


@dataclass(frozen=True)
class Task:
    """A net of four linear layers, Adam, and the loss times `loss_weight`."""

    n_hidden: int = 64
    n_steps: int = 2500
    batch_size: int = 64
    learning_rate: float = 2.5e-5
    loss_weight: float = 1e-5
    growth_interval: int = 500
    look_every: int = 50


TASK = Task()


@dataclass(frozen=True)
class Outcome:
    """How a recipe did. The losses, per image and without the weight, are of each `steps[i]`.

    `zero_share`: of the gradients as the backward left them, those that are exactly 0, mean over
    `steps`. `nan_step`: the step at which the weights became nan, which ends the run; else None.
    """

    recipe: str
    seed: int
    test_exact: float  # percent
    losses: list[float] = field(repr=False)
    steps: list[int] = field(repr=False)
    zero_share: float
    skipped: int
    last_scale: float
    nan_step: int | None
    cpu_s: float


def run(recipe: str, seed: int = 0, task: Task = TASK) -> Outcome:
    """Train the net by the recipe of that name (a key of RECIPES).

    The same seed gives every recipe the same first weights, images and batches. Raises ValueError
    for an unknown recipe.
    """
    if recipe not in RECIPES:
        raise ValueError(f"There is no recipe {recipe!r}. The recipes are: {', '.join(RECIPES)}.")
    how, start_s = RECIPES[recipe], time.process_time()
    data, batches = digits.load(seed), torch.Generator().manual_seed(seed)
    model = new_net(task, seed)
    half, master = mixed.half_copy(model, how.dtype), mixed.master_weights(model)
    trained = half.parameters() if how.pure else master
    adam = torch.optim.Adam(trained, task.learning_rate, eps=ADAM_EPS)
    scaler = LossScaler(interval=task.growth_interval) if how.scaling else LossScaler.static(1.0)
    losses, steps, zero_shares, skipped, nan_step = [], [], [], 0, None
    images = data.train_images.to(how.dtype)
    for number in range(1, task.n_steps + 1):
        rows = torch.randint(len(images), (task.batch_size,), generator=batches)
        logits = half(images[rows]).float()  # softmax and loss stay in FP32
        loss = nn.functional.cross_entropy(logits, data.train_digits[rows])
        if how.pure:
            half.zero_grad()
            (loss * task.loss_weight).backward()
            adam.step()
        else:
            if not how.master:
                _forget_what_half_cannot_hold(master, half)
            skipped += not mixed.step(half, master, adam, scaler, loss * task.loss_weight)
        if number % task.look_every == 0 or number == 1:
            losses.append(loss.item())
            steps.append(number)
            zero_shares.append(share_of_zeros(half))
        if not math.isfinite(loss.item()):
            nan_step = number - 1  # the update before this loss
            break
    return Outcome(
        recipe,
        seed,
        _exact(half, data.test_images.to(how.dtype), data.test_digits),
        losses,
        steps,
        sum(zero_shares) / len(zero_shares),
        skipped,
        scaler.scale,
        nan_step,
        time.process_time() - start_s,
    )


def new_net(task: Task, seed: int) -> nn.Sequential:
    """The net in FP32; its first weights depend on `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sizes = [64, task.n_hidden, task.n_hidden, task.n_hidden]
        layers: list[nn.Module] = []
        for n_in, n_out in itertools.pairwise(sizes):
            layers += [nn.Linear(n_in, n_out), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(task.n_hidden, 10))


def share_of_zeros(model: nn.Module) -> float:
    """Of all numbers in the gradients of `model`, the share that is exactly 0."""
    gradients = [param.grad for param in model.parameters() if param.grad is not None]
    zeros = sum(int((grad == 0).sum()) for grad in gradients)
    return zeros / sum(grad.numel() for grad in gradients)


def table(outcomes: Iterable[Outcome]) -> Table:
    """One row a recipe: the digits recognised in the test, a column a seed, and the zeros."""
    outcomes = list(outcomes)
    seeds = sorted({one.seed for one in outcomes})
    result = Table(title="digits recognised in the test (%)", title_justify="left")
    result.add_column("recipe", no_wrap=True)
    for seed in seeds:
        result.add_column(f"seed {seed}", justify="right", no_wrap=True)
    result.add_column("zero gradients", justify="right")
    for name, recipe in RECIPES.items():
        mine = {one.seed: one for one in outcomes if one.recipe == name}
        if mine:
            zeros = sum(one.zero_share for one in mine.values()) / len(mine)
            cells = [_in_words(mine[seed]) if seed in mine else "" for seed in seeds]
            result.add_row(recipe.title, *cells, f"{zeros:.0%}")
    return result


def _in_words(outcome: Outcome) -> str:
    died = outcome.nan_step is not None
    return f"nan, step {outcome.nan_step}" if died else f"{outcome.test_exact:.1f}"


def _forget_what_half_cannot_hold(master: list[nn.Parameter], half: nn.Module) -> None:
    with torch.no_grad():
        for exact, param in zip(master, half.parameters(), strict=True):
            exact.copy_(param)


@torch.no_grad()
def _exact(model: nn.Module, images: torch.Tensor, answers: torch.Tensor) -> float:
    logits = model(images).float()
    right = (logits.argmax(dim=1) == answers) & logits.isfinite().all(dim=1)
    return 100 * float(right.float().mean())
