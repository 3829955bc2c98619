"""Mistake: each rank clips its own gradient, and the clipped ones are averaged."""

import chainer
import healthy
from by_hand import MeanGradient


class ClippedFirst(MeanGradient):
    clip = chainer.optimizer_hooks.GradientClipping(0.2)

    def update(self):
        self.clip(self.optimizer)
        super().update()


def build(comm):
    return healthy.build(
        comm,
        make_optimizer=lambda model, comm: ClippedFirst(
            chainer.optimizers.SGD(0.1).setup(model), comm
        ),
    )
