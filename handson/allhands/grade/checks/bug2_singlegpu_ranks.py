"""What the checks of bug2 let real ranks do, with the answer as argument. Nothing here judges."""

from collections.abc import Callable

import numpy as np

# Is the array of the case the same on all ranks?
SAME = {
    "equal": True,
    "not a number": True,
    "one differs": False,
    "another order": False,
    "another shape": False,
}


def result_of(comm, program: Callable) -> object:
    """What the program returns."""
    return program(comm)


class Called:
    """A communicator that counts in `n_calls` how often one of its methods was asked for."""

    def __init__(self, comm) -> None:
        self.comm, self.n_calls = comm, 0

    def __getattr__(self, name: str) -> object:
        found = getattr(self.comm, name)
        self.n_calls += callable(found)
        return found


def result_and_calls(comm, program: Callable) -> tuple[object, int]:
    """What the program returns, and how many calls of `comm` it made."""
    called = Called(comm)
    return program(called), called.n_calls


def same_of(comm, same_everywhere: Callable) -> dict[str, bool]:
    """The answer for each case of SAME: rank 1, or the last rank, is the one that differs."""
    numbers = np.arange(6.0)
    second, last = comm.rank == 1, comm.rank == comm.size - 1
    arrays = {
        "equal": numbers,
        "not a number": np.full(3, np.nan),
        "one differs": numbers + (1e-9 if last else 0) * (numbers == 4),
        "another order": numbers[::-1].copy() if second else numbers,
        "another shape": numbers.reshape((3, 2) if last else (2, 3)),
    }
    return {case: same_everywhere(comm, array) for case, array in arrays.items()}
