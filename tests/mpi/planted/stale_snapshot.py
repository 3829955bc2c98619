"""Mistake: after the broadcast one rank loads parameters of its own, such as an old snapshot."""

import healthy


def build(comm):
    parts = healthy.build(comm)
    parts.optimizer.update()  # the broadcast
    if comm.rank == 1:
        for parameter in parts.model.params():
            parameter.array *= 0.9
    return parts
