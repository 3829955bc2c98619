"""A plugin of pytest for nbval: a cell whose kernel died fails at once, and says so.

    pytest -p allhands.kit.verify_kernel --nbval-lax ...

By itself nbval waits for the answer of a dead kernel until the cell's time is over.
"""

import time
from queue import Empty

from nbval.kernel import RunningKernel

LOOK_S = 1.0
_get_message = RunningKernel.get_message


def get_message(kernel: RunningKernel, stream: str, timeout: float | None = None) -> dict:
    """As nbval's: the next message. Raises Empty after `timeout` seconds."""
    end_s = time.monotonic() + (float("inf") if timeout is None else timeout)
    while True:
        alive = kernel.is_alive()
        try:
            return _get_message(kernel, stream, max(0.0, min(LOOK_S, end_s - time.monotonic())))
        except Empty:
            if not alive:
                raise RuntimeError("The kernel died while this cell ran.") from None
            if time.monotonic() >= end_s:
                raise


RunningKernel.get_message = get_message
