"""Mistake: the loss per token is the mean of the ranks' losses per token."""

import healthy


def metrics(mine, comm):
    mean = comm.allreduce_obj(mine.loss / mine.tokens) / comm.size
    return healthy.metrics(mine, comm) | {"loss_per_token": mean}


def build(comm):
    return healthy.build(comm, metrics=metrics)
