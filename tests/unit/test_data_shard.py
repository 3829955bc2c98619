"""Shards: every pair exactly once an epoch, the same number of steps on every rank."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.data.batch import batch_of
from allhands.data.shard import Shard, ShardIterator
from allhands.data.vocab import BOS, EOS, PAD
from allhands.train import parallel


class Counted:
    """A store whose pair i has the source [10 + i] and i % 5 target tokens."""

    def __init__(self, n: int) -> None:
        self.source_lengths = np.ones(n, int)
        self.target_lengths = np.arange(n) % 5

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, i: int) -> list[int]:
        return [10 + int(i)]

    def target(self, i: int) -> list[int]:
        return [7] * (int(i) % 5)


def iterators(n: int, ranks: int, batch_size: int, seed: int) -> list[ShardIterator]:
    """What each of `ranks` ranks iterates over, without MPI."""
    n_batches = parallel.n_steps(n, batch_size, ranks)
    shards = [
        Shard(Counted(n), parallel.shard(n, SimpleNamespace(rank=rank, size=ranks), seed))
        for rank in range(ranks)
    ]
    how = {"seed": seed, "n_batches": n_batches, "n_samples": n, "ranks": ranks}
    return [ShardIterator(shard, batch_size, **how) for shard in shards]


@given(
    ranks=st.integers(1, 6),
    more=st.integers(0, 40),
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    epoch=st.integers(0, 3),
)
def test_every_pair_comes_exactly_once_an_epoch_over_all_ranks(
    ranks, more, batch_size, seed, epoch
):
    n = ranks + more
    each = iterators(n, ranks, batch_size, seed)
    orders = [[one.store.numbers[rows] for rows in one.order(epoch)] for one in each]
    seen = np.concatenate([numbers for order in orders for numbers in order])
    assert sorted(seen) == list(range(n))
    assert {len(order) for order in orders} == {parallel.n_steps(n, batch_size, ranks)}
    assert max(len(numbers) for order in orders for numbers in order) <= batch_size
    shares = [len(one.store) for one in each]
    assert max(shares) - min(shares) <= 1


def test_what_is_iterated_are_the_pairs_of_the_order():
    [_, mine] = iterators(n=13, ranks=2, batch_size=4, seed=5)
    planned = [mine.store.numbers[rows] for rows in mine.order(0)]
    for numbers in planned:
        assert next(mine).source_bt[:, 0].tolist() == [10 + i for i in numbers]
    assert mine.epoch == 1


def test_two_epochs_have_different_orders_and_two_seeds_different_shards():
    [mine, _] = iterators(n=40, ranks=2, batch_size=4, seed=5)
    [other, _] = iterators(n=40, ranks=2, batch_size=4, seed=6)
    assert [rows.tolist() for rows in mine.order(0)] != [rows.tolist() for rows in mine.order(1)]
    assert set(mine.store.numbers) != set(other.store.numbers)


def test_a_rank_with_fewer_batches_ends_its_epoch_with_a_row_of_padding():
    """Five pairs, two ranks, batches of one: rank 1 has two pairs and three steps."""
    [_, short] = iterators(n=5, ranks=2, batch_size=1, seed=0)
    batches = [next(short) for _ in range(3)]
    assert [batch.n_tokens > 0 for batch in batches] == [True, True, False]
    assert (short.epoch, short.current_position) == (1, 0)


def test_no_numbers_give_one_row_that_says_nothing():
    batch = batch_of(Counted(3), [])
    assert batch.n_tokens == 0
    assert batch.source_bt.tolist() == [[EOS]]
    assert batch.target_in_bt.tolist() == [[BOS]]
    assert batch.target_out_bt.tolist() == [[PAD]]


def test_a_shard_is_a_store_of_its_pairs():
    shard = Shard(Counted(10), [7, 0, 3])
    assert len(shard) == 3
    assert [shard.source(k) for k in range(3)] == [[17], [10], [13]]
    assert [len(shard.target(k)) for k in range(3)] == shard.target_lengths.tolist() == [2, 0, 3]


@pytest.mark.parametrize("outside", [-1, 10])
def test_a_shard_of_pairs_that_the_store_has_not_is_refused(outside):
    with pytest.raises(IndexError, match=f"pairs 0 to 9 cannot hold pair {outside}"):
        Shard(Counted(10), [0, outside])


def test_too_few_steps_are_refused():
    shard = Shard(Counted(10), range(10))
    with pytest.raises(ValueError, match="need 4 steps; the ranks agreed on 3"):
        ShardIterator(shard, 3, seed=0, n_batches=3, n_samples=20, ranks=2)


class Memory(dict):
    """Chainer's serializer, reduced to a dictionary: saves what it has not, gives what it has."""

    def __call__(self, name: str, value):
        return self.setdefault(name, value)


def test_one_ranks_place_in_the_epoch_is_good_for_another():
    """Rank 0 saves, and rank 1 (which has fewer pairs) goes on from it where it was itself."""
    first, second = iterators(n=21, ranks=2, batch_size=4, seed=3)
    for _ in range(4):
        next(first), next(second)
    saved = Memory()
    first.serialize(saved)
    [_, resumed] = iterators(n=21, ranks=2, batch_size=4, seed=3)
    resumed.serialize(saved)
    for _ in range(5):
        np.testing.assert_array_equal(next(resumed).source_bt, next(second).source_bt)


def test_a_place_in_the_epoch_of_other_ranks_is_refused():
    [first, _] = iterators(n=24, ranks=2, batch_size=4, seed=3)
    next(first)
    saved = Memory()
    first.serialize(saved)
    with pytest.raises(ValueError, match="ranks=2; this run has ranks=3"):
        iterators(n=24, ranks=3, batch_size=4, seed=3)[0].serialize(saved)
