"""Seven reasons why a parallel run, without any error, is not faster than one process, or slower.

Five are parts of a program (`train/slower.py`), two are in the comparison of its runs. With one
rank the two readings of each do the same: nobody finds these faults alone. `comm` is mpi4py's.
What each costs is measured by tests/bench/bench_bug4.py; how it shows, by `allhands doctor --run`.
"""

import numpy as np


def numbers(n_samples, comm, epoch):
    """The numbers of the samples that this rank trains on in an epoch, in their order."""
    ### FAULT order = np.random.default_rng(epoch).permutation(n_samples)  # the same on all ranks
    ### FAULT return order
    order = np.random.default_rng(epoch).permutation(n_samples)  # the same on all ranks
    return order[comm.rank :: comm.size]


def batch_of_rank(batch_size, comm):
    """How many samples a rank takes in a step. `batch_size` is what one process takes alone."""
    ### FAULT return batch_size // comm.size
    return batch_size


def load(read, numbers, comm):
    """The samples of this rank's batch. `read(numbers)` reads and prepares them, slowly."""
    ### FAULT wanted = comm.gather(numbers)  # rank 0 has the file: it reads for all ranks
    ### FAULT batches = [read(each) for each in wanted] if comm.rank == 0 else None
    ### FAULT return comm.scatter(batches)
    return read(numbers)


def evaluate(count_right, n_images, comm):
    """The share of the held-out images that the model gets right: the same number on all ranks.

    `count_right(numbers)` says how many of the images with these numbers it gets right.
    """
    ### FAULT accuracy = count_right(np.arange(n_images)) / n_images
    ### FAULT print(f"{accuracy:.1%} right")
    ### FAULT return accuracy
    mine = np.arange(comm.rank, n_images, comm.size)
    accuracy = comm.allreduce(count_right(mine)) / n_images
    if comm.rank == 0:
        print(f"{accuracy:.1%} right")
    return accuracy


def threads(cores, ranks):
    """How many threads each of the ranks on a machine with so many cores computes with."""
    ### FAULT return cores
    return max(1, cores // ranks)


def step_s(times_s):
    """How long a step takes, in seconds. `times_s`: of all steps of a run, in their order."""
    ### FAULT return float(np.mean(times_s))
    return float(np.median(times_s[3:]))


def speed_up(alone, together):
    """How many times as fast `together` trains as `alone`.

    Each has `step_s`, and `samples_per_step`: of all its ranks together.
    """
    ### FAULT return alone.step_s / together.step_s
    alone_per_s = alone.samples_per_step / alone.step_s
    return together.samples_per_step / together.step_s / alone_per_s
