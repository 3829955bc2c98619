"""What the checks of bug2 let real ranks do, with the answer as argument. Nothing here judges."""

from collections.abc import Callable

import numpy as np

# Is the array of the case the same on rank 0 and on rank 1?
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


def same_of(comm, same_everywhere: Callable) -> dict[str, bool]:
    """The answer for each case of SAME."""
    numbers = np.arange(6.0)
    first = comm.rank == 0
    arrays = {
        "equal": numbers,
        "not a number": np.full(3, np.nan),
        "one differs": numbers + (0 if first else 1e-9) * (numbers == 4),
        "another order": numbers if first else numbers[::-1].copy(),
        "another shape": numbers.reshape((2, 3) if first else (3, 2)),
    }
    return {case: same_everywhere(comm, array) for case, array in arrays.items()}
