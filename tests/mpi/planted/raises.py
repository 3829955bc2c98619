"""Mistake: a division by zero, on the last rank only."""

import healthy


def make_model(comm, n_words):
    if comm.rank == comm.size - 1 and comm.size > 1:
        n_words //= 0
    return healthy.make_model(comm, n_words)


def build(comm):
    return healthy.build(comm, make_model=make_model)
