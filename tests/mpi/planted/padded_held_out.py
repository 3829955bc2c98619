"""Mistake: scatter_dataset repeats held-out sentences, and they count twice."""

import chainermn
import healthy


def build(comm):
    return healthy.build(
        comm, held_out=lambda n, comm: list(chainermn.scatter_dataset(range(n), comm))
    )
