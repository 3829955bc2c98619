"""Mistake: the ranks' gradients are summed, not averaged."""

import chainer
import healthy
from by_hand import MeanGradient


class SummedGradient(MeanGradient):
    def update(self):
        self.comm.multi_node_mean_grad(self.optimizer.target)
        for parameter in self.optimizer.target.params():
            parameter.grad *= self.comm.size
        self.optimizer.update()


def build(comm):
    return healthy.build(
        comm,
        make_optimizer=lambda model, comm: SummedGradient(
            chainer.optimizers.SGD(0.1).setup(model), comm
        ),
    )
