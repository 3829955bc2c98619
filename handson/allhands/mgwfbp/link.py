"""What does a slow network do to a real program? A network link that is emulated by one thread.

The link carries one message at a time, in the order in which they were sent (FIFO); a message of s
bytes takes `cost(s)` seconds. Nothing is really sent: the thread sleeps. So a real backward pass on
one machine meets the communication times of any cluster, in wall-clock time.

    with EmulatedLink(AffineCost(startup_s=5e-3, s_per_byte=1e-9)) as link:
        future = link.send(4_000_000, name="0-3")  # returns at once
        ...                                        # the backward pass goes on
        delivery = future.result()                 # waits; here after 9 ms

A sleeping thread wakes up late. The lateness does not add up: the link is planned ahead, message k
starts at max(the moment it was sent, the planned end of message k - 1). So start_s and end_s of a
delivery are what an exact link would have done, and late_s says how late the program heard of it.

Conventions: times in seconds on the link's clock, sizes in bytes.
"""

import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from allhands.mgwfbp.cost import Cost
from allhands.trace.events import Event, Recorder


class Clock(Protocol):
    """Tells the time and lets it pass. Tests give one that is turned by hand."""

    def now_s(self) -> float:
        """Return the time; it never falls."""

    def wait_until(self, when_s: float, stop: threading.Event) -> None:
        """Return when it is `when_s` or later, or soon after `stop` is set."""


class WallClock:
    """The machine's own clock, `time.perf_counter`."""

    def now_s(self) -> float:
        return time.perf_counter()

    def wait_until(self, when_s: float, stop: threading.Event) -> None:
        while (left_s := when_s - self.now_s()) > 0 and not stop.wait(left_s):
            pass


@dataclass(frozen=True)
class Delivery:
    """What became of one message: sent (queued), on the link from start_s to end_s."""

    name: str
    n_bytes: float
    sent_s: float
    start_s: float
    end_s: float
    late_s: float = 0.0  # how long after end_s the program was told


@dataclass(frozen=True)
class _Message:
    name: str
    n_bytes: float
    sent_s: float
    step: int
    on_done: Callable[[Delivery], None] | None
    future: Future


class EmulatedLink:
    """A link with a given cost. Use it in a `with` block, or call `close`.

    cost: seconds of a message, by its bytes. recorder: gets one `communicate` event a message, with
    the message's name. Leaving the block by an exception cancels what is still on the way; leaving
    it without one waits for it. Either way the link's thread has ended then.
    """

    def __init__(
        self, cost: Cost, clock: Clock | None = None, recorder: Recorder | None = None
    ) -> None:
        self.cost = cost
        self.clock = WallClock() if clock is None else clock
        self.recorder = recorder
        self._to_recorder_s = recorder.now_s() - self.clock.now_s() if recorder else 0.0
        self._queue: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._sending = threading.Lock()
        self._closed = False
        # daemon: a program that forgets to close the link can still end
        self._thread = threading.Thread(target=self._run, name="emulated link", daemon=True)
        self._thread.start()

    def send(
        self,
        n_bytes: float,
        on_done: Callable[[Delivery], None] | None = None,
        *,
        name: str = "",
    ) -> "Future[Delivery]":
        """Queue a message and return at once. Any thread may call it.

        on_done: called by the link's thread at the end, before the future is done. If it raises,
        the future's `result()` raises that, and the link goes on. Raises ValueError for a negative
        size, RuntimeError if the link is closed.
        """
        if not n_bytes >= 0:
            raise ValueError(f"A message has 0 bytes or more, saw {n_bytes}.")
        with self._sending:  # the order of the stamps is the order of the queue
            if self._closed:
                raise RuntimeError("The link is closed: send before close(), or open another link.")
            step = self.recorder.step if self.recorder else 0
            future: Future[Delivery] = Future()
            self._queue.put(_Message(name, n_bytes, self.clock.now_s(), step, on_done, future))
        return future

    def close(self, *, cancel: bool = False) -> None:
        """End the link's thread: after all that was sent is delivered, or at once with `cancel`.

        With `cancel`, the futures of undelivered messages are cancelled. May be called again.
        """
        with self._sending:
            if cancel:
                self._stop.set()
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> "EmulatedLink":
        return self

    def __exit__(self, exception_type: type[BaseException] | None, *_) -> None:
        self.close(cancel=exception_type is not None)

    def _run(self) -> None:
        free_s = -math.inf
        while (message := self._queue.get()) is not None:
            if self._stop.is_set():
                message.future.cancel()
                continue
            try:
                start_s = max(message.sent_s, free_s)
                free_s = start_s + self.cost(message.n_bytes)
                delivery = Delivery(message.name, message.n_bytes, message.sent_s, start_s, free_s)
                self.clock.wait_until(free_s, self._stop)
                if self._stop.is_set():
                    message.future.cancel()
                    continue
                self._tell(message, delivery)
            except BaseException as error:  # the program hears it where it waits
                if not message.future.cancelled():
                    message.future.set_exception(error)

    def _tell(self, message: _Message, delivery: Delivery) -> None:
        if not message.future.set_running_or_notify_cancel():
            return  # who sent it does not want to know
        late_s = self.clock.now_s() - delivery.end_s
        if self.recorder:
            start_s, end_s = (t + self._to_recorder_s for t in (delivery.start_s, delivery.end_s))
            self.recorder.events.append(
                Event(start_s, end_s, self.recorder.rank, "communicate", message.name, message.step)
            )
        delivery = replace(delivery, late_s=late_s)
        if message.on_done is not None:
            message.on_done(delivery)
        message.future.set_result(delivery)
