"""A training loop without a framework around it: all that a step does, in one screen.

Lab 1 hands in its own `pad`, `shift` and `masked_loss`, and so sees what each of them is for. Real
runs go through `build.py`.
"""

from collections.abc import Callable, Sequence

import chainer
import numpy as np

from allhands.data.vocab import EOS
from allhands.model.seq2seq import Seq2Seq


def train_by_hand(
    model: Seq2Seq,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    n_updates: int,
    *,
    pad: Callable,
    shift: Callable,
    masked_loss: Callable,
    batch_size: int = 64,
    learning_rate: float = 3e-3,
    seed: int = 0,
) -> list[float]:
    """Train `model` on (source ids, target ids) and return the loss per token of each update."""
    optimizer = chainer.optimizers.Adam(learning_rate).setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(5))
    rng = np.random.RandomState(seed)
    losses = []
    for _ in range(n_updates):
        rows = [pairs[i] for i in rng.choice(len(pairs), batch_size)]
        source_bt = pad([[*source, EOS] for source, _ in rows])
        inputs, outputs = shift([target for _, target in rows])

        logits_btv = model(source_bt, pad(inputs))  # forward
        loss = masked_loss(logits_btv, pad(outputs))
        model.cleargrads()
        loss.backward()  # backward
        optimizer.update()  # update

        losses.append(float(loss.array) * batch_size / sum(map(len, outputs)))
    return losses
