"""What the device and the link did when, written as the events of `allhands.trace`.

A GPU works behind the program's back: a call returns before the work is done. The clock made here
waits for the device, so that a span ends when its work has ended. That costs a little speed.
"""

import time
from collections.abc import Callable
from pathlib import Path

import chainer

from allhands.trace.events import Recorder


def device_clock(device: chainer.backend.Device) -> Callable[[], float]:
    """Return a clock in seconds that waits for the work of `device` before it reads the time."""
    if device.xp.__name__ != "cupy":
        return time.perf_counter

    def clock() -> float:
        device.xp.cuda.get_current_stream().synchronize()
        return time.perf_counter()

    return clock


def common_recorder(
    communicator, clock: Callable[[], float] = time.perf_counter, path: Path | None = None
) -> Recorder:
    """Return a recorder whose zero is the same moment on every rank. A collective call.

    Within one machine the ranks read one clock, and take rank 0's zero. On several machines each
    takes the end of a barrier as zero, which is good to some tens of microseconds.
    """
    comm = communicator.mpi_comm
    comm.Barrier()
    zero_s = clock()
    if communicator.inter_size == 1:
        zero_s = comm.bcast(zero_s)
    return Recorder(communicator.rank, clock, path, start_s=clock() - zero_s)


class FunctionSpans(chainer.FunctionHook):
    """A Chainer function hook: one event for each function's forward and for its backward.

        with FunctionSpans(recorder):
            loss = model.loss(batch)
            loss.backward()

    The event's `what` is `forward` or `backward`, its `name` the function (`LinearFunction`,
    `LSTM`). Functions that a function's backward calls are part of it, and make no event: so events
    never overlap.
    """

    name = "FunctionSpans"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._starts_s: list[float] = []

    def forward_preprocess(self, function, in_data) -> None:
        self._starts_s.append(self._recorder.now_s())

    def backward_preprocess(self, function, in_data, out_grad) -> None:
        self._starts_s.append(self._recorder.now_s())

    def forward_postprocess(self, function, in_data) -> None:
        self._add("forward", function)

    def backward_postprocess(self, function, in_data, out_grad) -> None:
        self._add("backward", function)

    def _add(self, what: str, function) -> None:
        start_s = self._starts_s.pop()
        if not self._starts_s:
            self._recorder.add(what, function.label, start_s, self._recorder.now_s())


class RecordedCommunicator:
    """A ChainerMN communicator; each averaging of gradients is an event `communicate`."""

    def __init__(self, communicator, recorder: Recorder) -> None:
        self._communicator = communicator
        self._recorder = recorder

    def __getattr__(self, name: str):
        return getattr(self._communicator, name)

    def multi_node_mean_grad(self, model: chainer.Link, zero_fill: bool = False) -> None:
        """Average the gradients of all parameters over the ranks."""
        with self._recorder.span("communicate", "all"):
            self._communicator.multi_node_mean_grad(model, zero_fill)
