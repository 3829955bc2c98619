"""Mistake: the last rank evaluates other sentences than those that are left for it: as many."""

import healthy


def held_out(n, comm):
    first = 0 if comm.rank == comm.size - 1 else comm.rank
    return [first + comm.size * i for i in range(len(range(comm.rank, n, comm.size)))]


def build(comm):
    return healthy.build(comm, held_out=held_out)
