"""The shapes of mpi4py's tutorial: collectives called in both branches, and point to point."""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()

if rank == 0:
    print("rank 0 sends")
    data = comm.bcast({"a": 7}, root=0)
else:
    data = comm.bcast(None, root=0)

if rank == 0:
    parts = [(i + 1) ** 2 for i in range(size)]
    print("a part for each:", parts)
else:
    parts = None
part = comm.scatter(parts, root=0)
found = comm.gather(part + 1, root=0)

if rank == 0:
    for other in range(1, size):
        comm.send(data, dest=other)
    print("sum:", sum(found))
else:
    data = comm.recv(source=0)

pairs = comm.Split(rank % 2, rank)
if rank % 2 == 0:
    pairs.Barrier()

numbers = np.full(3, rank)
total = np.empty_like(numbers)
comm.Allreduce(numbers, total, op=MPI.SUM)
np.save(f"total_{rank}.npy", total)
