"""A job to break: four ranks add up numbers. Change the fault and the ending, and count.

    mpiexec -n 4 -prepend-rank python handson/bug1_errorcount/my_job.py 2>&1 | tee job.log
    python handson/bug1_errorcount/count_errors.py job.log
    allhands triage job.log

-prepend-rank is MPICH's; Open MPI has --tag-output, srun has -l.
"""

import sys
import time

from mpi4py import MPI

from allhands.train.excepthook import end_job_on_error

SPREAD_S = 0.2  # between two ranks' arrivals
WAIT_S = None  # None: Python's own way. 0: abort at once. 3: wait three seconds, then abort.

comm = MPI.COMM_WORLD
if WAIT_S is not None:
    end_job_on_error(comm, wait_s=WAIT_S)


def total(numbers):
    return comm.allreduce(sum(numbers))


print(f"rank {comm.rank} of {comm.size} begins", file=sys.stderr)
time.sleep(SPREAD_S * comm.rank)
mine = list(range(100))[comm.rank :: comm.size]
mine[0] = str(mine[0])  # the fault: on all ranks. On one: put `if comm.rank == 2:` before it.
print(total(mine))
