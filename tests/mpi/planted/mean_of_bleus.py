"""Mistake: BLEU is the mean of the ranks' BLEUs."""

import healthy


def metrics(mine, comm):
    mean = comm.allreduce_obj(healthy.bleu(mine.words)) / comm.size
    return healthy.metrics(mine, comm) | {"bleu": mean}


def build(comm):
    return healthy.build(comm, metrics=metrics)
