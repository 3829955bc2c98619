"""What does ChainerMN's double buffering do to the training? A model of it that runs on a CPU.

With `create_multi_node_optimizer(..., double_buffering=True)` ChainerMN averages the gradients of
one step while the next step computes. So the exchange costs nothing as long as it is shorter than
the computing; but each update uses gradients that are one step old. The real class needs
`pure_nccl` and a GPU. `DelayedOptimizer` makes the same updates in the same order (source:
`chainermn/optimizers.py` of Chainer 7.8.1, class `_DoubleBufferingOptimizer`), without the gain in
time. A test runs the two side by side.

What the calls of `update()` do, with w0 the parameters of rank 0 and g(w) the averaged gradient:

    call 1    all ranks take over w0                                     no update
    call 2    g(w0) is sent                                              no update
    call 3    g(w0), of call 2, has arrived; the next g(w0) is sent      w1 = w0 - rate g(w0)
    call 4    g(w0), of call 3, has arrived; g(w1) is sent               w2 = w1 - rate g(w0)
    call n    g(w[n-4]), of call n-1, has arrived; g(w[n-3]) is sent     w[n-2] = w[n-3] - ...

So the first two updates use gradients at the same parameters, n calls make n - 2 updates (without
double buffering n - 1), and the last gradient is never used.

    python -m allhands.train.double_buffer --ranks 2

trains the translator of lab 1 with fresh and with one-step-old gradients, three seeds each.
"""

import argparse
import dataclasses
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import chainer
import chainermn
import numpy as np

from allhands import config as configs
from allhands import launch
from allhands.data.batch import Batch
from allhands.launch.job import world
from allhands.train import device as devices
from allhands.train.build import Corpus, open_corpus
from allhands.train.excepthook import end_job_on_error
from allhands.train.exchange import cut_batches
from allhands.train.translator import Translator


class DelayedOptimizer:
    """A multi-node optimizer whose updates use the averaged gradients of the call before.

    All that is not named here is the actual optimizer's (`target`, `t`, `add_hook`, ...).
    """

    def __init__(self, actual_optimizer, communicator) -> None:
        self.actual_optimizer = actual_optimizer
        self.communicator = communicator
        self._sent: list[np.ndarray | None] | None = None  # averaged; used by the next call
        self._names: list[str] = []

    def __getattr__(self, name: str):
        return getattr(self.actual_optimizer, name)

    def setup(self, link: chainer.Link) -> "DelayedOptimizer":
        self.actual_optimizer.setup(link)
        return self

    def update(self) -> None:
        """Send this step's gradients (`param.grad`), and update with those of the step before.

        The first call hands rank 0's parameters to all ranks instead, and so does one after links
        came or went. As in ChainerMN's class a parameter that gets its shape later (`Linear(None,
        n)`) is not handed over then: give all sizes, or the ranks' copies differ. After the call
        `param.grad` is what was used, or None if there was no update. A collective call.
        """
        target = self.actual_optimizer.target
        parameters = dict(sorted(target.namedparams()))
        if list(parameters) != self._names:
            self.communicator.bcast_data(target)
            self._names, self._sent = list(parameters), None
            return
        self.communicator.multi_node_mean_grad(target, True)
        mine = [None if param.grad is None else param.grad.copy() for param in parameters.values()]
        arrived, self._sent = self._sent, mine
        if arrived is None:
            target.cleargrads()
            return
        for param, grad in zip(parameters.values(), arrived, strict=True):
            param.grad = grad
        self.actual_optimizer.update()


def delayed(optimizer, communicator) -> DelayedOptimizer:
    """Return `optimizer` with ChainerMN's double buffering, as far as the updates go."""
    return DelayedOptimizer(optimizer, communicator)


@dataclass(frozen=True)
class Outcome:
    """How good a model is after a number of updates; `exact_match` is in percent."""

    seed: int
    delay: bool
    updates: int
    train_loss_per_token: float  # mean over the last tenth of the updates
    valid_loss_per_token: float
    exact_match: float


def train(
    communicator,
    *,
    delay: bool,
    seed: int,
    updates: int = 250,
    batch_size: int = 64,
    learning_rate: float = 3e-3,
    corpus: Corpus | None = None,
) -> Outcome:
    """Train lab 1's model for `updates` updates, with gradients that are one step old or fresh.

    A collective call; `batch_size` is of all ranks together, so the outcome does not depend on
    their number (but for rounding). The rate falls linearly to a twentieth, as in lab1_cpu.
    """
    config = configs.override(
        configs.lab1_cpu(), [f"seed={seed}", f"batch_size={batch_size}", "device=@numpy"]
    )
    corpus = corpus or open_corpus(config)
    translator = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
    adam = chainer.optimizers.Adam(learning_rate)
    make = delayed if delay else chainermn.create_multi_node_optimizer
    optimizer = make(adam, communicator).setup(translator.model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(config.clip_norm))
    parts = communicator.size
    batches = cut_batches(corpus.train, batch_size, communicator.rank, parts, seed=seed)
    seen = []  # of each step: loss summed over this rank's pairs, and their target tokens
    while adam.t < updates:
        adam.alpha = learning_rate * (1 - 0.95 * adam.t / updates)
        seen.append(_step(translator, optimizer, batches))
    last = communicator.allreduce_obj(np.sum(seen[-max(1, updates // 10) :], axis=0))
    found = translator.evaluate(corpus.valid)
    return Outcome(
        seed,
        delay,
        adam.t,
        float(last[0] / last[1]),
        found.loss_per_token,
        found.quality.exact_match,
    )


def _step(translator: Translator, optimizer, batches: Iterator[Batch]) -> tuple[float, int]:
    batch = devices.send(next(batches), translator.device)
    loss = translator.model.loss(batch)
    translator.model.cleargrads()
    loss.backward()
    optimizer.update()
    return float(loss.array) * len(batch), batch.n_tokens


def compare(
    seeds: Sequence[int] = (0, 1, 2), *, updates: int = 250, batch_size: int = 64, ranks: int = 2
) -> list[Outcome]:
    """Start ranks, and train each seed with fresh gradients and with one-step-old ones.

    batch_size: of all ranks together. Errors: as of `launch.mpirun`; ValueError for a batch that
    the ranks cannot share equally.
    """
    if batch_size % ranks:
        raise ValueError(
            f"A batch of {batch_size} pairs cannot be cut into {ranks} equal parts. Give a "
            f"multiple of {ranks}."
        )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "outcomes.json"
        words = ["--out", out, "--updates", updates, "--batch", batch_size, "--seeds", *seeds]
        limit_s = 60 + 2 * len(seeds) * updates * 1.0  # a second an update, far above any
        launch.mpirun("allhands.train.double_buffer", *words, ranks=ranks, time_limit_s=limit_s)
        return [Outcome(**one) for one in json.loads(out.read_text())]


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as text, a line a training."""
    lines = ["seed  gradients     updates  training loss  validation loss  exact match"]
    for one in sorted(outcomes, key=lambda one: (one.seed, one.delay)):
        lines.append(
            f"{one.seed:4}  {'one step old' if one.delay else 'fresh':12} {one.updates:8} "
            f"{one.train_loss_per_token:14.3f} {one.valid_loss_per_token:16.3f} "
            f"{one.exact_match:10.1f} %"
        )
    return "\n".join(lines)


def step_s(compute_s: float, communicate_s: float, *, double_buffering: bool) -> float:
    """Return the time of a step: the sum of both, or with double buffering the longer one.

    So double buffering saves min(compute_s, communicate_s), half of the step at the most.
    """
    if compute_s < 0 or communicate_s < 0:
        raise ValueError(f"Times are not negative; saw {compute_s} s and {communicate_s} s.")
    if double_buffering:
        return max(compute_s, communicate_s)
    return compute_s + communicate_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--updates", type=int, default=250)
    parser.add_argument("--batch", type=int, default=64, help="pairs of all ranks together")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if world(os.environ) is None:
        how = {"updates": asked.updates, "batch_size": asked.batch, "ranks": asked.ranks}
        print(table(compare(asked.seeds, **how)))
        return
    communicator = chainermn.create_communicator("naive")
    end_job_on_error(communicator)
    launch.expect_world(communicator.mpi_comm)
    corpus = open_corpus(configs.lab1_cpu())
    how = {"updates": asked.updates, "batch_size": asked.batch, "corpus": corpus}
    outcomes = [
        train(communicator, delay=delay, seed=seed, **how)
        for seed in asked.seeds
        for delay in (False, True)
    ]
    if communicator.rank == 0:
        print(table(outcomes))
        if asked.out is not None:
            found = [dataclasses.asdict(one) for one in outcomes]
            asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
