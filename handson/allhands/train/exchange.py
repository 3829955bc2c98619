"""How does ChainerMN exchange gradients? Its own communicator, with a record of when it speaks.

ChainerMN's multi-node optimizer averages all gradients at one time, after the backward pass: the
single bucket. `pure_nccl` packs them into one message; `naive` sends one message a parameter, all
in one go. A merged exchange would have to start during the backward pass. Chainer offers no public
place for that: `Variable.backward` keeps the gradients of parameters to itself and hands them over
(`param.grad`) when the whole pass is over.

    mpiexec -n 2 python -m allhands.train.exchange --out FOLDER

trains the translator of lab 1 for a few steps on batches that each rank draws for itself, and
leaves the events of all ranks in FOLDER. Conventions: as in trace/events.py; the ranks' clocks have
one zero.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import chainer
import chainermn

from allhands import config as configs
from allhands import launch
from allhands.data.batch import Batch, BatchIterator, Store, collate
from allhands.trace.events import Recorder
from allhands.train import device as devices
from allhands.train.build import Corpus, open_corpus
from allhands.train.excepthook import end_job_on_error
from allhands.train.recorder import RecordedCommunicator, common_recorder
from allhands.train.translator import Translator

DRAWN_SEED = 1


def cut_batches(
    store: Store, n_rows: int, rank: int, parts: int, *, seed: int = DRAWN_SEED
) -> Iterator[Batch]:
    """Cut batches of `n_rows` pairs into `parts` of equal size; yield part `rank` of each.

    The pairs of a batch are sorted by length and dealt out like cards, so that the parts have
    nearly the same lengths and no rank waits long. An epoch's last batch is left out if it is
    smaller. Raises ValueError if the rows cannot be dealt out evenly, or if there are too few.
    """
    if n_rows % parts or n_rows < parts:
        raise ValueError(
            f"A batch of {n_rows} pairs cannot be cut into {parts} equal parts. Give a multiple of "
            f"{parts}."
        )
    if len(store) < n_rows:
        raise ValueError(
            f"The store holds {len(store)} pairs, fewer than one batch of {n_rows}. Give a smaller "
            f"batch."
        )
    batches = BatchIterator(store, n_rows, seed=seed)
    epoch = 0
    while True:
        for rows in batches.order(epoch):
            if len(rows) == n_rows:
                yield collate([(store.source(i), store.target(i)) for i in rows[rank::parts]])
        epoch += 1


def train_steps(
    communicator,
    recorder: Recorder,
    n_steps: int,
    *,
    batch_size: int = 64,
    batches: Iterator[Batch] | None = None,
    corpus: Corpus | None = None,
    device: str = "@numpy",
    double_buffering: bool = False,
) -> None:
    """Train lab1_cpu's model for `n_steps` updates on every rank; record the parts of each step.

    Without `batches` every rank draws its own, of `batch_size` pairs. The first call of ChainerMN's
    optimizer hands rank 0's parameters to all, and updates nothing; it is step 0. `corpus`: what
    `open_corpus(lab1_cpu)` gave, if it is there already. With `double_buffering` (communicator
    `pure_nccl` only) no event says when the exchange runs: it runs beside the next step.
    """
    config = configs.override(configs.lab1_cpu(), [f"batch_size={batch_size}", f"device={device}"])
    corpus = corpus or open_corpus(config)
    translator = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
    recorded = communicator if double_buffering else RecordedCommunicator(communicator, recorder)
    adam = chainer.optimizers.Adam(config.learning_rate)
    optimizer = chainermn.create_multi_node_optimizer(adam, recorded, double_buffering)
    optimizer.setup(translator.model)
    if batches is None:
        batches = BatchIterator(corpus.train, batch_size, seed=DRAWN_SEED + communicator.rank)
    for step in range(n_steps + 1):
        recorder.step = step
        with recorder.span("batch"):
            batch = devices.send(next(batches), translator.device)
        with recorder.span("forward"):
            loss = translator.model.loss(batch)
        with recorder.span("backward"):
            translator.model.cleargrads()
            loss.backward()
        start_s = recorder.now_s()
        n_before = len(recorder.events)
        optimizer.update()
        for exchanged in recorder.events[n_before:]:
            start_s = exchanged.end_s
        recorder.add("update", "", start_s, recorder.now_s())


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
    recorder = common_recorder(communicator, path=path)
    train_steps(communicator, recorder, options.steps)
    recorder.flush()


if __name__ == "__main__":
    main()
