"""A right exchange without create_multi_node_optimizer: average, then update. No broadcast."""

import chainer
import healthy


class MeanGradient:
    def __init__(self, optimizer, comm):
        self.optimizer, self.comm = optimizer, comm

    def update(self):
        self.comm.multi_node_mean_grad(self.optimizer.target)
        self.optimizer.update()


def build(comm):
    return healthy.build(
        comm,
        make_optimizer=lambda model, comm: MeanGradient(
            chainer.optimizers.Adam(0.02).setup(model), comm
        ),
    )
