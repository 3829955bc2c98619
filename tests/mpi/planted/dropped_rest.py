"""Mistake: equal shares of the held-out set, and the rest is on no rank."""

import healthy


def build(comm):
    return healthy.build(
        comm,
        held_out=lambda n, comm: range(
            comm.rank * (n // comm.size), (comm.rank + 1) * (n // comm.size)
        ),
    )
