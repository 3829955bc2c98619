"""The emulated link: FIFO, as long as its cost says, with errors that do not add up."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.link import EmulatedLink, WallClock
from allhands.mgwfbp.plan import Plan, group_bytes
from allhands.mgwfbp.schedule import simulate
from allhands.trace.events import Recorder

LIMIT_S = 60  # for a future that is due: only a defect lets it run out


class HandClock:
    """Time stands still until the test turns it."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def wait_until(self, when_s: float, stop: threading.Event) -> None:
        while self.time_s < when_s and not stop.wait(1e-4):
            pass


def link_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "emulated link"]


def test_messages_go_one_after_the_other_and_take_what_the_cost_says():
    """By hand: 4 bytes at 0 take 5 + 4; 1 byte at 4 waits until 9; 1 byte at 20 finds it free."""
    clock = HandClock()
    with EmulatedLink(AffineCost(startup_s=5.0, s_per_byte=1.0), clock) as link:
        futures = []
        for time_s, n_bytes in ((0.0, 4), (4.0, 1), (20.0, 1)):
            clock.time_s = time_s
            futures.append(link.send(n_bytes, name=f"{n_bytes} at {time_s:g}"))
        clock.time_s = 100.0
        deliveries = [future.result(LIMIT_S) for future in futures]
    assert [(one.sent_s, one.start_s, one.end_s) for one in deliveries] == [
        (0.0, 0.0, 9.0),
        (4.0, 9.0, 15.0),
        (20.0, 20.0, 26.0),
    ]
    assert [one.name for one in deliveries] == ["4 at 0", "1 at 4", "1 at 20"]


def test_a_future_is_not_done_before_its_time():
    clock = HandClock()
    with EmulatedLink(AffineCost(2.0, 0.0), clock) as link:
        first, second = link.send(1), link.send(1)
        clock.time_s = 2.0
        first.result(LIMIT_S)
        assert not second.done()
        clock.time_s = 4.0
        second.result(LIMIT_S)


def test_a_late_wake_up_does_not_delay_the_messages_behind():
    clock = HandClock()
    with EmulatedLink(AffineCost(1.0, 0.0), clock) as link:
        futures = [link.send(0) for _ in range(3)]
        clock.time_s = 10.0
        deliveries = [future.result(LIMIT_S) for future in futures]
    assert [one.end_s for one in deliveries] == [1.0, 2.0, 3.0]
    assert [one.late_s for one in deliveries] == [9.0, 8.0, 7.0]


@settings(max_examples=40)
@given(
    pieces=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 9), st.booleans()), min_size=1, max_size=8
    ),
    startup=st.integers(0, 6),
)
def test_the_link_does_what_the_simulator_says(pieces, startup):
    backward_s, n_bytes, is_end = zip(*pieces, strict=True)
    gradients = Gradients(tuple(np.cumsum(backward_s)), n_bytes)
    ends = [i for i, end in enumerate(is_end[:-1]) if end] + [len(pieces) - 1]
    plan, cost = Plan.from_ends(ends), AffineCost(float(startup), 1.0)
    schedule, clock = simulate(gradients, plan, cost), HandClock()
    recorder = Recorder(rank=3, clock=clock.now_s)
    recorder.step = 7
    with EmulatedLink(cost, clock, recorder) as link:
        for (first, last), size in zip(plan.groups, group_bytes(gradients, plan), strict=True):
            clock.time_s = gradients.ready_s[last]
            link.send(size, name=f"{first}-{last}")
        clock.time_s = schedule.finish_s
    expected = [event for event in schedule.events() if event.what == "communicate"]
    seen = [(event.start_s, event.end_s, event.name) for event in recorder.events]
    assert sorted(seen) == [(event.start_s, event.end_s, event.name) for event in expected]
    assert {(event.rank, event.step) for event in recorder.events} == {(3, 7)}


def test_on_done_is_told_in_order_before_the_future_is_done():
    told, futures, clock = [], [], HandClock()
    with EmulatedLink(AffineCost(1.0, 0.0), clock) as link:
        for i in range(3):
            futures.append(
                link.send(
                    i, lambda one: told.append((one.n_bytes, futures[int(one.n_bytes)].done()))
                )
            )
        clock.time_s = 3.0
    assert told == [(0, False), (1, False), (2, False)]


def test_an_error_in_on_done_reaches_the_one_who_waits_and_the_link_goes_on():
    def broken(delivery) -> None:
        raise KeyError("neko")

    with EmulatedLink(AffineCost(0.0, 0.0), HandClock()) as link:
        first, second = link.send(1, broken), link.send(1)
        with pytest.raises(KeyError, match="neko"):
            first.result(LIMIT_S)
        assert second.result(LIMIT_S).n_bytes == 1


def test_an_exception_in_the_block_cancels_what_is_on_the_way_and_ends_the_thread():
    futures = []

    def fail() -> None:
        with EmulatedLink(AffineCost(1e9, 0.0)) as link:
            futures.extend(link.send(1) for _ in range(3))
            raise KeyError("neko")

    with pytest.raises(KeyError, match="neko"):
        fail()
    assert all(future.cancelled() for future in futures)
    assert link_threads() == []


def test_a_message_that_nobody_waits_for_any_more_still_holds_the_link():
    clock = HandClock()
    with EmulatedLink(AffineCost(1.0, 0.0), clock) as link:
        first, second = link.send(1), link.send(1)
        assert first.cancel()
        clock.time_s = 2.0
        assert second.result(LIMIT_S).start_s == 1.0


def test_a_closed_link_takes_nothing_and_may_be_closed_again():
    link = EmulatedLink(AffineCost(0.0, 0.0))
    link.close()
    link.close(cancel=True)
    assert link_threads() == []
    with pytest.raises(RuntimeError, match="closed"):
        link.send(1)


def test_a_negative_size_is_refused():
    with EmulatedLink(AffineCost(0.0, 0.0)) as link, pytest.raises(ValueError, match="saw -1"):
        link.send(-1)


def test_on_the_wall_clock_nothing_arrives_early():
    cost = AffineCost(startup_s=2e-3, s_per_byte=0.0)
    with EmulatedLink(cost) as link:
        futures = [link.send(1) for _ in range(3)]
        deliveries = [future.result(LIMIT_S) for future in futures]
        now_s = WallClock().now_s()
    assert all(one.late_s >= 0 for one in deliveries)
    assert deliveries[-1].end_s == pytest.approx(deliveries[0].sent_s + 6e-3)
    assert now_s >= deliveries[-1].end_s
