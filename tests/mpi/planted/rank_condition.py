"""Mistake: rank 0 alone asks how many sentences all ranks hold, in the middle of a step."""

import healthy


def weigh(loss, n, comm):
    if comm.rank == 0:
        comm.allreduce_obj(n)
    return healthy.weigh(loss, n, comm)


def build(comm):
    return healthy.build(comm, weigh=weigh)
