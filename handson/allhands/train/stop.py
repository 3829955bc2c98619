"""When a run ends: after its epochs, before a time limit, or when the scheduler asks for it.

A scheduler kills a job at its time limit. So the run watches its own clock, saves, and ends with
exit code 85; the job script then puts it back into the queue. Ctrl-C is heard in the same way.

On several ranks only one may have heard it, and no clock is exactly another. So all ranks ask each
other before each step, and stop after the same update.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import chainer

from allhands.train import parallel
from allhands.train.alone import ALONE

EXIT_STOPPED = 85
INTERRUPTED = "signal SIGINT"  # the reason of a run that Ctrl-C stopped
AT_ONCE = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


class StopTrigger:
    """Chainer's stop trigger: true after `epochs`, after `stop_after_s`, or once `request`ed.

    The same on all ranks of `comm`: each call talks to the others.
    """

    def __init__(
        self,
        epochs: int,
        stop_after_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        comm=ALONE,
    ) -> None:
        self._epochs = epochs
        self._comm = comm
        self._clock = clock
        self._deadline_s = None if stop_after_s is None else clock() + stop_after_s
        self.reason: str | None = None

    def request(self, reason: str) -> None:
        """End the run after the update that is under way."""
        self.reason = reason

    def __call__(self, trainer: chainer.training.Trainer) -> bool:
        if self.finished(trainer):
            return True
        late = self._deadline_s is not None and self._clock() >= self._deadline_s
        if late and self.reason is None:
            self.reason = "the time given by --stop-after is over"
        heard = [reason for reason in parallel.of_all(self.reason, self._comm) if reason]
        if heard:  # else leave it: a signal may have come while the ranks talked
            self.reason = INTERRUPTED if INTERRUPTED in heard else heard[0]
        return bool(heard)

    def finished(self, trainer: chainer.training.Trainer) -> bool:
        """True if all epochs are done, whatever else asked the run to stop."""
        return trainer.updater.epoch >= self._epochs

    @contextmanager
    def on_signals(self, *numbers: int) -> Iterator[None]:
        """Within the block, these signals ask the run to save and stop, as schedulers do.

        The run may be in a long evaluation, and hear it late. So a second SIGINT raises
        KeyboardInterrupt, and a second SIGTERM ends the process at once.
        """

        def hear(number: int, _) -> None:
            self.request(f"signal {signal.Signals(number).name}")
            signal.signal(number, AT_ONCE.get(number, hear))

        handlers = {number: signal.signal(number, hear) for number in numbers}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
