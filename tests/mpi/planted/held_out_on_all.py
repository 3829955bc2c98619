"""Mistake: the counts are summed, and every rank evaluates the whole held-out set."""

import healthy


def build(comm):
    return healthy.build(comm, held_out=lambda n, comm: range(n))
