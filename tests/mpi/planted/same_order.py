"""Mistake: every epoch has the order of the first."""

import healthy


def build(comm):
    return healthy.build(
        comm, batches=lambda numbers, epoch, comm, n: healthy.batches(numbers, 0, comm, n)
    )
