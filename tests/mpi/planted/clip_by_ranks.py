"""Mistake: a hook of one's own clips to a norm that grows with the number of ranks."""

import chainer
import healthy


def make_optimizer(model, comm):
    optimizer = healthy.make_optimizer(model, comm)
    optimizer.remove_hook("GradientClipping")
    clip = chainer.optimizer_hooks.GradientClipping(0.2 * comm.size)
    optimizer.add_hook(lambda inner: clip(inner), "clip", timing="pre")
    return optimizer


def build(comm):
    return healthy.build(comm, make_optimizer=make_optimizer)
