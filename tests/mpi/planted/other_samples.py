"""Mistake: rank 1 reads the data from another place on, so a number is another sample there."""

import dataclasses

import healthy


def build(comm):
    parts = healthy.build(comm)
    shift = int(comm.rank == 1)
    return dataclasses.replace(
        parts, loss=lambda numbers: parts.loss([(i + shift) % healthy.N_TRAIN for i in numbers])
    )
