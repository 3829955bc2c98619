"""No mistake, in one of lab 2's functions: another way to deal the samples out."""

import numpy as np


def shard(n_samples, comm, seed):
    order = np.random.RandomState(seed + 5).permutation(n_samples)
    return np.array_split(order, comm.size)[comm.rank]
