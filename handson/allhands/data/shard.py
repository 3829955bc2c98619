"""Which part of a corpus belongs to one rank, and in which batches does it come?

Each pair belongs to one rank. Numbers are places in the whole store unless a name says `local`. The
order of batches is that of `BatchIterator`, within the rank's own pairs.
"""

from collections.abc import Sequence

import numpy as np

from allhands.data.batch import BatchIterator, Ids, Store


class Shard:
    """Some pairs of a store, as a store of their own: pair k here is pair `numbers[k]` there.

    store: speaks `batch.Store`. numbers: (n,) int, 0 <= number < len(store); IndexError otherwise.
    Nothing is copied but the lengths.
    """

    def __init__(self, store: Store, numbers: Sequence[int] | np.ndarray) -> None:
        self.numbers = np.asarray(numbers, dtype=np.int64)
        outside = self.numbers[(self.numbers < 0) | (self.numbers >= len(store))]
        if len(outside):
            raise IndexError(
                f"A shard of a store with the pairs 0 to {len(store) - 1} cannot hold pair "
                f"{outside[0]}."
            )
        self._store = store
        self.source_lengths = np.asarray(store.source_lengths)[self.numbers]
        self.target_lengths = np.asarray(store.target_lengths)[self.numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def source(self, i: int) -> Ids:
        """Source ids of this shard's pair i."""
        return self._store.source(self.numbers[i])

    def target(self, i: int) -> Ids:
        """Target ids of this shard's pair i."""
        return self._store.target(self.numbers[i])


class ShardIterator(BatchIterator):
    """Batches of one rank's shard; all ranks make the same number of steps an epoch.

    n_batches: the steps of an epoch, at least what this shard needs. A shard that has fewer batches
    ends its epoch with steps without a pair (`batch.batch_of` says what they look like).
    n_samples, ranks: the whole corpus and the ranks that share it. What is saved is the same on all
    ranks, so that one rank's snapshot is good for all.
    """

    def __init__(
        self,
        shard: Shard,
        batch_size: int,
        *,
        seed: int,
        n_batches: int,
        n_samples: int,
        ranks: int,
    ) -> None:
        super().__init__(shard, batch_size, seed=seed)
        if n_batches < self.n_batches:
            raise ValueError(
                f"{len(shard)} pairs in batches of {batch_size} need {self.n_batches} steps; the "
                f"ranks agreed on {n_batches}. Give the steps of the largest shard."
            )
        self.n_batches = n_batches
        self.n_samples, self.ranks = n_samples, ranks

    def order(self, epoch: int) -> list[np.ndarray]:
        """The local numbers of each batch of `epoch`; the last ones may be empty."""
        batches = super().order(epoch)
        return batches + [np.arange(0)] * (self.n_batches - len(batches))

    def _decides_order(self) -> dict[str, int]:
        whole = {"n_pairs": self.n_samples, "ranks": self.ranks}
        return super()._decides_order() | whole
