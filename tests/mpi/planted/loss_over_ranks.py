"""Mistake: the loss is divided by the number of ranks, and the exchange divides again."""

import healthy


def build(comm):
    return healthy.build(comm, weigh=lambda loss, n, comm: healthy.weigh(loss, n, comm) / comm.size)
