"""What the ranks of test_train_parallel.py run: python parallel_ranks.py WHAT FOLDER CORPUS

WHAT is `compare` (steps and an evaluation, against one rank that has all), `train-NAME` (a run to
its end in FOLDER/NAME), `stop-NAME` (rank 1's clock stops it after five updates), `kill-NAME`
(signal 9 to rank 1 after nine), or several of these, joined by +. Each rank leaves
FOLDER/WHAT.rank<r>.json.
"""

import json
import os
import signal
import sys
from itertools import chain, count
from pathlib import Path

import chainer
import numpy as np
from mpi4py import MPI

from allhands import config as configs
from allhands.train import parallel, parallel_job, parallel_parts, run
from allhands.train.alone import ALONE
from allhands.train.compare.parts import Parts
from allhands.train.stop import StopTrigger

TINY = ["n_embed=6", "n_hidden=8", "batch_size=8", "epochs=2", "evaluate_every=6"]
TINY += ["evaluate_pairs=9", "snapshot_every=4"]


def gradients(program: Parts, numbers: list[int], *, exchange: bool) -> list[float]:
    program.model.cleargrads()
    program.loss(numbers).backward()
    if exchange:
        program.optimizer.communicator.multi_node_mean_grad(program.model, True)
    return np.concatenate(
        [param.grad.ravel() for _, param in sorted(program.model.namedparams())]
    ).tolist()


def compare(config: configs.TrainConfig, comm) -> dict:
    """Rank 0's program over all pairs, and every rank's over its own."""
    program = parallel_parts.parts(config, comm)
    batches = [sorted(map(int, batch)) for batch in program.epoch(0)]
    unequal = next(step for step, batch in enumerate(batches) if len(batch) < config.batch_size)
    steps = {step: parallel.of_all(batches[step], comm) for step in {0, unequal}}
    found = {"batches": batches, "evaluation": program.evaluate(), "t": program.optimizer.t}
    found["mean"] = [gradients(program, batches[step], exchange=True) for step in steps]
    found["none"] = float(program.loss([] if comm.rank else batches[0]).array)
    if parallel.speaks(comm):
        alone = parallel.communicator("naive", mpi_comm=MPI.COMM_SELF)
        whole = parallel_parts.parts(config, alone)
        unions = [list(chain.from_iterable(of_ranks)) for of_ranks in steps.values()]
        found["union"] = [gradients(whole, union, exchange=False) for union in unions]
        found["alone"] = whole.evaluate()
    return found


def train(what: str, config: configs.TrainConfig, folder: Path, comm) -> dict:
    ticks = count()
    clock = lambda: float(next(ticks) > 5) if comm.rank == 1 else 0.0  # noqa: E731
    limit_s = 1.0 if what == "stop" else None
    if what == "kill" and comm.rank == 1:
        kill_after(9)
    result = run.train(config, folder, resume=True, stop_after_s=limit_s, clock=clock, comm=comm)
    return {"finished": result.finished, "reason": result.reason, "n_updates": result.n_updates}


def kill_after(update: int) -> None:
    decide = StopTrigger.__call__

    def die(trigger: StopTrigger, trainer: chainer.training.Trainer) -> bool:
        if trainer.updater.iteration == update:
            os.kill(os.getpid(), signal.SIGKILL)
        return decide(trigger, trainer)

    StopTrigger.__call__ = die


def main(what: str, folder: Path, corpus: Path) -> None:
    files = [f"{part}={corpus}" for part in ("train", "valid", "test")]
    config = configs.override(configs.lab2_cpu(), [*TINY, *files])
    config, comm = parallel_job.join(config)
    assert comm is not ALONE
    for one in what.split("+"):
        if one == "compare":
            found = compare(config, comm)
        else:
            found = train(one.partition("-")[0], config, folder / one.partition("-")[2], comm)
        (folder / f"{one}.rank{comm.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
