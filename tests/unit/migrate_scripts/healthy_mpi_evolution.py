"""The shape of evolution strategies: mpi4py alone, rank and size set in one line."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()


def fitness(theta):
    return -np.sum((theta - 3.0) ** 2)


def main(generations=50, per_rank=8, sigma=0.1, lr=0.02):
    rng = np.random.default_rng(1000 + rank)
    theta = np.zeros(5)
    if rank == 0:
        theta = np.random.default_rng(0).normal(size=5)
    comm.Bcast(theta, root=0)
    for generation in range(generations):
        noise = rng.normal(size=(per_rank, theta.size))
        scores = np.array([fitness(theta + sigma * n) for n in noise])
        all_scores = np.empty(per_rank * size)
        comm.Allgather(scores, all_scores)
        mean, std = all_scores.mean(), all_scores.std()
        grad = ((scores - mean) / (std + 1e-8)) @ noise
        total = np.empty_like(grad)
        comm.Allreduce(grad, total, op=MPI.SUM)
        theta += lr / (per_rank * size * sigma) * total
        if rank == 0 and generation % 10 == 0:
            print(generation, mean)
    if rank != 0:
        comm.send(theta, dest=0, tag=7)
    else:
        for source in range(1, size):
            other = comm.recv(source=source, tag=7)
            assert np.allclose(other, theta)
        np.save("theta.npy", theta)


if __name__ == "__main__":
    main()
