"""Which plan is fastest in wall-clock time? A race over an emulated link, under a real backward
pass.

A step is timed from the start of backward to the end of the last all-reduce. In each round every
plan does one step, in random order, and one step without communication says when the gradients
arrive: so a busy machine slows all of them alike. The prediction is the simulator's finish time for
the median arrival times; `measured_s` is a median. A step in which other programs held the
processor for more than 10 % of the backward pass (wall-clock against processor time) is not
counted. Rounds go on until each plan has enough steps, or for 10 times as many.

The link is slow against this machine, as a cluster's link is against a GPU: its time for all bytes
and its start-up are given as shares of the backward pass.
"""

import copy
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.link import EmulatedLink
from allhands.mgwfbp.optimal import fewest_messages
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket
from allhands.mgwfbp.rules import by_size, mg_wfbp
from allhands.train.merged.exchange import EmulatedExchange
from allhands.train.merged.hooks import MergedAllReduce
from allhands.train.probe import in_order

PATIENCE_S = 90.0  # on a busy machine, before the race gives up
TAKEN_AWAY = 0.1


@dataclass(frozen=True)
class Case:
    """A model, its loss, and a link: shares of the backward pass for all bytes, and a start-up."""

    model: nn.Module
    loss_of: Callable[[nn.Module], torch.Tensor]
    bytes_share: float = 0.5
    startup_share: float = 0.05


@dataclass(frozen=True)
class Outcome:
    """One plan's race: `seconds` are the steps that count; times from the start of backward."""

    name: str
    plan: Plan
    predicted_s: float
    seconds: tuple[float, ...]

    @property
    def measured_s(self) -> float:
        return statistics.median(self.seconds)

    @property
    def error(self) -> float:
        """Measured against predicted, relative: 0.05 is 5 % later than predicted."""
        return self.measured_s / self.predicted_s - 1.0


@dataclass(frozen=True)
class Race:
    gradients: Gradients
    cost: AffineCost
    outcomes: tuple[Outcome, ...]

    def __str__(self) -> str:
        lines = [f"{'plan':12} {'messages':>8} {'predicted':>12} {'measured':>12} {'error':>7}"]
        for one in self.outcomes:
            lines.append(
                f"{one.name:12} {one.plan.n_groups:8} {1e3 * one.predicted_s:9.1f} ms "
                f"{1e3 * one.measured_s:9.1f} ms {one.error:+7.1%}"
            )
        return "\n".join(lines)


def plans_for(gradients: Gradients, cost: AffineCost) -> dict[str, Plan]:
    """Return the five plans that race, by name."""
    return {
        "WFBP": one_per_gradient(len(gradients)),
        "single": single_bucket(len(gradients)),
        "DDP 25 MiB": by_size(gradients),
        "MG-WFBP": mg_wfbp(gradients, cost),
        "optimum": fewest_messages(gradients, cost),
    }


def race(case: Case, rounds: int, *, seed: int = 0) -> Race:
    """Let the five plans race until each has `rounds` steps that count. `seed` is for the order."""
    order = random.Random(seed)
    n = sum(p.requires_grad for p in case.model.parameters())
    with EmulatedLink(AffineCost(0.0, 0.0)) as no_link:
        alone = _Contender(case, no_link, single_bucket(n))
        _run([alone], rounds, warm_up=3, order=order)
        seen = alone.gradients()
        cost = AffineCost(
            case.startup_share * seen.compute_s,
            case.bytes_share * seen.compute_s / seen.total_bytes,
        )
        alone = _Contender(case, no_link, single_bucket(n), seen.names)
        with EmulatedLink(cost) as link:
            runs = {
                name: _Contender(case, link, plan, seen.names)
                for name, plan in plans_for(seen, cost).items()
            }
            _run([alone, *runs.values()], rounds, warm_up=2, order=order)
    gradients = alone.gradients()
    return Race(
        gradients,
        cost,
        tuple(
            Outcome(name, run.plan, finish_s(gradients, run.plan, cost), tuple(run.seconds))
            for name, run in runs.items()
        ),
    )


def _run(contenders: list["_Contender"], rounds: int, warm_up: int, order: random.Random) -> None:
    start_s, number = time.monotonic(), -warm_up
    while number < 10 * rounds or time.monotonic() - start_s < PATIENCE_S:
        for contender in order.sample(contenders, len(contenders)):
            contender.step(counts=number >= 0)
        if min(len(contender.seconds) for contender in contenders) >= rounds:
            return
        number += 1
    if min(len(contender.seconds) for contender in contenders) == 0:
        raise RuntimeError(
            f"No step could be timed in {number} rounds: other programs hold the processor. "
            f"Close them, or race on a machine that is less busy."
        )


class _Contender:
    """A copy of the model whose gradients travel by one plan over one link, and its steps."""

    def __init__(
        self, case: Case, link: EmulatedLink, plan: Plan, order: tuple[str, ...] | None = None
    ) -> None:
        self.model, self.loss_of, self.plan = copy.deepcopy(case.model), case.loss_of, plan
        exchange = EmulatedExchange(link)
        self.merged = MergedAllReduce(self.model, plan, exchange, order=order, timed=True)
        self.seconds: list[float] = []
        self.arrivals_s: list[list[float]] = []

    def step(self, *, counts: bool = True) -> None:
        """From the start of backward to the last sum; kept unless the processor was taken away."""
        self.model.zero_grad()
        loss = self.loss_of(self.model)
        start_s, start_cpu_s = time.perf_counter(), time.thread_time()
        self.merged.backward(loss)
        backward_s, cpu_s = time.perf_counter() - start_s, time.thread_time() - start_cpu_s
        self.merged.finish()
        seconds = time.perf_counter() - start_s
        if counts and cpu_s >= (1 - TAKEN_AWAY) * backward_s:
            times = self.merged.last_times
            self.seconds.append(seconds)
            self.arrivals_s.append([at_s - times.begin_s for at_s in times.arrival_s])

    def gradients(self) -> Gradients:
        """Median arrival times, from the start of backward."""
        sizes = {name: 4 * p.numel() for name, p in self.model.named_parameters()}
        medians_s = np.median(self.arrivals_s, axis=0).tolist()
        order = self.merged.order
        return in_order(
            dict(zip(order, medians_s, strict=True)), {name: sizes[name] for name in order}, 0.0
        )
