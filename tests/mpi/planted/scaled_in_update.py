"""Mistake: a hand-made update rule multiplies its step by the number of ranks."""

import healthy


class Plain:
    def __init__(self, model, comm):
        self.model, self.comm = model, comm

    def update(self):
        self.comm.multi_node_mean_grad(self.model)
        for parameter in self.model.params():
            parameter.array -= 0.1 * self.comm.size * parameter.grad


def build(comm):
    return healthy.build(comm, make_optimizer=Plain)
