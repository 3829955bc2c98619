"""The one place where a run is put together: data, model, optimizer, hooks, trainer.

`build` returns Chainer's own `Trainer`, so that all that is written about Chainer holds for it.
What it adds is small: an updater that records how long each part of a step takes, and an iterator
whose order depends on the seed and the epoch alone, so that a resumed run goes on as if it had
never stopped. On several ranks the edits of `parallel.py` come in: pairs, optimizer and rates.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import chainer
from chainer import training
from chainer.training import extensions

from allhands.config import TrainConfig
from allhands.data.batch import Batch, BatchIterator
from allhands.data.corpus import CorpusError, Pair, read_pairs
from allhands.data.shard import Shard, ShardIterator
from allhands.data.store import PairStore
from allhands.data.vocab import Vocab, build_pair
from allhands.trace.events import Recorder
from allhands.train import device as devices
from allhands.train import parallel, precision
from allhands.train.alone import ALONE
from allhands.train.parallel import Edits
from allhands.train.translator import Translator


@dataclass(frozen=True)
class Corpus:
    """What a run reads: vocabularies, encoded training pairs, and held-out pairs as text."""

    source_vocab: Vocab
    target_vocab: Vocab
    train: PairStore
    valid: list[Pair]


def open_corpus(config: TrainConfig, vocabs: tuple[Vocab, Vocab] | None = None) -> Corpus:
    """Read the corpus of `config`; a resumed run gives the vocabularies that it began with.

    All three parts are read to their ends, so that CorpusError comes before the training.
    """
    how = (config.source_tokens, config.target_tokens)
    valid = _held_out("valid", config.valid, config.evaluate_pairs)
    _held_out("test", config.test, 1)
    if vocabs is None:
        vocabs = build_pair(
            read_pairs(config.train),
            *how,
            max_size=config.max_vocab,
            max_length=config.max_length,
        )
    store = PairStore.encode(read_pairs(config.train), *vocabs, *how, max_length=config.max_length)
    return Corpus(*vocabs, store, valid)


def _held_out(part: str, spec: str, n_pairs: int) -> list[Pair]:
    """Read the whole of `spec`, and return its first pairs that have text on both sides."""
    pairs = read_pairs(spec)
    found = list(islice(_with_text(pairs), n_pairs))
    if not found:
        raise CorpusError(
            f"No pair of {spec} has text on both sides, and a run needs one in its {part} pairs. "
            f"Give another corpus, such as --set {part}=numbers_dates/{part}."
        )
    deque(pairs, maxlen=0)
    return found


def _with_text(pairs: Iterator[Pair]) -> Iterator[Pair]:
    return (pair for pair in pairs if pair.source.strip() and pair.target.strip())


class Updater(training.updaters.StandardUpdater):
    """One step: take a batch, forward, backward, update; each part is an event of `recorder`.

    On several ranks the losses are weighted, so that the mean gradient is that of all pairs of the
    step, and the loss that is reported is the one per token of all ranks.
    """

    def __init__(
        self,
        iterator: BatchIterator,
        optimizer,
        device,
        recorder: Recorder,
        comm=ALONE,
        advice: str = "Lower the learning rate",
    ) -> None:
        super().__init__({"main": iterator}, optimizer, device=device)
        self._recorder, self._comm, self._advice = recorder, comm, advice

    def update_core(self) -> None:
        recorder, comm = self._recorder, self._comm
        optimizer = self.get_optimizer("main")
        model = optimizer.target
        recorder.step = self.iteration + 1
        with recorder.span("batch"):
            batch = self.get_iterator("main").next()
            on_device = devices.send(batch, self.device)
        weight = 1.0
        if comm.size > 1:
            with recorder.span("communicate", "counts"):
                weight = parallel.weight(n_pairs(batch), comm)
        with recorder.span("forward"):
            loss = model.loss(on_device)
        with recorder.span("backward"):
            model.cleargrads()
            precision.backward(loss if weight == 1 else weight * loss, optimizer)
        n_before, start_s = len(recorder.events), recorder.now_s()
        precision.update(optimizer)
        exchanged_s = [event.end_s for event in recorder.events[n_before:]]
        recorder.add("update", "", max([start_s, *exchanged_s]), recorder.now_s())
        mine = {"loss": float(loss.array) * n_pairs(batch), "n_tokens": batch.n_tokens}
        if comm.size > 1:
            with recorder.span("communicate", "loss"):
                mine = parallel.total(mine, comm)
        loss_per_token = mine["loss"] / mine["n_tokens"]
        if not math.isfinite(loss_per_token):
            raise FloatingPointError(
                f"The loss became {loss_per_token} at update {self.iteration + 1}. {self._advice}."
            )
        chainer.report({"loss": loss_per_token, "n_tokens": int(mine["n_tokens"])})


def n_pairs(batch: Batch) -> int:
    """The pairs of a batch; a row of padding (`batch.batch_of`) is none."""
    return len(batch) if batch.n_tokens else 0


def build(
    config: TrainConfig,
    translator: Translator,
    store: PairStore,
    recorder: Recorder,
    stop,
    out,
    comm=ALONE,
) -> training.Trainer:
    """Return a trainer for `translator.model` over `store` that ends when `stop` says so.

    `store` holds the pairs of all ranks, `stop` is a stop trigger of Chainer, `out` the run's
    folder, `comm` a communicator of ChainerMN for several ranks (one that records what it does
    makes events of its own). Extensions that watch the run (metrics, progress, snapshots) are
    added by the caller.
    """
    iterator = batches(config, store, comm)
    optimizer = optimizer_of(config, translator, comm)
    advice = precision.why_not_finite(config)
    updater = Updater(iterator, optimizer, translator.device, recorder, comm, advice)
    trainer = training.Trainer(updater, stop_trigger=stop, out=str(out))
    if config.precision != "fp32":
        trainer.extend(precision.Keep(optimizer))
    trainer.extend(
        extensions.LinearShift("alpha", learning_rates(config), (0, n_updates(config, store))),
        trigger=(1, "iteration"),
    )
    return trainer


def batches(
    config: TrainConfig, store: PairStore, comm=ALONE, edits: Edits = parallel.RIGHT
) -> BatchIterator:
    """Return the batches of this rank: of its own pairs, on each rank as many an epoch.

    Raises ValueError if there are fewer pairs than ranks.
    """
    if comm is ALONE:
        return BatchIterator(store, config.batch_size, seed=config.seed)
    if len(store) < comm.size:
        raise ValueError(
            f"{len(store)} training pairs are too few for {comm.size} ranks: each needs one. Start "
            f"fewer ranks, or give more text."
        )
    mine = Shard(store, edits.shard(len(store), comm, config.seed))
    n_batches = max(parallel.of_all(-(-len(mine) // config.batch_size), comm))
    return ShardIterator(
        mine,
        config.batch_size,
        seed=config.seed,
        n_batches=n_batches,
        n_samples=len(store),
        ranks=comm.size,
    )


def optimizer_of(
    config: TrainConfig, translator: Translator, comm=ALONE, edits: Edits = parallel.RIGHT
):
    """Return the optimizer, set up; on several ranks, all have rank 0's parameters after that."""
    optimizer = chainer.optimizers.Adam(alpha=learning_rates(config, edits)[0])
    precision.prepare(optimizer, config)
    if comm is not ALONE:
        options = {"double_buffering": True} if config.double_buffering else {}
        optimizer = edits.multi_node(optimizer, comm, **options)
    optimizer.setup(translator.model)
    optimizer.add_hook(precision.clipping(config))
    parallel.begin(optimizer)
    return optimizer


def learning_rates(config: TrainConfig, edits: Edits = parallel.RIGHT) -> tuple[float, float]:
    """Return the first and the last learning rate of the run: those of one rank times a factor."""
    factor = edits.rate_factor(config.rate_scaling, config.ranks)
    return factor * config.learning_rate, factor * config.last_learning_rate


def n_updates(config: TrainConfig, store: PairStore) -> int:
    """How many updates the whole run makes: an epoch's last batch may be smaller, and counts."""
    return config.epochs * parallel.n_steps(len(store), config.batch_size, config.ranks)
