"""What does an all-reduce cost on the link at hand? Measure it with the ranks of this job.

    mpiexec -n 2 python -m allhands.train.measure_link --out link.csv --keep runs/link.json

Each size is timed `--repeats` times after a barrier; the time of one all-reduce is that of its
slowest rank. Rank 0 writes the medians as CSV (bytes, seconds) and prints the fit; with `--keep` it
writes the fit as well (mgwfbp/own_link.py), and says how lab 4 finds it. The arrays are FP32 in
the memory of the CPU, so this is MPI's cost and not NCCL's.
"""

import argparse
import os
import shlex
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

from allhands import labs, launch
from allhands.mgwfbp import own_link
from allhands.mgwfbp.fit import Fit, fit
from allhands.mgwfbp.table import write_table

SIZES_BYTES = tuple(4**power for power in range(1, 12))  # 4 bytes to 4 MiB
WARM_UP = 3
LAB_4 = labs.COURSE.notebooks / own_link.KEPT  # where lab 4 looks


def time_all_reduces(
    comm: MPI.Comm,
    sizes_bytes: Sequence[int] = SIZES_BYTES,
    repeats: int = 15,
    pick: Callable[[np.ndarray], float] = np.median,
) -> list[float]:
    """Return the time of one all-reduce (sum, FP32) of each size, in seconds.

    pick: which of the `repeats` times counts. The median is what a training meets. The shortest,
    `np.min`, is that of the link alone: other programs can only make it longer.
    All ranks of `comm` call it, and get the same answer. Raises ValueError for a size that is not a
    multiple of 4.
    """
    if any(size < 4 or size % 4 for size in sizes_bytes):
        raise ValueError(f"FP32 sizes are multiples of 4 bytes; saw {list(sizes_bytes)}.")
    picked_s = []
    for size in sizes_bytes:
        sent, received = np.ones(size // 4, np.float32), np.empty(size // 4, np.float32)
        times_s = np.empty(repeats + WARM_UP)
        for i in range(repeats + WARM_UP):
            comm.Barrier()
            start_s = time.perf_counter()
            comm.Allreduce(sent, received)
            times_s[i] = time.perf_counter() - start_s
        comm.Allreduce(MPI.IN_PLACE, times_s, op=MPI.MAX)
        picked_s.append(float(pick(times_s[WARM_UP:])))
    return picked_s


def report(comm: MPI.Comm, times_s: Sequence[float], table: Path, keep: Path | None = None) -> None:
    """Rank 0 writes the table, prints it with its fit, and writes the fit to `keep`.

    All ranks call it. A table that no straight line fits is kept all the same, and said; then no
    fit is written.
    """
    hosts = comm.gather(socket.gethostname().partition(".")[0])
    if comm.rank != 0:
        return
    table.parent.mkdir(parents=True, exist_ok=True)
    write_table(table, SIZES_BYTES, times_s)
    for size, time_s in zip(SIZES_BYTES, times_s, strict=True):
        print(f"{size:10,} bytes {1e6 * time_s:10.1f} us")
    print(f"{comm.size} ranks: {_fit_in_words(times_s)}")
    print(f"table: {table}")
    if keep is not None and (found := _fit(times_s)):
        own_link.save(own_link.of(found, ranks=comm.size, hosts=tuple(hosts)), keep)
        print(f"line: {keep}")
        print(how_lab_4_finds(keep))


def how_lab_4_finds(keep: Path) -> str:
    """What to do with a kept line, in a sentence. Its paths begin in the folder of the process."""
    if keep.resolve() == LAB_4.resolve():
        return "Lab 4 reads this file."
    place = Path(os.path.relpath(LAB_4))
    folder, kept, there = (shlex.quote(str(path)) for path in (place.parent, keep, place))
    return f"Lab 4 reads {there}. To plan with this line: mkdir -p {folder} && cp {kept} {there}"


def in_short(what: str, times_s: Sequence[float]) -> str:
    """The start-up and the time of a byte of what took `times_s` for SIZES_BYTES, in a line."""
    found = _fit(times_s)
    if found is None:
        return f"{what}: no straight line fits its times"
    a_us, b_ns = 1e6 * found.cost.startup_s, 1e9 * found.cost.s_per_byte
    return f"{what}: a = {a_us:.1f} us, b = {b_ns:.3f} ns a byte"


def is_a_line(times_s: Sequence[float]) -> bool:
    """Does a straight line fit the times of SIZES_BYTES?"""
    return _fit(times_s) is not None


def _fit(times_s: Sequence[float]) -> Fit | None:
    try:
        return fit(SIZES_BYTES, times_s)
    except ValueError:
        return None


def _fit_in_words(times_s: Sequence[float]) -> str:
    try:
        return str(fit(SIZES_BYTES, times_s))
    except ValueError as error:  # a busy machine: the table is kept, and the reader is told
        return f"no straight line fits this table. {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("link.csv"))
    parser.add_argument("--keep", type=Path, help="write the fit there, as JSON")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    launch.expect_world(comm)
    times_s = time_all_reduces(comm, repeats=options.repeats)
    report(comm, times_s, options.out, options.keep)


if __name__ == "__main__":
    main()
