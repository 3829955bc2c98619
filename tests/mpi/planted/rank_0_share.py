"""Mistake: rank 0 evaluates, alone, what is its share of the held-out set."""

import healthy
from alone import ALONE


def build(comm):
    return healthy.build(
        comm, metrics=lambda mine, comm: healthy.metrics(mine, ALONE) if comm.rank == 0 else {}
    )
