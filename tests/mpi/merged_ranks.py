"""The program of the ranks of test_merged.py: runs every `case_` function.

    torchrun --nproc-per-node=2 tests/mpi/merged_ranks.py FOLDER

Each rank writes what the cases returned to FOLDER/rankN.pt.
"""

import copy
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, one_per_gradient, single_bucket
from allhands.train.merged.ddp import ddp_with_plan
from allhands.train.merged.exchange import DistributedExchange, RanksDisagree
from allhands.train.merged.hooks import MergedAllReduce
from allhands.train.merged.tuner import Tuner
from allhands.train.probe import agree, measure_link, probe

THREE_GROUPS = Plan(((0, 0), (1, 4), (5, 7)))


class Chain(nn.Module):
    """Four layers, eight gradients."""

    def __init__(self) -> None:
        super().__init__()
        widths = (5, 7, 6, 8, 3)
        self.layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))

    def forward(self, x_bh: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x_bh = torch.tanh(layer(x_bh))
        return x_bh


class Tied(nn.Module):
    """An embedding that is the output layer too, and a frozen layer between."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.fixed = nn.Linear(4, 4).requires_grad_(False)
        self.free = nn.Linear(4, 4)
        self.output = nn.Linear(4, 11, bias=False)
        self.output.weight = self.embed.weight

    def forward(self, x_bh: torch.Tensor) -> torch.Tensor:
        tokens_b = x_bh.abs().sum(dim=1).long() % 11
        return self.output(torch.tanh(self.free(self.fixed(self.embed(tokens_b)))))


class Branches(nn.Module):
    """Branches, of which each call uses those it is asked for, in that order."""

    def __init__(self, dtypes: tuple[torch.dtype, ...] = (torch.float32,) * 4) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(5, 5, dtype=dtype) for dtype in dtypes)

    def forward(self, x_bh: torch.Tensor, which: tuple[int, ...] = (0, 1, 2, 3)) -> torch.Tensor:
        for i in which:
            x_bh = torch.tanh(self.branches[i](x_bh.to(self.branches[i].weight.dtype)))
        return x_bh


def made(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(1)
    return build()


def data(number: int = 0) -> torch.Tensor:
    """(6, 5) numbers, others on each rank and for each `number`."""
    random = torch.Generator().manual_seed(100 * number + dist.get_rank())
    return torch.randn(6, 5, generator=random)


def loss_of(model: nn.Module, number: int = 0, *arguments) -> torch.Tensor:
    return model(data(number), *arguments).square().sum()


def gradients_of(model: nn.Module) -> dict[str, torch.Tensor | None]:
    named = getattr(model, "module", model).named_parameters()
    return {name: None if p.grad is None else p.grad.clone() for name, p in named}


def plans_for(model: nn.Module) -> list[Plan]:
    n = sum(p.requires_grad for p in model.parameters())
    return [one_per_gradient(n), single_bucket(n), Plan(((0, 0), (1, n - 2), (n - 1, n - 1)))]


def compare(
    build: Callable[[], nn.Module],
    step: Callable[[nn.Module, Callable], object],
    *,
    find_unused: bool = False,
) -> dict:
    """Do the same step under DDP and by each plan. step(model, no_sync) runs backward passes."""
    ddp = DistributedDataParallel(made(build), find_unused_parameters=find_unused)
    step(ddp, ddp.no_sync)
    results = {"ddp": gradients_of(ddp)}
    for plan in plans_for(ddp):
        model = made(build)
        merged = MergedAllReduce(model, plan, DistributedExchange(), find_unused=find_unused)
        step(model, merged.no_sync)
        merged.finish()
        results[f"{plan.n_groups} groups"] = gradients_of(model)
    return results


def case_plain() -> dict:
    return compare(Chain, lambda model, _: loss_of(model).backward())


def case_shared_and_frozen() -> dict:
    return compare(Tied, lambda model, _: loss_of(model).backward())


def case_used_on_one_rank_only() -> dict:
    which = ((0, 1, 3), (0, 2))[dist.get_rank() % 2]
    return compare(Branches, lambda model, _: loss_of(model, 0, which).backward(), find_unused=True)


def case_used_nowhere() -> dict:
    return compare(
        Branches, lambda model, _: loss_of(model, 0, (0, 3)).backward(), find_unused=True
    )


def case_order_differs_between_ranks() -> dict:
    which = ((0, 1, 2, 3), (3, 1, 0, 2))[dist.get_rank() % 2]
    return compare(Branches, lambda model, _: loss_of(model, 0, which).backward())


def case_several_types() -> dict:
    build = partial(Branches, (torch.float32, torch.float64, torch.float64, torch.float32))
    return compare(build, lambda model, _: loss_of(model).backward())


def case_accumulation() -> dict:
    def step(model: nn.Module, no_sync: Callable) -> None:
        with no_sync():
            for number in range(2):
                (loss_of(model, number) / 3).backward()
        (loss_of(model, 2) / 3).backward()

    return compare(Chain, step)


def case_accumulation_with_a_parameter_that_the_last_pass_does_not_use() -> dict:
    def step(model: nn.Module, no_sync: Callable) -> None:
        with no_sync():
            loss_of(model, 0, (0, 1) if dist.get_rank() == 0 else (0,)).backward()
        loss_of(model, 1, (0, 3)).backward()

    return compare(Branches, step, find_unused=True)


def case_checkpoint() -> dict:
    def step(model: nn.Module, _) -> None:
        x_bh = data().requires_grad_()
        checkpoint(model, x_bh, use_reentrant=False).square().sum().backward()

    return compare(Chain, step)


def train(model: nn.Module, finish: Callable[[], object], set_to_none: bool) -> dict:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(4):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(model, number).backward()
        finish()
        clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return {name: p.detach() for name, p in getattr(model, "module", model).named_parameters()}


def case_four_steps_with_clipping() -> dict:
    ddp = DistributedDataParallel(made(Chain))
    results = {"ddp": train(ddp, lambda: None, set_to_none=True)}
    for set_to_none in (True, False):
        model = made(Chain)
        merged = MergedAllReduce(model, THREE_GROUPS, DistributedExchange())
        results[f"set_to_none={set_to_none}"] = train(model, merged.finish, set_to_none)
    return results


def case_unused_gets_zeros_unless_asked() -> dict:
    model = made(Branches)
    merged = MergedAllReduce(model, single_bucket(8), DistributedExchange())
    loss_of(model, 0, (0, 3)).backward()
    merged.finish()
    return gradients_of(model)


def case_exact_mean() -> dict:
    """What the mean is, in 64 bits, and the mean of the absolute values."""
    model = made(Chain)
    loss_of(model).backward()
    mean = {name: p.grad.double() for name, p in model.named_parameters()}
    size = {name: value.abs() for name, value in mean.items()}
    for value in (*mean.values(), *size.values()):
        dist.all_reduce(value)
        value /= dist.get_world_size()
    return {"mean": mean, "size": size}


def case_ddp_runs_the_plan() -> dict:
    """The buckets, as DDP's public communication hook sees them in each step."""
    model = made(Chain)
    order = list(reversed([name for name, _ in model.named_parameters()]))
    names = {id(p): name for name, p in model.named_parameters()}
    buckets: list[list[str]] = []

    def hook(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buckets.append([names[id(p)] for p in bucket.parameters()])
        buffer = bucket.buffer().div_(dist.get_world_size())
        return dist.all_reduce(buffer, async_op=True).get_future().then(lambda f: f.value()[0])

    ddp = ddp_with_plan(model, THREE_GROUPS, order)
    ddp.register_comm_hook(None, hook)
    for _ in range(3):
        ddp.zero_grad()
        loss_of(ddp).backward()
    return {"buckets": buckets[-3:], "order": order, "gradients": gradients_of(ddp)}


def said(action: Callable[[], object]) -> str:
    try:
        action()
    except RanksDisagree as error:
        return str(error)
    return "nothing"


def case_ranks_disagree() -> dict:
    exchange, model = DistributedExchange(), made(Chain)
    last = dist.get_world_size() - 1
    odd = dist.get_rank() == last
    plan = one_per_gradient(8) if odd else single_bucket(8)
    names = [*"abcdefg", "odd" if odd else "h"]
    order = [name for name, _ in model.named_parameters()]
    return {
        "plan": said(lambda: MergedAllReduce(model, plan, exchange)),
        "order": said(
            lambda: MergedAllReduce(
                model, single_bucket(8), exchange, order=order if odd else order[::-1]
            )
        ),
        "parameters": said(lambda: agree(Gradients(range(8), [4] * 8, 0.0, names), exchange)),
        "same": said(lambda: exchange.refuse_different("word", "neko")),
    }


def case_agree() -> dict:
    """Rank 0 sees a, b, c at 1, 2, 3; the others see c, a, b at 1, 4, 5."""
    if dist.get_rank() == 0:
        seen = Gradients((10, 11, 12, 13)[1:], (4, 8, 12), 10.0, ("a", "b", "c"))
    else:
        seen = Gradients((3, 6, 7), (12, 4, 8), 2.0, ("c", "a", "b"))
    return {"gradients": agree(seen, DistributedExchange())}


def case_probe_fit_plan_train_tune() -> dict:
    """The whole way, with a tuner whose planner offers one plan after the other."""
    exchange, model = DistributedExchange(), made(Chain)
    gradients = agree(probe(model, lambda: loss_of(model), steps=2, warm_up=1), exchange)
    measured = measure_link(exchange, [64, 4096, 262144], repeats=3)
    plans = iter([one_per_gradient(8), THREE_GROUPS])
    merged = MergedAllReduce(model, single_bucket(8), exchange, order=gradients.names, timed=True)
    tuner = Tuner(
        merged,
        gradients,
        AffineCost(1e-3, 1e-9),
        planner=lambda *_: next(plans),
        every=2,
        threshold=0.0,
    )
    decisions, results = [], {}
    for number in range(4):
        model.zero_grad()
        merged.backward(loss_of(model))
        merged.finish()
        results[f"step {number}"] = gradients_of(model)
        if decision := tuner.after_step():
            decisions.append(decision)
    return {
        "shared": (gradients, measured, decisions, merged.plan),
        "gradients": results,
    }


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    cases = {name: case for name, case in globals().items() if name.startswith("case_")}
    results = {}
    for name, case in cases.items():
        try:
            results[name] = case()
        except Exception:
            print(f"{name}: {traceback.format_exc()}", file=sys.stderr, flush=True)
            raise
    torch.save(copy.deepcopy(results), folder / f"rank{dist.get_rank()}.pt")
    dist.barrier()
    del results
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(Path(sys.argv[1]))
