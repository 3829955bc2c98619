"""Mistake: a plain optimizer instead of the multi-node one."""

import chainer
import healthy


def build(comm):
    return healthy.build(
        comm, make_optimizer=lambda model, comm: chainer.optimizers.Adam(0.02).setup(model)
    )
