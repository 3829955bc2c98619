"""The critical path: cases by hand, and the bounds that it cannot leave."""

import numpy as np
import pytest

from allhands.trace.critical_path import critical_path_s, transfer_s
from allhands.trace.events import Event


def event(step, rank, what, duration_s, name=""):
    return Event(0.0, duration_s, rank, what, name, step)


def test_first_the_slowest_of_each_step_then_the_sum():
    events = [event(1, 0, "forward", 3), event(1, 1, "forward", 5)]
    events += [event(2, 0, "backward", 7), event(2, 1, "backward", 4)]
    assert critical_path_s(events) == 12
    assert critical_path_s(events, transfer_s=0.25) == 12.5


def test_waiting_is_no_work():
    events = [event(1, 0, "forward", 1), event(1, 1, "forward", 2)]
    assert critical_path_s([*events, event(1, 0, "communicate", 9)]) == critical_path_s(events)


@pytest.mark.parametrize("seed", range(5))
def test_it_lies_between_the_busiest_rank_and_the_sum_of_all(seed):
    random = np.random.default_rng(seed)
    events = [
        event(step, rank, what, float(random.random()))
        for step in range(10)
        for rank in range(3)
        for what in ("batch", "forward", "evaluate")
    ]
    by_rank = [sum(e.duration_s for e in events if e.rank == rank) for rank in range(3)]
    assert max(by_rank) <= critical_path_s(events) <= sum(by_rank)
    one = [e for e in events if e.rank == 0]
    assert critical_path_s(one) == pytest.approx(by_rank[0])


def test_a_quiet_exchange_is_the_shortest_one_of_gradients():
    events = [event(1, 0, "communicate", 5, "all"), event(1, 1, "communicate", 2, "all")]
    events += [event(1, 0, "communicate", 1, "counts"), event(2, 1, "communicate", 3, "probe")]
    assert transfer_s(events) == 2
    assert transfer_s([]) == 0
