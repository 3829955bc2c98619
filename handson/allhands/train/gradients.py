"""How small are the gradients of a real model, and how many of them does FP16 make zero?

The translator of lab 1, in FP32, after a few updates. Its gradients are looked at as FP16 would
keep them: with loss scale S a gradient g becomes round_to(S g) / S.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import chainer
import numpy as np

from allhands import config as configs
from allhands.config import TrainConfig
from allhands.data.batch import BatchIterator
from allhands.precision.formats import FP16, Format, round_to
from allhands.train.build import open_corpus
from allhands.train.translator import Translator


def gradients(
    n_updates: int = 100, seed: int = 0, config: TrainConfig | None = None
) -> dict[str, np.ndarray]:
    """Train lab 1's model (or that of `config`) for some updates; return its next gradients.

    By the parameter's name, as the backward leaves them: float32, before any clipping.
    """
    config = configs.override(config or configs.lab1_cpu(), [f"seed={seed}"])
    corpus = open_corpus(config)
    model = Translator.new(config, corpus.source_vocab, corpus.target_vocab).model
    optimizer = chainer.optimizers.Adam(config.learning_rate).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(config.clip_norm))
    batches = BatchIterator(corpus.train, config.batch_size, seed=seed)
    for _ in range(n_updates):
        optimizer.update(model.loss, batches.next())
    model.cleargrads()
    model.loss(batches.next()).backward()
    return {name: param.grad.copy() for name, param in sorted(model.namedparams())}


def nonzero(gradients: Mapping[str, np.ndarray]) -> np.ndarray:
    """All gradients as one vector of sizes, float64, without those that are 0 in FP32 already.

    Words that are not in the batch have gradient 0: no format changes that.
    """
    sizes = np.abs(np.concatenate([grad.ravel() for grad in gradients.values()]).astype(float))
    return sizes[sizes > 0]


@dataclass(frozen=True)
class Shares:
    """What becomes of gradients in a format: shares between 0 and 1, which add up to 1."""

    zero: float
    subnormal: float  # kept with fewer bits
    normal: float
    infinite: float


def shares(
    gradients: Mapping[str, np.ndarray], scale: float = 1.0, format: Format = FP16
) -> Shares:
    """Round scale x gradient to `format`, for all gradients that are not 0: what becomes of them?

    `scale` is the loss scale; a loss with a small weight has a scale below 1.
    """
    sizes = round_to(scale * nonzero(gradients), format)
    zero, infinite = sizes == 0, np.isinf(sizes)
    subnormal = ~zero & (sizes < format.smallest_normal)
    normal = ~(zero | subnormal | infinite)
    return Shares(*(float(part.mean()) for part in (zero, subnormal, normal, infinite)))
