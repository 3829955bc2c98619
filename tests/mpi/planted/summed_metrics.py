"""Mistake: the ranks' metrics are summed, not averaged."""

import healthy


def metrics(mine, comm):
    right = healthy.metrics(mine, comm)
    loss = comm.allreduce_obj(mine.loss / mine.tokens)
    return right | {"loss_per_token": loss, "bleu": comm.allreduce_obj(healthy.bleu(mine.words))}


def build(comm):
    return healthy.build(comm, metrics=metrics)
