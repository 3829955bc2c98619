"""What does an all-reduce cost on the link at hand? Measure it with the ranks of this job.

    mpiexec -n 2 python -m allhands.train.measure_link --out link.csv

Each size is timed `--repeats` times after a barrier; the time of one all-reduce is that of its
slowest rank. Rank 0 writes the medians as CSV (bytes, seconds) and prints the fit. The arrays are
FP32 in the memory of the CPU, so this is MPI's cost and not NCCL's.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

from allhands import launch
from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.table import write_table

SIZES_BYTES = tuple(4**power for power in range(1, 12))  # 4 bytes to 4 MiB
WARM_UP = 3


def time_all_reduces(
    comm: MPI.Comm, sizes_bytes: Sequence[int] = SIZES_BYTES, repeats: int = 15
) -> list[float]:
    """Return the median time of one all-reduce (sum, FP32) of each size, in seconds.

    All ranks of `comm` call it, and get the same answer. Raises ValueError for a size that is not a
    multiple of 4.
    """
    if any(size < 4 or size % 4 for size in sizes_bytes):
        raise ValueError(f"FP32 sizes are multiples of 4 bytes; saw {list(sizes_bytes)}.")
    medians_s = []
    for size in sizes_bytes:
        sent, received = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        times_s = np.empty(repeats + WARM_UP)
        for i in range(repeats + WARM_UP):
            comm.Barrier()
            start_s = time.perf_counter()
            comm.Allreduce(sent, received)
            times_s[i] = time.perf_counter() - start_s
        comm.Allreduce(MPI.IN_PLACE, times_s, op=MPI.MAX)
        medians_s.append(float(np.median(times_s[WARM_UP:])))
    return medians_s


def _fit_in_words(times_s: Sequence[float]) -> str:
    try:
        return str(fit(SIZES_BYTES, times_s))
    except ValueError as error:  # a busy machine: the table is kept, and the reader is told
        return f"no straight line fits this table. {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("link.csv"))
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    launch.expect_world(comm)
    times_s = time_all_reduces(comm, repeats=options.repeats)
    if comm.rank == 0:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_table(options.out, SIZES_BYTES, times_s)
        for size, time_s in zip(SIZES_BYTES, times_s, strict=True):
            print(f"{size:10,} bytes {1e6 * time_s:10.1f} us")
        print(f"{comm.size} ranks: {_fit_in_words(times_s)}")
        print(f"table: {options.out}")


if __name__ == "__main__":
    main()
