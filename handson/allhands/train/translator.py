"""A model with its vocabularies: text in, text out, and how well it does on held-out pairs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import chainer
import numpy as np

from allhands import config as configs
from allhands.config import TrainConfig
from allhands.data import tokens
from allhands.data.batch import collate, pad
from allhands.data.corpus import Pair
from allhands.data.vocab import EOS, UNK, Vocab
from allhands.model import decode
from allhands.model.seq2seq import ModelSize, Seq2Seq
from allhands.train import device as devices
from allhands.train import precision, snapshot
from allhands.train.quality import Quality, count, quality

SENTENCES_AT_ONCE = 128


@dataclass(frozen=True)
class Evaluation:
    """`loss_per_token` is -log p (natural logarithm) of the reference, given all tokens before."""

    loss_per_token: float
    quality: Quality

    @classmethod
    def of(cls, counts: Mapping[str, float]) -> "Evaluation":
        """Make the figures of what `Translator.count` gave, added up over all parts.

        Raises FloatingPointError if the loss is not a finite number.
        """
        loss_per_token = counts["loss"] / counts["n_tokens"]
        if not math.isfinite(loss_per_token):
            raise FloatingPointError(
                f"The loss on held-out pairs became {loss_per_token}: the model is spoilt. Lower "
                f"the learning rate or the clip norm, and start anew in another folder."
            )
        return cls(loss_per_token, quality(counts))


@dataclass(frozen=True)
class Translator:
    """Translates whole sentences; `config` says how text is cut and how long an answer may be."""

    model: Seq2Seq
    source_vocab: Vocab
    target_vocab: Vocab
    config: TrainConfig
    device: chainer.backend.Device

    @classmethod
    def new(cls, config: TrainConfig, source_vocab: Vocab, target_vocab: Vocab) -> "Translator":
        """Make an untrained translator: device first, then the model on it."""
        device = devices.choose(config.device)
        rows = [
            math.ceil(len(vocab) / config.vocab_multiple) * config.vocab_multiple
            for vocab in (source_vocab, target_vocab)
        ]
        size = ModelSize(*rows, config.n_embed, config.n_hidden)
        with precision.numbers(config):
            model = Seq2Seq(size, seed=config.seed)
        model.to_device(device)
        return cls(model, source_vocab, target_vocab, config, device)

    @classmethod
    def load(cls, folder: Path, device: str | None = None) -> "Translator":
        """Load what a run left: its model, or of an unfinished run the newest snapshot.

        Raises ValueError, in a sentence, if `folder` is not one of a run.
        """
        if not (folder / "config.json").exists():
            raise ValueError(
                f"There is no run folder {folder}, or it has no config.json. Give the folder that "
                f"`allhands train` named when it began."
            )
        config = configs.load(folder / "config.json")
        if device is not None:
            config = configs.override(config, [f"device={device}"])
        vocabs = (Vocab.load(folder / "source.vocab"), Vocab.load(folder / "target.vocab"))
        translator = cls.new(config, *vocabs)
        snapshot.load_model(folder, translator.model)
        return translator

    def source_ids(self, text: str) -> list[int]:
        """Cut and number one source sentence; EOS ends it."""
        cut = tokens.split(text, self.config.source_tokens)
        return [*self.source_vocab.encode(cut), EOS]

    def translate(self, texts: Sequence[str], beam_width: int | None = None) -> list[str]:
        """Translate sentences, answers in the order of the questions; a blank one stays blank."""
        width = self.config.beam_width if beam_width is None else beam_width
        ids = [self.source_ids(text) for text in texts]
        asked = [i for i, text in enumerate(texts) if text.strip()]
        by_length = sorted(asked, key=lambda i: len(ids[i]))
        answers = [""] * len(ids)
        for start in range(0, len(asked), SENTENCES_AT_ONCE):
            rows = by_length[start : start + SENTENCES_AT_ONCE]
            for row, answer in zip(rows, self._decode([ids[i] for i in rows], width), strict=True):
                cut = self.target_vocab.decode(answer)
                answers[row] = tokens.join(cut, self.config.target_tokens)
        return answers

    def _decode(self, rows: list[list[int]], width: int) -> list[list[int]]:
        source_bt = self.device.send(pad(rows))
        if width == 1:
            answers = decode.greedy(self.model, source_bt, self.config.max_length)
        else:
            answers = decode.beam(self.model, source_bt, self.config.max_length, width)
        # Beyond the vocabulary lie the rows that only round its size up.
        known = len(self.target_vocab)
        return [[i if i < known else UNK for i in answer] for answer in answers]

    def alignment(self, text: str) -> tuple[np.ndarray, list[str], list[str]]:
        """Translate one sentence greedily, and say where the decoder looked.

        Returns the attention weights (T, S) and the tokens of its columns (S, source) and rows (T,
        target), each with the end of the sentence as its last.
        """
        source = self.source_ids(text)[:-1]
        [target] = self._decode([[*source, EOS]], width=1)
        matrix_ts = decode.alignment(self.model, source, target)
        columns = tokens.split(text, self.config.source_tokens)
        return matrix_ts, [*columns, "EOS"], [*self.target_vocab.decode(target), "EOS"]

    def evaluate(self, pairs: Iterable[Pair]) -> Evaluation:
        """Translate the pairs' sources and compare; no pair is left out for its length.

        Raises ValueError if no pair has text on both sides, and FloatingPointError if the loss is
        not a finite number.
        """
        counts = self.count(pairs)
        if not counts["n_sentences"]:
            raise ValueError(
                "An evaluation needs at least one pair with text on both sides, and there is none. "
                "Give other pairs."
            )
        return Evaluation.of(counts)

    def count(self, pairs: Iterable[Pair]) -> dict[str, float]:
        """Translate the pairs' sources, and return the sums that an evaluation is made of.

        `loss` (summed over tokens), `n_tokens`, and those of `quality.count`. Pairs with a blank
        side are left out; no pairs give zeros.
        """
        pairs = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
        how = self.config.target_tokens
        references = [tokens.join(tokens.split(pair.target, how), how) for pair in pairs]
        translations = self.translate([pair.source for pair in pairs])
        loss, n_tokens = self._loss(pairs)
        return {"loss": loss, "n_tokens": n_tokens, **count(translations, references, how)}

    def _loss(self, pairs: Sequence[Pair]) -> tuple[float, int]:
        total, n_tokens = 0.0, 0
        with chainer.no_backprop_mode(), chainer.using_config("train", False):
            for start in range(0, len(pairs), SENTENCES_AT_ONCE):
                part = pairs[start : start + SENTENCES_AT_ONCE]
                batch = collate([self._ids(pair) for pair in part])
                loss = self.model.loss(devices.send(batch, self.device))
                total += float(loss.array) * len(part)
                n_tokens += batch.n_tokens
        return total, n_tokens

    def _ids(self, pair: Pair) -> tuple[np.ndarray, np.ndarray]:
        target = tokens.split(pair.target, self.config.target_tokens)
        source_ids = np.array(self.source_ids(pair.source)[:-1], np.int32)
        return source_ids, np.array(self.target_vocab.encode(target), np.int32)
