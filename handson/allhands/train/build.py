"""The one place where a run is put together: data, model, optimizer, hooks, trainer.

`build` returns Chainer's own `Trainer`, so that all that is written about Chainer holds for it.
What it adds is small: an updater that records how long each part of a step takes, and an iterator
whose order depends on the seed and the epoch alone, so that a resumed run goes on as if it had
never stopped.
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
from allhands.data.batch import BatchIterator
from allhands.data.corpus import CorpusError, Pair, read_pairs
from allhands.data.store import PairStore
from allhands.data.vocab import Vocab, build_pair
from allhands.trace.events import Recorder
from allhands.train import device as devices
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
    """One step: take a batch, forward, backward, update; each part is an event of `recorder`."""

    def __init__(self, iterator: BatchIterator, optimizer, device, recorder: Recorder) -> None:
        super().__init__({"main": iterator}, optimizer, device=device)
        self._recorder = recorder

    def update_core(self) -> None:
        optimizer = self.get_optimizer("main")
        model = optimizer.target
        self._recorder.step = self.iteration + 1
        with self._recorder.span("batch"):
            batch = self.get_iterator("main").next()
            on_device = devices.send(batch, self.device)
        with self._recorder.span("forward"):
            loss = model.loss(on_device)
        with self._recorder.span("backward"):
            model.cleargrads()
            loss.backward()
        with self._recorder.span("update"):
            optimizer.update()
        loss_per_token = float(loss.array) * len(batch) / batch.n_tokens
        if not math.isfinite(loss_per_token):
            raise FloatingPointError(
                f"The loss became {loss_per_token} at update {self.iteration + 1}. Lower the "
                f"learning rate or the clip norm, and resume from the newest snapshot."
            )
        chainer.report({"loss": loss_per_token, "n_tokens": batch.n_tokens})


def build(
    config: TrainConfig, translator: Translator, store: PairStore, recorder: Recorder, stop, out
) -> training.Trainer:
    """Return a trainer for `translator.model` over `store` that ends when `stop` says so.

    `stop` is a stop trigger of Chainer, `out` the run's folder. Extensions that watch the run
    (metrics, progress, snapshots) are added by the caller.
    """
    iterator = BatchIterator(store, config.batch_size, seed=config.seed)
    optimizer = chainer.optimizers.Adam(alpha=config.learning_rate)
    optimizer.setup(translator.model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(config.clip_norm))
    updater = Updater(iterator, optimizer, translator.device, recorder)
    trainer = training.Trainer(updater, stop_trigger=stop, out=str(out))
    rates = (config.learning_rate, config.last_learning_rate)
    trainer.extend(
        extensions.LinearShift("alpha", rates, (0, n_updates(config, store))),
        trigger=(1, "iteration"),
    )
    return trainer


def n_updates(config: TrainConfig, store: PairStore) -> int:
    """How many updates the whole run makes: an epoch's last batch may be smaller, and counts."""
    return config.epochs * math.ceil(len(store) / config.batch_size)
