"""Does every pair come once an epoch, in the right shape, and after a resume where it stopped?"""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.data.batch import BatchIterator, collate, pad
from allhands.data.vocab import BOS, EOS, PAD

ids = st.lists(st.integers(4, 99), max_size=9)
a, b, c = 4, 5, 6


class Rows:
    """A store of given lengths; pair i holds only the number i + 4: a batch says who is in it."""

    def __init__(self, lengths):
        self.source_lengths = np.array([s for s, _ in lengths], np.int32)
        self.target_lengths = np.array([t for _, t in lengths], np.int32)

    def __len__(self):
        return len(self.source_lengths)

    def source(self, i):
        return np.full(self.source_lengths[i], i + 4, np.int32)

    def target(self, i):
        return np.full(self.target_lengths[i], i + 4, np.int32)


lengths = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=60)


def members(batch):
    """Which pairs of `Rows` are in the batch."""
    return [int(i) - 4 for i in batch.source_bt[:, 0]]


def same(one, other):
    return np.array_equal(one.source_bt, other.source_bt) and np.array_equal(
        one.target_out_bt, other.target_out_bt
    )


# --- pad and collate


def test_padding_by_hand():
    padded_bt = pad([[a], [a, b, c], []])
    assert padded_bt.tolist() == [[a, PAD, PAD], [a, b, c], [PAD, PAD, PAD]]
    assert padded_bt.dtype == np.int32
    assert pad([]).shape == (0, 0)
    assert pad([[], []]).shape == (2, 0)


@given(st.lists(ids, min_size=1, max_size=9))
def test_padding_keeps_every_row_and_adds_only_what_is_needed(rows):
    padded_bt = pad(rows)
    assert padded_bt.shape == (len(rows), max(map(len, rows)))
    for row, padded in zip(rows, padded_bt, strict=True):
        assert padded[: len(row)].tolist() == row
        assert (padded[len(row) :] == PAD).all()


def test_a_batch_by_hand():
    batch = collate([([a, b], [c]), ([a], [b, c, c])])
    assert batch.source_bt.tolist() == [[a, b, EOS], [a, EOS, PAD]]
    assert batch.target_in_bt.tolist() == [[BOS, c, PAD, PAD], [BOS, b, c, c]]
    assert batch.target_out_bt.tolist() == [[c, EOS, PAD, PAD], [b, c, c, EOS]]
    assert batch.n_tokens == 6
    assert len(batch) == 2


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=9))
def test_the_target_out_is_the_target_in_one_step_later(pairs):
    batch = collate(pairs)
    assert batch.n_tokens == (batch.target_out_bt != PAD).sum() == (batch.target_in_bt != PAD).sum()
    assert ((batch.target_out_bt == PAD) == (batch.target_in_bt == PAD)).all()
    for row_in, row_out, (_, target) in zip(
        batch.target_in_bt.tolist(), batch.target_out_bt.tolist(), pairs, strict=True
    ):
        assert row_in[1 : len(target) + 1] == row_out[: len(target)] == target


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one pair"):
        collate([])


# --- the order


@given(lengths, st.integers(1, 70), st.integers(1, 5), st.booleans(), st.integers(0, 2**40))
def test_every_pair_comes_exactly_once_an_epoch(lengths, batch_size, pool, shuffle, seed):
    batches = BatchIterator(Rows(lengths), batch_size, seed=seed, pool=pool, shuffle=shuffle)
    for epoch in range(3):
        seen = []
        while batches.epoch == epoch:
            batch = next(batches)
            assert 1 <= len(batch) <= batch_size
            seen += members(batch)
        assert batches.is_new_epoch
        assert sorted(seen) == list(range(len(lengths)))


def test_the_order_is_a_function_of_seed_and_epoch():
    store = Rows([(1 + i % 7, 1 + i % 5) for i in range(100)])

    def epochs(seed):
        batches = BatchIterator(store, 8, seed=seed)
        return [[members(next(batches)) for _ in range(batches.n_batches)] for _ in range(2)]

    assert epochs(1) == epochs(1)
    assert epochs(1) != epochs(2)
    assert epochs(1)[0] != epochs(1)[1]


def test_without_shuffle_the_store_s_order_is_kept():
    batches = BatchIterator(Rows([(9, 9), (1, 1), (5, 5)]), 2, seed=0, shuffle=False)
    assert [members(next(batches)) for _ in range(4)] == [[0, 1], [2], [0, 1], [2]]


def test_buckets_waste_less_padding_than_the_plain_order():
    random = np.random.default_rng(0)
    store = Rows(random.integers(1, 30, (400, 2)).tolist())

    def cells(pool):
        batches = BatchIterator(store, 10, seed=0, repeat=False, pool=pool)
        return sum(batch.target_in_bt.size for batch in batches)

    # A pool of one batch has nothing to sort: it is plain shuffling.
    tokens = int(store.target_lengths.sum()) + len(store)
    assert tokens <= cells(20) < cells(1)
    assert cells(20) - tokens < (cells(1) - tokens) / 2


def test_short_and_long_batches_are_mixed():
    store = Rows([(n, n) for n in range(1, 101)])
    sizes = [
        int(batch.source_bt.shape[1]) for batch in BatchIterator(store, 5, seed=0, repeat=False)
    ]
    assert sorted(sizes) == [n + 1 for n in range(5, 101, 5)]
    assert sizes != sorted(sizes)


# --- epochs


def test_one_epoch_then_stop():
    batches = BatchIterator(Rows([(1, 1)] * 5), 2, seed=0, repeat=False)
    assert sorted(len(batch) for batch in batches) == [1, 2, 2]
    assert (batches.epoch, batches.is_new_epoch, batches.epoch_detail) == (1, True, 1.0)
    with pytest.raises(StopIteration):
        batches.next()
    batches.reset()
    assert len(list(batches)) == 3


def test_the_epoch_counts_by_hand():
    with BatchIterator(Rows([(1, 1)] * 4), 2, seed=0) as batches:
        seen = [(batches.epoch, batches.is_new_epoch, batches.epoch_detail, None)]
        assert batches.previous_epoch_detail is None
        for _ in range(3):
            batches.next()
            seen.append(
                (
                    batches.epoch,
                    batches.is_new_epoch,
                    batches.epoch_detail,
                    batches.previous_epoch_detail,
                )
            )
    assert seen == [
        (0, False, 0.0, None),
        (0, False, 0.5, 0.0),
        (1, True, 1.0, 0.5),
        (1, False, 1.5, 1.0),
    ]


def test_a_batch_larger_than_the_corpus_holds_all_of_it():
    batches = BatchIterator(Rows([(1, 1), (2, 2)]), 64, seed=0)
    assert sorted(members(next(batches))) == [0, 1]
    assert (batches.epoch, batches.n_batches) == (1, 1)


def test_one_pair_is_a_corpus():
    batches = BatchIterator(Rows([(3, 2)]), 1, seed=0)
    assert [members(next(batches)) for _ in range(3)] == [[0], [0], [0]]
    assert batches.epoch == 3


def test_an_empty_store_is_refused():
    with pytest.raises(ValueError, match="holds no pair"):
        BatchIterator(Rows([]), 4, seed=0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1; it is 0"),
        ({"pool": 0}, "pool must be at least 1; it is 0"),
        ({"seed": -1}, "seed must be 0 or more; it is -1"),
    ],
)
def test_impossible_settings_are_refused(change, sentence):
    settings = {"batch_size": 2, "seed": 0} | change
    with pytest.raises(ValueError, match=sentence):
        BatchIterator(Rows([(1, 1)]), **settings)


# --- resume


class Saver:
    """Chainer's serializers in small: saving keeps arrays, loading gives them back."""

    def __init__(self, saved=None):
        self.saved, self.loading = saved or {}, saved is not None

    def __call__(self, name, value):
        if self.loading:
            return self.saved[name]
        self.saved[name] = np.asarray(value)
        return value


@given(st.integers(0, 40), st.booleans())
def test_a_resumed_run_sees_the_same_batches(n_before, shuffle):
    store = Rows([(1 + i % 7, 1 + i % 5) for i in range(50)])
    unbroken = BatchIterator(store, 4, seed=3, shuffle=shuffle)
    for _ in range(n_before):
        next(unbroken)
    saver = Saver()
    unbroken.serialize(saver)

    resumed = BatchIterator(store, 4, seed=3, shuffle=shuffle)
    next(resumed)  # what it did before must not matter
    resumed.serialize(Saver(saver.saved))
    for name in ("epoch", "is_new_epoch", "epoch_detail", "previous_epoch_detail"):
        assert getattr(resumed, name) == getattr(unbroken, name)
    assert type(resumed.epoch) is int
    assert type(resumed.current_position) is int
    for one, other in islice(zip(unbroken, resumed, strict=False), 30):
        assert same(one, other)
        assert unbroken.epoch_detail == resumed.epoch_detail


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 5},
        {"seed": 4},
        {"pool": 7},
        {"shuffle": False},
        {"store": Rows([(1, 1)] * 49)},
    ],
)
def test_another_order_cannot_take_over_in_the_middle_of_an_epoch(change):
    settings = {
        "store": Rows([(1, 1)] * 50),
        "batch_size": 4,
        "seed": 3,
        "pool": 20,
        "shuffle": True,
    }
    batches = BatchIterator(**settings)
    at_start, in_the_middle = Saver(), Saver()
    batches.serialize(at_start)
    next(batches)
    batches.serialize(in_the_middle)
    other = BatchIterator(**settings | change)
    with pytest.raises(ValueError, match=r"which gives another order\. Resume with"):
        other.serialize(Saver(in_the_middle.saved))
    assert other.epoch_detail == 0  # a refused snapshot changes nothing
    other.serialize(Saver(at_start.saved))  # between epochs nothing is lost


def test_chainer_s_own_serializers_keep_the_place(tmp_path):
    serializers = pytest.importorskip("chainer.serializers", reason="Chainer is not installed")
    store = Rows([(1 + i % 7, 1 + i % 5) for i in range(50)])
    unbroken = BatchIterator(store, 4, seed=3)
    for _ in range(17):
        next(unbroken)
    serializers.save_npz(tmp_path / "snapshot.npz", unbroken)
    resumed = BatchIterator(store, 4, seed=3)
    serializers.load_npz(tmp_path / "snapshot.npz", resumed)
    assert (resumed.epoch, resumed.current_position) == (1, 4)
    assert all(same(next(unbroken), next(resumed)) for _ in range(30))
