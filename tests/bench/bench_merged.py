"""Two real gloo ranks on this machine: merged all-reduce against PyTorch's DDP.

    python tests/bench/bench_merged.py [--rounds 40] [--ranks 2] [--model cnn]

The whole way of a user: probe, agree, fit the link, plan, train. In each round every contender does
one step (forward, backward, all gradients exchanged), in an order that all ranks draw alike; a step
counts with the time of its slowest rank. Contenders:

- DDP: as it is by default (buckets of 1 MiB, then 25 MiB).
- merged: MergedAllReduce with the optimum for the fitted link.
- DDP, planned: the same plan through DDP's list of bucket sizes.
- single, WFBP: MergedAllReduce with one group, and with one group a gradient.

Prints medians, and for each contender the median over rounds of its time / DDP's in the same round,
with the interval that holds the true median with 95 % (from the binomial distribution, no normal
one assumed). Exit code 1 if merged is slower than DDP beyond that interval.

On one machine gloo's "link" is memory, and takes the processors that backward needs: nothing is
gained by overlap here. See bench_link.py for a link that costs nothing but time.
"""

import argparse
import json
import math
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from allhands import launch
from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.optimal import fewest_messages
from allhands.mgwfbp.plan import one_per_gradient, single_bucket
from allhands.train.merged.ddp import ddp_with_plan
from allhands.train.merged.exchange import DistributedExchange
from allhands.train.merged.hooks import MergedAllReduce
from allhands.train.probe import agree, measure_link, probe

BASELINE = "DDP"


def cnn() -> tuple[nn.Module, torch.Tensor]:
    layers: list[nn.Module] = []
    before = 3
    for width, depth in ((16, 3), (32, 4), (64, 4), (128, 4), (256, 4)):
        for i in range(depth):
            layers += [nn.Conv2d(before, width, 3, stride=2 if i == 0 else 1, padding=1), nn.ReLU()]
            before = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 9, 100)), torch.randn(4, 3, 96, 96)


def mlp() -> tuple[nn.Module, torch.Tensor]:
    layers = [layer for _ in range(12) for layer in (nn.Linear(512, 512), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(128, 512)


MODELS = {"cnn": cnn, "mlp": mlp}


def contenders(build) -> tuple[dict, str]:
    """Return {name: (model, what to call after backward)}, and what was found on the way."""
    exchange = DistributedExchange()
    model, data = build()
    gradients = agree(probe(model, lambda: model(data).square().sum()), exchange)
    sizes = [4 * 2**k for k in range(8, 22, 2)]
    fitted = fit(*measure_link(exchange, sizes))
    plan, n = fewest_messages(gradients, fitted.cost), len(gradients)
    found = f"{n} gradients, {gradients.total_bytes / 2**20:.1f} MiB; {fitted}"

    def merged(plan) -> tuple[nn.Module, object]:
        model = build()[0]
        return model, MergedAllReduce(model, plan, exchange, order=gradients.names).finish

    runs = {
        BASELINE: (DistributedDataParallel(build()[0]), lambda: None),
        f"merged ({plan.n_groups})": merged(plan),
        "DDP, planned": (ddp_with_plan(build()[0], plan, gradients.names), lambda: None),
        "single": merged(single_bucket(n)),
        f"WFBP ({n})": merged(one_per_gradient(n)),
    }
    return {name: (*run, data) for name, run in runs.items()}, found


def one_step(model: nn.Module, finish, data: torch.Tensor) -> float:
    model.zero_grad()
    dist.barrier()
    start_s = time.perf_counter()
    model(data).square().sum().backward()
    finish()
    return time.perf_counter() - start_s


def rank_main(name: str, rounds: int, folder: Path) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    runs, found = contenders(MODELS[name])
    order = random.Random(0)
    taken_s = {name: [] for name in runs}
    for number in range(-3, rounds):  # DDP lays out its buckets in the first steps
        for name in order.sample(list(runs), len(runs)):
            seconds = one_step(*runs[name])
            if number >= 0:
                taken_s[name].append(seconds)
    exchange = DistributedExchange()
    slowest_s = {name: exchange.all_max(times_s) for name, times_s in taken_s.items()}
    if dist.get_rank() == 0:
        (folder / "result.json").write_text(json.dumps({"found": found, "seconds": slowest_s}))
    dist.barrier()
    del runs, exchange
    dist.destroy_process_group()


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Median, and the order statistics between which the true one lies with 95 %."""
    values, n = sorted(values), len(values)
    below, k = 0.0, 0
    while (below := below + math.comb(n, k) / 2**n) <= 0.025:
        k += 1
    return float(np.median(values)), values[max(k - 1, 0)], values[n - max(k, 1)]


def report(name: str, ranks: int, rounds: int) -> bool:
    """Run one model, print its table; return whether merged is not slower than DDP."""
    with tempfile.TemporaryDirectory() as folder:
        launch.torchrun(
            __file__, "--rank", folder, name, rounds, ranks=ranks, time_limit_s=60 + 10 * rounds
        )
        result = json.loads((Path(folder) / "result.json").read_text())
    print(f"{name}, {ranks} ranks: {result['found']}")
    print("  contender        median ms   of DDP   95 % interval")
    good = True
    for contender, times_s in result["seconds"].items():
        ratios = [one / two for one, two in zip(times_s, result["seconds"]["DDP"], strict=True)]
        ratio, low, high = median_interval(ratios)
        median_ms = 1e3 * float(np.median(times_s))
        print(f"  {contender:16} {median_ms:9.1f} {ratio:8.3f}   {low:.3f} to {high:.3f}")
        good = good and not (contender.startswith("merged") and low > 1.0)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", choices=MODELS, action="append")
    asked = parser.parse_args()
    good = [report(name, asked.ranks, asked.rounds) for name in asked.model or MODELS]
    print("merged is " + ("never slower than DDP beyond noise" if all(good) else "slower than DDP"))
    return 0 if all(good) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(sys.argv[3], int(sys.argv[4]), Path(sys.argv[2]))
    else:
        sys.exit(main())
