"""Mistake: the loss is multiplied by the number of ranks; clipping hides it in the update."""

import healthy


def build(comm):
    return healthy.build(comm, weigh=lambda loss, n, comm: comm.size * healthy.weigh(loss, n, comm))
