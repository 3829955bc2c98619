"""How do ranks wait for each other without taking a core from those that still work?

MPI's own barrier looks without a pause. On a machine with more ranks than cores it slows down the
rank for which the others wait.
"""

import time

LOOK_S = 0.005


def nap_until_all_are_here(comm, look_s: float = LOOK_S) -> None:
    """A barrier that sleeps between two looks of `look_s` seconds. comm: of mpi4py."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(look_s)
