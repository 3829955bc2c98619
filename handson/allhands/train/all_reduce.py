"""How do N ranks add up their arrays? Three all-reduces by hand, from messages between two ranks.

    mpiexec -n 4 python -m allhands.train.all_reduce --out FOLDER

times each of them, and MPI's own, against the size of the message; see all_reduce_times.py for what
the times are compared with.

Conventions: `comm` has rank, size, Send, Recv and Sendrecv: an mpi4py communicator, or that of a
rehearsal. Arrays have the same shape and type on all ranks, and are left as they are. The result is
new, and the same on all ranks, to the bit. N is any number of ranks. Sources: Thakur, Rabenseifner
and Gropp, IJHPCA 19 (2005); Patarasuk and Yuan, JPDC 69 (2009), for the ring.
"""

import argparse
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

AllReduce = Callable[..., np.ndarray]  # (comm, array) -> the sum, a new array


def gather_broadcast(comm, array: np.ndarray) -> np.ndarray:
    """Return the sum of the arrays of all ranks: rank 0 gathers, adds, and sends the sum to all.

    The other ranks send their array to rank 0 (`Send`), which receives them one after the other
    (`Recv`), in the order of their ranks, and adds each to its own. Then rank 0 sends the sum to
    each of them in turn. 2(N-1) steps of all bytes, all through rank 0.

    array: any shape, on all ranks the same; it is not changed.
    """
    total = array.flatten()  # a copy, (n,)
    if comm.rank == 0:
        received = np.empty_like(total)
        for other in range(1, comm.size):
            comm.Recv(received, source=other)
            total += received
        for other in range(1, comm.size):
            comm.Send(total, dest=other)
    else:
        comm.Send(total, dest=0)
        comm.Recv(total, source=0)
    return total.reshape(array.shape)


def ring(comm, array: np.ndarray) -> np.ndarray:
    """Return the sum of the arrays of all ranks: reduce-scatter, then all-gather around a ring.

    The flat array is cut into N chunks that are equal to within one element (`np.array_split`; some
    are empty if the array is shorter than N). Each rank sends to the next rank, rank + 1, and
    receives from the one before, rank - 1, both modulo N and in one `Sendrecv`: two calls one after
    the other would wait for each other for ever once the messages are large.

    Reduce-scatter, steps t = 0 .. N-2: send chunk rank - t, receive chunk rank - t - 1 (modulo N)
    and add it to the own one. Then rank r holds the whole sum of chunk r + 1.
    All-gather, steps t = 0 .. N-2: send chunk rank + 1 - t, which is complete, and receive chunk
    rank - t in the place of the own one.
    2(N-1) steps of a chunk each: a rank sends 2(N-1)/N of the bytes of the array.

    array: any shape, on all ranks the same; it is not changed.
    """
    total = array.flatten()  # a copy, (n,)
    chunks = np.array_split(total, comm.size)  # views: what a chunk gets, total gets
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for step in range(comm.size - 1):
        sent = chunks[(comm.rank - step) % comm.size]
        mine = chunks[(comm.rank - step - 1) % comm.size]
        received = np.empty_like(mine)
        comm.Sendrecv(sent, dest=after, recvbuf=received, source=before)
        mine += received
    for step in range(comm.size - 1):
        sent = chunks[(comm.rank + 1 - step) % comm.size]
        mine = chunks[(comm.rank - step) % comm.size]
        comm.Sendrecv(sent, dest=after, recvbuf=mine, source=before)
    return total.reshape(array.shape)


def recursive_doubling(comm, array: np.ndarray) -> np.ndarray:
    """Return the sum of the arrays of all ranks: exchange all bytes at distance 1, 2, 4, ...

    Let P be the largest power of two that is not above N. At distance d = 1, 2, 4, ... < P rank r
    and its partner, the rank whose number differs in that one bit (r ^ d), exchange what they have
    so far (`Sendrecv`), and both add. After log2 P steps all P ranks have the sum of all.
    If N is not a power of two, the ranks r >= P first send their array to rank r - P, which adds it
    before the exchange begins, and get the sum from there at the end: two steps more.

    array: any shape, on all ranks the same; it is not changed.
    """
    total = array.flatten()  # a copy, (n,)
    received = np.empty_like(total)
    power = 1 << (comm.size.bit_length() - 1)
    if comm.rank >= power:
        comm.Send(total, dest=comm.rank - power)
        comm.Recv(total, source=comm.rank - power)
        return total.reshape(array.shape)
    has_guest = comm.rank + power < comm.size
    if has_guest:
        comm.Recv(received, source=comm.rank + power)
        total += received
    distance = 1
    while distance < power:
        partner = comm.rank ^ distance
        comm.Sendrecv(total, dest=partner, recvbuf=received, source=partner)
        total += received
        distance *= 2
    if has_guest:
        comm.Send(total, dest=comm.rank + power)
    return total.reshape(array.shape)


def mpi(comm, array: np.ndarray) -> np.ndarray:
    """Return the sum of the arrays of all ranks, by MPI's own all-reduce."""
    total = np.empty_like(array)
    comm.Allreduce(np.ascontiguousarray(array), total)
    return total


BY_HAND: dict[str, AllReduce] = {
    "gather-broadcast": gather_broadcast,
    "ring": ring,
    "recursive doubling": recursive_doubling,
}
ALGORITHMS: dict[str, AllReduce] = {**BY_HAND, "MPI's own": mpi}
SIZES_BYTES = tuple(4**power for power in range(1, 12))  # 4 bytes to 4 MiB
WARM_UP = 3


def measure(
    comm,
    algorithms: Mapping[str, AllReduce] = ALGORITHMS,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    repeats: int = 15,
) -> dict[str, list[float]]:
    """Return the median time in seconds of each all-reduce (FP32) at each size.

    All ranks of the mpi4py communicator `comm` call it, and get the same answer. Each time starts
    after a barrier, and is that of the slowest rank. The algorithms take turns, so that what else
    the machine does in the meantime meets all of them. Raises ValueError for a size that is not a
    multiple of 4.
    """
    if any(size < 4 or size % 4 for size in sizes_bytes):
        raise ValueError(f"FP32 sizes are multiples of 4 bytes; saw {list(sizes_bytes)}.")
    times_s = np.empty((len(algorithms), len(sizes_bytes), WARM_UP + repeats))
    for s, size in enumerate(sizes_bytes):
        array = np.ones(size // 4, np.float32)
        for i in range(WARM_UP + repeats):
            for a, all_reduce in enumerate(algorithms.values()):
                comm.Barrier()
                start_s = time.perf_counter()
                all_reduce(comm, array)
                times_s[a, s, i] = time.perf_counter() - start_s
    slowest_s = np.empty_like(times_s)
    from mpi4py import MPI

    comm.Allreduce(times_s, slowest_s, op=MPI.MAX)
    medians_s = np.median(slowest_s[:, :, WARM_UP:], axis=2)
    return dict(zip(algorithms, medians_s.tolist(), strict=True))


def measured(comm, algorithms: Mapping[str, AllReduce] = ALGORITHMS, repeats: int = 15):
    """Return an `all_reduce_times.Measured`: the wire, and each of `algorithms` at each size.

    All ranks of the mpi4py communicator `comm` (2 or more) call it, and get the same times. What
    has a name of `BY_HAND` is compared with its theory.
    """
    from allhands.train.all_reduce_times import Measured, measure_wire, n_cores

    message_s, reduce_s_per_byte = measure_wire(comm, SIZES_BYTES, repeats)
    times_s = measure(comm, algorithms, repeats=repeats)
    return Measured(
        n_ranks=comm.size,
        n_cores=n_cores(),
        sizes_bytes=SIZES_BYTES,
        times_s={name: tuple(times) for name, times in times_s.items()},
        message_s=tuple(message_s),
        reduce_s_per_byte=reduce_s_per_byte,
        machine=platform.machine(),
        finished_at=time.strftime("%Y-%m-%dT%H:%M:%S"),
    )


def main() -> None:
    from mpi4py import MPI

    from allhands import launch
    from allhands.train.excepthook import end_job_on_error

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    end_job_on_error(comm)
    launch.expect_world(comm)
    found = measured(comm, repeats=options.repeats)
    if comm.rank == 0:
        found.save(options.out)
        print(found)


if __name__ == "__main__":
    main()
