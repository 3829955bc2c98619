"""Which pairs go into one step, and in which shape? Padding, batches, and their order.

Index order is (batch, time). Rows are padded on the right with PAD. Sentences of similar length
share a batch, because padding is computed and then thrown away.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from allhands.data.vocab import BOS, EOS, PAD

Ids = Sequence[int] | np.ndarray


class Store(Protocol):
    """What the iterator needs of a corpus; `store.PairStore` is one."""

    source_lengths: np.ndarray
    target_lengths: np.ndarray

    def __len__(self) -> int: ...
    def source(self, i: int) -> Ids: ...
    def target(self, i: int) -> Ids: ...


def pad(rows: Sequence[Ids]) -> np.ndarray:
    """Rows of ids as one array (B, T), int32: T is the longest row's length, PAD fills the rest.

    No rows give shape (0, 0).
    """
    longest = max((len(row) for row in rows), default=0)
    padded_bt = np.full((len(rows), longest), PAD, dtype=np.int32)
    for b, row in enumerate(rows):
        padded_bt[b, : len(row)] = row
    return padded_bt


@dataclass(frozen=True)
class Batch:
    """B pairs in the three shapes that training needs; all arrays are int32."""

    source_bt: np.ndarray  # (B, S): x1 .. xm EOS, then PAD
    target_in_bt: np.ndarray  # (B, T): BOS y1 .. yn, then PAD (what the decoder is given)
    target_out_bt: np.ndarray  # (B, T): y1 .. yn EOS, then PAD (what it must say)
    n_tokens: int  # of target_out_bt that are not PAD

    def __len__(self) -> int:
        return len(self.source_bt)


def collate(pairs: Sequence[tuple[Ids, Ids]]) -> Batch:
    """Make a Batch of (source ids, target ids); the ids come without BOS and EOS."""
    if not pairs:
        raise ValueError("A batch needs at least one pair; there was none. Skip the empty batch.")
    return Batch(
        source_bt=pad([[*source, EOS] for source, _ in pairs]),
        target_in_bt=pad([[BOS, *target] for _, target in pairs]),
        target_out_bt=pad([[*target, EOS] for _, target in pairs]),
        n_tokens=sum(len(target) + 1 for _, target in pairs),
    )


def batch_of(store: Store, numbers: Sequence[int] | np.ndarray) -> Batch:
    """Make a Batch of the pairs of `store` with these numbers, in this order.

    No numbers give one row of padding with `n_tokens` 0, whose loss and gradient are 0: a rank that
    has no pairs left takes part in a step with it.
    """
    if len(numbers) == 0:
        return Batch(pad([[EOS]]), pad([[BOS]]), pad([[PAD]]), n_tokens=0)
    return collate([(store.source(i), store.target(i)) for i in numbers])


class BatchIterator:
    """Batches of a store, epoch after epoch; speaks the protocol of `chainer.iterators`.

    The order is a pure function of (seed, epoch): shuffle all pairs; cut the row into pools of
    `pool * batch_size`; sort each pool by length; cut it into batches; shuffle the batches. So
    every pair comes exactly once an epoch, and a run resumes exactly from (epoch, position) alone.
    The last batch of the cut may be smaller; its place in the epoch is anywhere.

    `shuffle=False` gives the store's own order, as evaluation wants it. `repeat=False` stops after
    one epoch. `epoch` counts the finished epochs, and `epoch_detail` adds the share of this epoch's
    batches.
    """

    def __init__(
        self,
        store: Store,
        batch_size: int,
        *,
        seed: int,
        repeat: bool = True,
        shuffle: bool = True,
        pool: int = 20,
    ) -> None:
        if len(store) == 0:
            raise ValueError("The store holds no pair, so there is no batch. Check the corpus.")
        for name, number in (("batch_size", batch_size), ("pool", pool)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1; it is {number}.")
        if seed < 0:
            raise ValueError(f"The seed must be 0 or more; it is {seed}.")
        self.store, self.batch_size, self.seed = store, batch_size, seed
        self.repeat, self.shuffle, self.pool = repeat, shuffle, pool
        self.n_batches = -(-len(store) // batch_size)
        self.reset()

    def reset(self) -> None:
        """Back to the first batch of epoch 0."""
        self.epoch = 0
        self.current_position = 0  # batches of this epoch that are done
        self.is_new_epoch = False
        self._previous_epoch_detail = -1.0
        self._order_epoch = -1

    def order(self, epoch: int) -> list[np.ndarray]:
        """The batches of `epoch`, each an array of indices into the store."""
        n = len(self.store)
        rows = np.arange(n)
        starts = np.arange(0, n, self.batch_size)
        if self.shuffle:
            random = np.random.default_rng([self.seed, epoch])
            rows = random.permutation(n)
            lengths = np.stack([self.store.source_lengths, self.store.target_lengths])
            for start in range(0, n, self.pool * self.batch_size):
                pool = rows[start : start + self.pool * self.batch_size]
                pool[:] = pool[np.lexsort(lengths[:, pool])]  # by target length, then source length
            random.shuffle(starts)
        return [rows[start : start + self.batch_size] for start in starts]

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if not self.repeat and self.epoch > 0:
            raise StopIteration
        if self._order_epoch != self.epoch:
            self._order, self._order_epoch = self.order(self.epoch), self.epoch
        self._previous_epoch_detail = self.epoch_detail
        indices = self._order[self.current_position]
        self.current_position += 1
        self.is_new_epoch = self.current_position == self.n_batches
        if self.is_new_epoch:
            self.epoch, self.current_position = self.epoch + 1, 0
        return batch_of(self.store, indices)

    next = __next__

    @property
    def epoch_detail(self) -> float:
        return self.epoch + self.current_position / self.n_batches

    @property
    def previous_epoch_detail(self) -> float | None:
        """`epoch_detail` before the last batch; None before the first."""
        return None if self._previous_epoch_detail < 0 else self._previous_epoch_detail

    def serialize(self, serializer: Any) -> None:
        """Save or load where we are, in Chainer's style: `value = serializer(name, value)`.

        What the order hangs on is saved too. Loading it into an iterator with another order in the
        middle of an epoch is a ValueError: some pairs would come twice and others never.
        """
        epoch = int(serializer("epoch", self.epoch))
        position = int(serializer("current_position", self.current_position))
        is_new_epoch = bool(serializer("is_new_epoch", self.is_new_epoch))
        previous = float(serializer("previous_epoch_detail", self._previous_epoch_detail))
        for name, now in self._decides_order().items():
            then = int(serializer(name, now))
            if position > 0 and then != now:
                raise ValueError(
                    f"The snapshot was taken in the middle of an epoch with {name}={then}; "
                    f"this run has {name}={now}, which gives another order. "
                    f"Resume with {name}={then}."
                )
        self.epoch, self.current_position, self.is_new_epoch = epoch, position, is_new_epoch
        self._previous_epoch_detail = previous
        self._order_epoch = -1

    def _decides_order(self) -> dict[str, int]:
        return {
            "seed": self.seed,
            "n_pairs": len(self.store),
            "batch_size": self.batch_size,
            "shuffle": int(self.shuffle),
            "pool": self.pool,
        }

    def finalize(self) -> None:
        """Nothing is held open; here because Chainer calls it."""

    def __enter__(self) -> "BatchIterator":
        return self

    def __exit__(self, *exception: object) -> None:
        self.finalize()
