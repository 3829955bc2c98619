"""How long is one message on its way? Two ranks throw a ball to and fro.

One rank alone cannot say: its clock knows when a message left, and the other's clock when it came,
and two clocks of two nodes do not agree to a microsecond. So the ball comes back, and the time of
the round trip is halved.
"""

from collections.abc import Callable

import numpy as np


def message_s(comm, n_bytes: int, repeats: int, clock: Callable[[], float]) -> float:
    """The time of one message of `n_bytes` bytes between ranks 0 and 1, in seconds.

    Both ranks call it. In a round trip rank 0 sends the bytes to rank 1, and rank 1 sends them
    back: two messages. Make `repeats` round trips, and return half of the shortest: whatever else
    the machine does can only make one longer.

    `comm.Send(ball, dest=1)` and `comm.Recv(ball, source=1)` take a NumPy array; one number of
    type `np.uint8` is one byte. `clock()` gives the time in seconds.
    """
    ball = np.zeros(n_bytes, np.uint8)
    times_s = []
    for _ in range(repeats):
        start_s = clock()
        if comm.rank == 0:
            comm.Send(ball, dest=1)
            comm.Recv(ball, source=1)
        else:
            comm.Recv(ball, source=0)
            comm.Send(ball, dest=0)
        times_s.append(clock() - start_s)
    return min(times_s) / 2
