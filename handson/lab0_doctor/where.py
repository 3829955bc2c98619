"""Who am I, and where? Each rank says a line. Change it, and run it again.

    python handson/lab0_doctor/where.py                      # no launcher: a world of one
    mpiexec -n 2 python handson/lab0_doctor/where.py         # two ranks of one world
    sbatch handson/lab0_doctor/hello.slurm                   # on two nodes

With `--fail 1` rank 1 says that it fails, and ends with exit code 7: what is that of the job?
"""

import argparse
import os
import socket
import sys

from mpi4py import MPI


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail", type=int, default=-1, metavar="RANK")
    asked = parser.parse_args()
    comm = MPI.COMM_WORLD
    host = socket.gethostname()
    hosts = comm.allgather(host)
    local_rank = hosts[: comm.rank].count(host)
    device = os.environ.get("CUDA_VISIBLE_DEVICES", "none given")
    me = f"rank {comm.rank} of {comm.size} on {host}: local rank {local_rank}, GPU {device}"
    lines = comm.gather(me)
    if comm.rank == 0:  # one rank prints for all, so lines do not mix
        print("\n".join(lines), flush=True)
    if comm.rank == asked.fail:
        print(f"rank {comm.rank} on {host} fails: exit code 7", file=sys.stderr, flush=True)
        sys.exit(7)


if __name__ == "__main__":
    main()
