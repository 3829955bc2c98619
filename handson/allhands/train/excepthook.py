"""What happens to a job when one rank raises? It ends, and no traceback is lost.

Without a hook the rank that raised waits at its end for the others (in MPI's Finalize), and the
others wait for it in a collective: the job hangs until its time limit. With a hook that aborts at
once, the abort comes before the other ranks have written what they have to say: a fault that all
ranks share then looks like a fault of one. So this hook waits a few seconds before it aborts.
"""

import sys
import time
import traceback
from types import TracebackType

WAIT_S = 3.0  # longer than ranks with the same fault are apart


def end_job_on_error(comm: object, wait_s: float = WAIT_S) -> None:
    """Set sys.excepthook: write the traceback with the rank, wait `wait_s`, and abort the job.

    comm: an mpi4py communicator, or a ChainerMN one (it has `mpi_comm`). The exit code is 1.
    Not covered, as no hook is called then: sys.exit, os._exit, and exceptions in other threads.
    """
    comm = getattr(comm, "mpi_comm", comm)
    rank, size = comm.Get_rank(), comm.Get_size()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        # One write: the ranks' lines must not mix where they share a terminal.
        sys.stderr.write(
            f"Rank {rank} of {size} raised {kind.__name__}; "
            f"the job will be aborted in {wait_s:g} s.\n{text}"
        )
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(wait_s)
        comm.Abort(1)

    sys.excepthook = hook
