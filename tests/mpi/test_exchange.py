"""ChainerMN on real ranks: one message a step, after the backward pass, on every rank."""

import itertools

import numpy as np
import pytest

from allhands import launch
from allhands.data.batch import BatchIterator
from allhands.data.vocab import EOS, PAD
from allhands.trace.events import read_events
from allhands.train.exchange import cut_batches


@pytest.fixture(scope="module", params=[2, 4])
def by_rank(request, tmp_path_factory):
    """The events of each rank, after three steps."""
    folder = tmp_path_factory.mktemp("exchange")
    words = ("--out", folder, "--steps", 3)
    launch.mpirun("allhands.train.exchange", *words, ranks=request.param, time_limit_s=200)
    return [read_events(folder / f"events.rank{rank}.jsonl") for rank in range(request.param)]


def part(events, step):
    return {event.what: event for event in events if event.step == step}


def test_each_step_sends_one_message_and_the_first_call_none(by_rank):
    for events in by_rank:
        assert [event.step for event in events if event.what == "communicate"] == [1, 2, 3]


def test_the_message_stands_between_the_backward_pass_and_the_update(by_rank):
    for events, step in itertools.product(by_rank, (1, 2, 3)):
        one = part(events, step)
        assert one["communicate"].start_s >= one["backward"].end_s
        assert one["update"].start_s == one["communicate"].end_s


def test_nobody_leaves_before_all_have_entered(by_rank):
    """So it is with an all-reduce; and so the ranks' clocks have one zero."""
    for step in (1, 2, 3):
        messages = [part(events, step)["communicate"] for events in by_rank]
        assert max(one.start_s for one in messages) <= min(one.end_s for one in messages)


class Numbered:
    """A store whose pair i has the ids [4 + i], [4 + i], ... of some length."""

    def __init__(self, n):
        self.source_lengths = np.arange(n) % 5 + 1
        self.target_lengths = np.arange(n) % 7 + 1

    def __len__(self):
        return len(self.source_lengths)

    def source(self, i):
        return [4 + i] * self.source_lengths[i]

    def target(self, i):
        return [4 + i] * self.target_lengths[i]


def pairs_of(batch):
    return [int(row[0]) - 4 for row in batch.source_bt]


def test_the_parts_of_a_batch_make_up_the_batch():
    store = Numbered(25)
    rows = [order for order in BatchIterator(store, 12, seed=3).order(0) if len(order) == 12]
    parts = [cut_batches(store, 12, rank, 3, seed=3) for rank in range(3)]
    for whole in rows:
        cut = [pairs_of(next(part)) for part in parts]
        assert [len(one) for one in cut] == [4, 4, 4]
        assert sorted(i for one in cut for i in one) == sorted(whole.tolist())


def test_batches_go_on_after_an_epoch_and_the_smaller_one_is_left_out():
    batches = cut_batches(Numbered(10), 4, 0, 1)
    sizes = [len(next(batches)) for _ in range(5)]
    assert sizes == [4] * 5


def test_parts_have_the_lengths_of_their_pairs():
    batch = next(cut_batches(Numbered(12), 12, 1, 2))
    for row, pair in zip(batch.source_bt, pairs_of(batch), strict=True):
        tokens = row[row != PAD]
        assert len(tokens) == pair % 5 + 2
        assert tokens[-1] == EOS


def test_batches_that_cannot_be_cut_are_refused():
    with pytest.raises(ValueError, match="10 pairs cannot be cut into 4 equal parts"):
        next(cut_batches(Numbered(20), 10, 0, 4))
    with pytest.raises(ValueError, match="fewer than one batch of 24"):
        next(cut_batches(Numbered(20), 24, 0, 2))
