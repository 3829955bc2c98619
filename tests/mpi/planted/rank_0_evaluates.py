"""Mistake: the multi-node evaluation is called on rank 0 only, so rank 0 waits for ever."""

import healthy


def metrics(mine, comm):
    if comm.rank == 0:
        return healthy.metrics(mine, comm)
    return {}


def build(comm):
    return healthy.build(comm, metrics=metrics)
