"""Mistake: the training set is not dealt out."""

import healthy
import numpy as np


def build(comm):
    return healthy.build(comm, shard=lambda n, comm, seed: np.random.permutation(n))
