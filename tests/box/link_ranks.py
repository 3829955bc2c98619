"""The program of the ranks that measure a link: two ranks play ping-pong, all do all-reduces.

    salloc -N2 -n2 mpiexec -n 2 python tests/box/link_ranks.py 1024 65536 ...     (sizes in bytes)

Rank 0 prints JSON: {"hosts": [...], "ping-pong": [[bytes, seconds], ...], "all-reduce": ...}. A
time is the smallest of the repeats, each that of its slowest rank; a ping-pong's is of one way.
"""

import json
import socket
import sys
import time

import numpy as np
from mpi4py import MPI

WARM_UP, REPEATS_SHORT, REPEATS_LONG, LONG_BYTES = 2, 40, 10, 100_000


def ping_pong(comm, sent, received) -> None:
    if comm.rank == 0:
        comm.Send(sent, 1)
        comm.Recv(received, 1)
    elif comm.rank == 1:
        comm.Recv(received, 0)
        comm.Send(sent, 0)


def all_reduce(comm, sent, received) -> None:
    comm.Allreduce(sent, received)


def smallest_s(comm, exchange, n_bytes: int) -> float:
    sent, received = np.ones(n_bytes // 4, np.float32), np.empty(n_bytes // 4, np.float32)
    repeats = REPEATS_SHORT if n_bytes < LONG_BYTES else REPEATS_LONG
    times_s = np.empty(WARM_UP + repeats)
    for number in range(len(times_s)):
        comm.Barrier()
        start_s = time.perf_counter()
        exchange(comm, sent, received)
        times_s[number] = time.perf_counter() - start_s
    comm.Allreduce(MPI.IN_PLACE, times_s, op=MPI.MAX)
    return float(times_s[WARM_UP:].min())


def main() -> None:
    comm, sizes = MPI.COMM_WORLD, [int(word) for word in sys.argv[1:]]
    told = {"hosts": comm.gather(socket.gethostname())}
    told["ping-pong"] = [[size, smallest_s(comm, ping_pong, size) / 2] for size in sizes]
    told["all-reduce"] = [[size, smallest_s(comm, all_reduce, size)] for size in sizes]
    if comm.rank == 0:
        print(json.dumps(told))


if __name__ == "__main__":
    main()
