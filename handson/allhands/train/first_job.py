"""The first job: each rank says where it runs, then ranks measure what an all-reduce costs.

    cluster_jobs/submit lab0_doctor                                       two nodes of a cluster
    mpiexec -n 2 python -m allhands.train.first_job --out runs/first      here

It leaves four files in the folder:

    places.txt     a line a rank: rank, host, local rank, cores, GPU, launcher
    message.csv    bytes and seconds of one message between ranks 0 and 1
    link.csv       bytes and seconds of one all-reduce of all ranks
    link.json      the line that was fitted to link.csv: for lab 4, in notebooks/runs

In the end rank 0 prints the line of a message and that of an all-reduce, to compare them.

Of all repeats the shortest counts. The machine does other things too, and they can only make it
longer. If no straight line fits what a busy machine has measured, the all-reduce is measured again.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from mpi4py import MPI

from allhands import launch
from allhands.mgwfbp.table import write_table
from allhands.train import measure_link
from allhands.train.excepthook import end_job_on_error
from allhands.train.ping_pong import message_s
from allhands.train.rank_place import place
from allhands.train.waiting import nap_until_all_are_here

IDLE_S = 1e-3
TRIES = 3  # to measure all-reduces that a line fits


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m allhands.train.first_job")
    parser.add_argument("--out", type=Path, default=Path("runs") / "first")
    parser.add_argument("--repeats", type=int, default=25)
    asked = parser.parse_args(arguments)
    comm = MPI.COMM_WORLD
    launch.expect_world(comm)
    end_job_on_error(comm)
    places = comm.gather(place(comm))
    if comm.rank == 0:
        asked.out.mkdir(parents=True, exist_ok=True)
        said = "".join(f"{one}\n" for one in places)
        (asked.out / "places.txt").write_text(said, encoding="utf-8")
        print(said, end="", flush=True)
    if comm.size == 1:
        print("One rank has nobody to send to, so no link was measured: ask for 2 ranks.")
        return
    sizes = measure_link.SIZES_BYTES
    if comm.rank < 2:
        messages_s = [message_s(comm, size, asked.repeats, time.perf_counter) for size in sizes]
    nap_until_all_are_here(comm, IDLE_S)
    if comm.rank == 0:
        write_table(asked.out / "message.csv", sizes, messages_s)
    for _ in range(TRIES):
        times_s = measure_link.time_all_reduces(comm, repeats=asked.repeats, pick=np.min)
        if comm.bcast(measure_link.is_a_line(times_s)):
            break
    measure_link.report(comm, times_s, asked.out / "link.csv", asked.out / "link.json")
    if comm.rank == 0:
        print(measure_link.in_short("one message, ranks 0 and 1", messages_s))
        print(measure_link.in_short(f"one all-reduce, {comm.size} ranks", times_s))


if __name__ == "__main__":
    main()
