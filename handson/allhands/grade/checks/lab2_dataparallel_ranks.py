"""What the checks of lab 2 let real ranks do: programs for `on_ranks`, with the answer as argument.

Each rank returns what it saw. Nothing here judges.
"""

from collections.abc import Callable, Mapping

import numpy as np

WORLDS = (2, 3, 4)
N_NUMBERS = (5, 260_000)  # a few bytes, and about a megabyte: MPI sends the two in different ways
COUNTS = (
    {"n_right": 10, "n_sentences": 10, "loss": 30.0, "n_tokens": 60},
    {"n_right": 0, "n_sentences": 2, "loss": 20.0, "n_tokens": 20},
)
SENTENCES = (10, 2)


def sums_right(comm, all_reduce: Callable) -> dict[str, bool]:
    """Compare with MPI's own all-reduce on the first 2, 3 and 4 of 4 ranks.

    The numbers are whole and small, so that FP32 adds them without rounding, in any order.
    """
    found = {}
    for n_ranks in WORLDS:
        group = comm.Split(0 if comm.rank < n_ranks else 1, comm.rank)
        if comm.rank >= n_ranks:
            continue
        for n in N_NUMBERS:
            random = np.random.default_rng([n, comm.rank])
            array = random.integers(0, 1000, n).astype(np.float32)
            right = np.empty_like(array)
            got = all_reduce(group, array.copy())
            group.Allreduce(array, right)
            found[f"{n} numbers on {n_ranks} ranks"] = bool(np.array_equal(got, right))
    return found


def metrics_of(comm, metrics: Callable) -> Mapping[str, float]:
    """The metrics of two uneven shards."""
    return metrics(dict(COUNTS[comm.rank]), comm)


def reported(comm, report: Callable) -> object:
    """What `report` returns for two uneven shards."""
    return report(SENTENCES[comm.rank], comm)
