"""How does ChainerMN exchange gradients? Its own communicator, with a record of when it speaks.

ChainerMN's multi-node optimizer averages all gradients in one packed all-reduce, after the backward
pass: the single bucket. A merged exchange would have to start during the backward pass. Chainer
offers no public place for that: `Variable.backward` keeps the gradients of parameters to itself and
hands them over (`param.grad`) when the whole pass is over.

    mpiexec -n 2 python -m allhands.train.exchange --out FOLDER

trains the translator of lab 1 for a few steps on each rank's share of the pairs, and leaves the
events of all ranks in FOLDER. Conventions: as in trace/events.py.
"""

import argparse
import time
from pathlib import Path

import chainer
import chainermn

from allhands import config as configs
from allhands import launch
from allhands.data.batch import BatchIterator
from allhands.trace.events import Recorder
from allhands.train import device as devices
from allhands.train.build import open_corpus
from allhands.train.excepthook import end_job_on_error
from allhands.train.translator import Translator


class RecordedCommunicator:
    """A ChainerMN communicator; each averaging of gradients is an event `communicate`."""

    def __init__(self, communicator, recorder: Recorder) -> None:
        self._communicator = communicator
        self._recorder = recorder

    def __getattr__(self, name: str):
        return getattr(self._communicator, name)

    def multi_node_mean_grad(self, model: chainer.Link, zero_fill: bool = False) -> None:
        """Average the gradients of all parameters over the ranks, in one all-reduce."""
        with self._recorder.span("communicate", "all"):
            self._communicator.multi_node_mean_grad(model, zero_fill)


def train_steps(communicator, recorder: Recorder, n_steps: int, *, batch_size: int = 64) -> None:
    """Train lab1_cpu's model for `n_steps` updates on every rank; record the parts of each step.

    Every rank draws its own batches. The first call of ChainerMN's optimizer hands rank 0's
    parameters to all, and updates nothing; it is step 0.
    """
    config = configs.override(configs.lab1_cpu(), [f"batch_size={batch_size}"])
    corpus = open_corpus(config)
    translator = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
    recorded = RecordedCommunicator(communicator, recorder)
    adam = chainer.optimizers.Adam(config.learning_rate)
    optimizer = chainermn.create_multi_node_optimizer(adam, recorded)
    optimizer.setup(translator.model)
    batches = BatchIterator(corpus.train, batch_size, seed=1 + communicator.rank)
    for step in range(n_steps + 1):
        recorder.step = step
        with recorder.span("batch"):
            batch = devices.send(next(batches), translator.device)
        with recorder.span("forward"):
            loss = translator.model.loss(batch)
        with recorder.span("backward"):
            translator.model.cleargrads()
            loss.backward()
        optimizer.update()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    communicator = chainermn.create_communicator("naive")
    end_job_on_error(communicator)
    launch.expect_world(communicator.mpi_comm)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"events.rank{communicator.rank}.jsonl"
    path.unlink(missing_ok=True)
    communicator.mpi_comm.Barrier()  # one zero of time for all ranks
    recorder = Recorder(communicator.rank, time.perf_counter, path)
    train_steps(communicator, recorder, options.steps)
    recorder.flush()


if __name__ == "__main__":
    main()
