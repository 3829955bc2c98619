"""Which parts of a training program does `allhands compare` ask for? The adapter of a script.

`allhands compare FILE.py --ranks N` builds the program of FILE.py on N ranks and once more alone,
and compares the two. FILE.py says how to build it: a function `build(comm)` that returns `Parts`.
A whole adapter, of a classifier that ChainerMN trains:

    import chainer
    import chainer.functions as F
    import chainer.links as L
    import chainermn
    import numpy as np
    from allhands.train.compare.parts import Parts

    def build(comm):
        random = np.random.RandomState(0)  # the same data on every rank
        x_nd, y_n = random.rand(103, 4).astype("f"), random.randint(3, size=103).astype("i")
        net = L.Linear(4, 3)
        optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(), comm)
        optimizer.setup(net)

        def epoch(number):
            order = np.random.RandomState(number).permutation(len(x_nd))[comm.rank :: comm.size]
            return np.array_split(order, 5)  # 5 steps on every rank

        def loss(numbers):
            share = comm.size * len(numbers) / comm.allreduce_obj(len(numbers))
            return share * F.softmax_cross_entropy(net(x_nd[numbers]), y_n[numbers])

        def evaluate():
            mine = slice(comm.rank, None, comm.size)
            right = (net(x_nd[mine]).array.argmax(axis=1) == y_n[mine]).sum()
            n, n_right = comm.allreduce_obj(len(y_n[mine])), comm.allreduce_obj(int(right))
            return {"n_samples": n, "accuracy": 100 * n_right / n}

        return Parts(net, optimizer, len(x_nd), epoch, loss, evaluate)

`build` uses no other communicator than `comm`: the run alone gets one of size 1. It is `pure_nccl`
where there is a GPU, else `naive`; a line `COMMUNICATOR = "naive"` in FILE.py asks for another. A
sample number is the place of a sample in the whole training set, from 0 on; it means the same
sample on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import chainer


@dataclass(frozen=True)
class Parts:
    """One rank's share of a data-parallel program; with a communicator of size 1, all of it.

    model: with its parameters as they are before the first update.
    optimizer: set up on `model`; its `update()` exchanges gradients and updates, as in the real
        run. A first `update()` that only hands rank 0's parameters to all (ChainerMN) is known.
    n_samples: of the whole training set.
    epoch: number of an epoch, from 0 on -> this rank's batches of sample numbers, in order.
    loss: sample numbers -> the loss that `backward` starts from, weighted as in the real run.
        The mean of the ranks' losses must be the loss of all their samples in one batch.
    evaluate: called on every rank -> the held-out set's counts (names that begin with n_, such as
        n_sentences, n_tokens) and metrics (such as loss_per_token, exact_match, bleu). A rank
        other than 0 may return nothing.
    same: what must be equal on all ranks and alone, by name: vocabularies, loss scale ... What the
        optimizer is (its class, its learning rate) is compared without being named here.
    n_held_out: sentences or samples of the held-out set, if known: what the first count that
        `evaluate` gives must be.
    speaks: does this rank print, and write files? Exactly rank 0 should. None: not told.
    """

    model: chainer.Link
    optimizer: object
    n_samples: int
    epoch: Callable[[int], Sequence[Sequence[int]]]
    loss: Callable[[Sequence[int]], chainer.Variable]
    evaluate: Callable[[], Mapping[str, float] | None]
    same: Mapping[str, object] = field(default_factory=dict)
    n_held_out: int | None = None
    speaks: bool | None = None
