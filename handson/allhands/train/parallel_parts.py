"""What is the data-parallel program of a config, taken apart so that it can be compared?

`parts` builds it from the same functions as the trainer, with any of lab 2's edits exchanged for
someone else's: what `allhands compare` then finds is the fault of that edit.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

import chainer

from allhands.config import TrainConfig
from allhands.data.batch import batch_of
from allhands.data.vocab import Vocab
from allhands.train import build, parallel
from allhands.train import device as devices
from allhands.train.compare.parts import Parts
from allhands.train.parallel import Edits
from allhands.train.translator import Evaluation, Translator


def parts(config: TrainConfig, comm, edits: Edits = parallel.RIGHT) -> Parts:
    """Return the program of `config` on this rank of `comm`, a communicator of ChainerMN.

    `config.ranks` is taken to be `comm.size`. `epoch`, `loss` and `evaluate` of the parts
    communicate: call them on all ranks. A batch without samples has the loss 0.
    """
    config = dataclasses.replace(
        config, ranks=comm.size, device=device_for(config.device, comm, edits)
    )
    devices.choose(config.device)
    corpus = build.open_corpus(config)
    translator = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
    optimizer = build.optimizer_of(config, translator, comm, edits)
    iterator = build.batches(config, corpus.train, comm, edits)

    def epoch(number: int) -> list[list[int]]:
        return [iterator.store.numbers[rows].tolist() for rows in iterator.order(number)]

    def loss(numbers: Sequence[int]) -> chainer.Variable:
        batch = devices.send(batch_of(corpus.train, numbers), translator.device)
        return parallel.weight(len(numbers), comm) * translator.model.loss(batch)

    def evaluate() -> dict[str, float]:
        own = translator.count(corpus.valid[comm.rank :: comm.size])
        return figures(edits.total(own, comm))

    return Parts(
        model=translator.model,
        optimizer=optimizer,
        n_samples=len(corpus.train),
        epoch=epoch,
        loss=loss,
        evaluate=evaluate,
        same={
            "source vocabulary": digest(corpus.source_vocab),
            "target vocabulary": digest(corpus.target_vocab),
        },
        n_held_out=len(corpus.valid),
        speaks=bool(edits.speaks(comm)),
    )


def figures(counts: Mapping[str, float]) -> dict[str, float]:
    """Return the counts of held-out sentences and tokens, and the figures made of all sums."""
    found = Evaluation.of(counts)
    return {
        "n_sentences": counts["n_sentences"],
        "n_tokens": counts["n_tokens"],
        "loss_per_token": found.loss_per_token,
        "exact_match": found.quality.exact_match,
        "bleu": found.quality.bleu,
        "chrf": found.quality.chrf,
    }


def device_for(specifier: str, comm, edits: Edits = parallel.RIGHT) -> str:
    """Return the device of this rank: `auto` is what edit 2 says.

    Raises ValueError for one GPU by its number on several ranks.
    """
    if specifier == "auto":
        return edits.device_of(comm)
    if specifier.startswith("@cupy") and comm.size > 1:
        raise ValueError(
            f"The device {specifier} would put {comm.size} ranks on one GPU. Give --device auto: "
            f"each rank then takes the GPU of its own number."
        )
    return specifier


def digest(vocab: Vocab) -> str:
    """Return a short name of a vocabulary: the same if and only if its tokens are."""
    return hashlib.sha256("\n".join(vocab.tokens).encode()).hexdigest()[:12]
