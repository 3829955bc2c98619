"""Mistake: the learning rate is multiplied by the number of ranks; the run alone has it not."""

import healthy


def make_optimizer(model, comm):
    optimizer = healthy.make_optimizer(model, comm)
    optimizer.actual_optimizer.alpha *= comm.size
    return optimizer


def build(comm):
    return healthy.build(comm, make_optimizer=make_optimizer)
