"""Which rank is this, on which host, and who started it? Each rank says a line.

    mpiexec -n 2 python -m allhands.train.rank_place

A rank has two numbers: `rank` counts through the whole job, `local rank` within its host. Devices
are numbered within a host, so a rank's GPU is chosen by its local rank.
"""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from mpi4py import MPI

from allhands import launch
from allhands.launch.job import world


def local_rank(comm, host: str) -> int:
    """How many ranks with a smaller number are on the same host as this rank.

    `host` is the name of this rank's host. Every rank calls it: `comm.allgather(host)` is the list
    of the names of all ranks, that of rank 0 first. Ranks may lie on the hosts in any order.
    """
    hosts = comm.allgather(host)
    return hosts[: comm.rank].count(host)


@dataclass(frozen=True)
class Place:
    """Where a rank runs. cores: those that it may use; gpus: as its job says, "" if it says none.

    launcher: "MPICH", "Open MPI", or "" for a process that no launcher started.
    """

    rank: int
    size: int
    host: str
    local_rank: int
    cores: int
    gpus: str
    launcher: str

    def __str__(self) -> str:
        return (
            f"rank {self.rank} of {self.size} on {self.host}: local rank {self.local_rank}, "
            f"{self.cores} core{'s' if self.cores > 1 else ''}, "
            f"{f'GPU {self.gpus}' if self.gpus else 'no GPU given'}, "
            f"{f'started by {self.launcher}' if self.launcher else 'started by no launcher'}"
        )


def place(comm, environ: Mapping[str, str] = os.environ) -> Place:
    """Where this rank of `comm` runs. Every rank calls it."""
    host = socket.gethostname().partition(".")[0]
    seen = world(environ)
    return Place(
        rank=comm.rank,
        size=comm.size,
        host=host,
        local_rank=local_rank(comm, host),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        gpus=environ.get("CUDA_VISIBLE_DEVICES", ""),
        launcher=seen[0] if seen else "",
    )


def main() -> None:
    comm = MPI.COMM_WORLD
    launch.expect_world(comm)
    print(f"{place(comm)}\n", end="", flush=True)  # at once: lines of two ranks must not mix


if __name__ == "__main__":
    main()
