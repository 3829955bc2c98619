"""Mistake, in one of lab 2's functions: the exchange sums the gradients."""

import chainermn


class Summing:
    def __init__(self, comm):
        self.comm = comm

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def multi_node_mean_grad(self, model, zero_fill=False):
        self.comm.multi_node_mean_grad(model, zero_fill)
        for parameter in model.params():
            parameter.grad *= self.comm.size


def multi_node(optimizer, comm, **_):
    return chainermn.create_multi_node_optimizer(optimizer, Summing(comm))
