"""Mistake: batches of unequal size count the same in the average of the gradients."""

import healthy


def build(comm):
    return healthy.build(comm, weigh=lambda loss, n, comm: loss)
