"""A program that hangs on two ranks, to look into. Change it, and look again.

    mpiexec -n 2 python handson/bug2_singlegpu/hang.py        # it prints the two process numbers
    py-spy dump --pid PID                                     # in another terminal

After 10 s each rank writes its stack to the folder `runs/hang`; the last call of each rank is there
too (`last_seen.read("runs/hang")`). End it with Ctrl-C.
"""

import os

from mpi4py import MPI

from allhands.train import last_seen

FOLDER = "runs/hang"  # git does not see what is in runs


def evaluate(comm):
    """The mean loss of all ranks."""
    return comm.allreduce(1.0 + comm.rank) / comm.size


def main() -> None:
    comm = last_seen.Noted(MPI.COMM_WORLD, FOLDER)
    last_seen.dump_stack_after(10, FOLDER, comm.rank)
    print(f"rank {comm.rank} is process {os.getpid()}", flush=True)
    for epoch in range(3):
        comm.barrier()
        if comm.rank == 0 and epoch == 2:  # the fault: who calls evaluate?
            print(f"loss {evaluate(comm):.2f}", flush=True)


if __name__ == "__main__":
    main()
