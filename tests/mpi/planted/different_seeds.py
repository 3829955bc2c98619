"""Mistake: each rank draws its own parameters, and an exchange by hand broadcasts nothing."""

import chainer
import healthy
import numpy as np
from by_hand import MeanGradient


def make_model(comm, n_words):
    model = healthy.make_model(comm, n_words)
    for parameter in model.params():
        parameter.array += np.float32(0.01 * comm.rank)
    return model


def build(comm):
    return healthy.build(
        comm,
        make_model=make_model,
        make_optimizer=lambda model, comm: MeanGradient(
            chainer.optimizers.Adam(0.02).setup(model), comm
        ),
    )
