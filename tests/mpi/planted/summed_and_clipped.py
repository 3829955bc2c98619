"""Mistake: the exchange sums, and Adam and clipping hide it: the update is nearly the right one."""

import healthy


class Summing:
    """A communicator whose mean is a sum."""

    def __init__(self, comm):
        self.comm = comm

    def __getattr__(self, name):
        return getattr(self.comm, name)

    def multi_node_mean_grad(self, model, zero_fill=False):
        self.comm.multi_node_mean_grad(model, zero_fill)
        for parameter in model.params():
            parameter.grad *= self.comm.size


def build(comm):
    return healthy.build(
        comm, make_optimizer=lambda model, comm: healthy.make_optimizer(model, Summing(comm))
    )
