"""What does a merged plan look like on real ranks? A few steps of a real network, as events.

    torchrun --nproc-per-node 2 -m allhands.train.merged.steps --out FOLDER --startup-s 2e-3

Each rank trains the deep network of model/deep_cnn.py on its own images. The plan is the optimum
for the backward times that all ranks agree on, and for the link that is given. The ranks exchange
by gloo; that is the machine's own link. Each rank leaves its events in FOLDER, rank 0 the plan
(`plan.json`), and, as a proof, whether all ranks ended with the same parameters.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.optimal import fewest_messages
from allhands.mgwfbp.plan import Plan
from allhands.model.deep_cnn import deep_cnn, images
from allhands.trace.events import Recorder
from allhands.train.merged.exchange import DistributedExchange
from allhands.train.merged.hooks import MergedAllReduce
from allhands.train.probe import agree, probe

WARM_UP = 2


def train_steps(folder: Path, n_steps: int, cost: AffineCost) -> tuple[Plan, bool]:
    """Run `n_steps` recorded steps on every rank; return the plan, and whether the ranks agree.

    All ranks of the default process group call it; it must be initialised.
    """
    rank = dist.get_rank()
    torch.set_num_threads(1)
    model, x_bchw = deep_cnn(), images(4, seed=rank)
    exchange = DistributedExchange()
    gradients = agree(probe(model, lambda: _loss(model, x_bchw), steps=3, warm_up=1), exchange)
    plan = fewest_messages(gradients, cost)
    path = folder / f"events.rank{rank}.jsonl"
    path.unlink(missing_ok=True)
    dist.barrier()  # one zero of time for all ranks
    recorder = Recorder(rank, time.perf_counter, path)
    merged = MergedAllReduce(model, plan, exchange, order=gradients.names, recorder=recorder)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for step in range(WARM_UP + n_steps):
        recorder.step = step
        optimizer.zero_grad()
        merged.backward(_loss(model, x_bchw))
        merged.finish()
        optimizer.step()
        if step < WARM_UP:
            recorder.events.clear()
    recorder.flush()
    total = sum(float(p.double().sum()) for p in model.parameters())
    largest, smallest = exchange.all_max([total, -total])
    merged.close()
    return plan, largest == -smallest


def _loss(model: torch.nn.Module, x_bchw: torch.Tensor) -> torch.Tensor:
    return model(x_bchw).logsumexp(dim=1).sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--startup-s", type=float, default=2e-3)
    parser.add_argument("--s-per-byte", type=float, default=1e-9)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo")
    cost = AffineCost(options.startup_s, options.s_per_byte)
    plan, same = train_steps(options.out, options.steps, cost)
    if dist.get_rank() == 0:
        found = {"groups": plan.groups, "same_parameters_on_all_ranks": same}
        (options.out / "plan.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
        print(f"{plan.n_gradients} gradients in {plan.n_groups} messages; equal ranks: {same}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
