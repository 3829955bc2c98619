"""Mistake: shares of unequal size, batches of fixed size: rank 0 makes more steps."""

import healthy
import numpy as np


def shard(n, comm, seed):
    """Half of the samples, and 7 more, are rank 0's."""
    order = np.random.RandomState(seed).permutation(n)
    return np.array_split(order, [n // 2 + 7])[comm.rank] if comm.size == 2 else order


def batches(numbers, epoch, comm, n_samples):
    numbers = np.random.RandomState(1 + epoch).permutation(numbers)
    return [numbers[i : i + healthy.BATCH] for i in range(0, len(numbers), healthy.BATCH)]


def build(comm):
    return healthy.build(comm, shard=shard, batches=batches)
