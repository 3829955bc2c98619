"""How do several ranks begin one job, and end it together whatever happens?

An error that one rank meets alone leaves the others waiting in their next collective. So what may
go wrong for one rank is done in a block of `together`, after which all ranks know of it. What
nobody foresaw ends the job: a sentence through `end`, all else through the hook of `excepthook`.
"""

import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from allhands import config as configs
from allhands import launch
from allhands.config import TrainConfig
from allhands.train import parallel
from allhands.train.alone import ALONE
from allhands.train.excepthook import WAIT_S, end_job_on_error
from allhands.train.stop import EXIT_STOPPED

EXIT_WRONG_USE, EXIT_INTERRUPTED = 2, 130
EXITS = {EXIT_WRONG_USE, EXIT_STOPPED, EXIT_INTERRUPTED}  # said why already

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # they ask a run to save and stop


class AllRefuse(ValueError):
    """An error that all ranks raise together, so that each may simply end. The text is rank 0's."""


def join(config: TrainConfig, started: int = 1):
    """Return the config with its number of ranks, and the communicator of all that were started.

    A run on one rank needs no MPI and gets ALONE; `started`: how many ranks the launcher says there
    are. From here on a rank that raises ends the job.

    Raises ValueError if this machine has not the communicator, or if the config is a run on another
    number of ranks; LaunchError if the ranks that were started did not find each other.
    """
    if config.ranks == 1:
        return configs.on_ranks(config, started), ALONE
    comm = parallel.communicator_of(config)
    launch.expect_world(comm.mpi_comm)
    config = configs.on_ranks(config, comm.size)
    end_job_on_error(comm)
    return config, comm


@contextmanager
def together(comm) -> Iterator[None]:
    """Run the block on every rank; if one of them meets an error that people can mend, all raise.

    All ranks of `comm` must come here, and none may communicate in the block. Of ValueError and
    OSError becomes AllRefuse, with the text of the first rank that met one.
    """
    if comm is ALONE:
        yield
        return
    text = None
    try:
        yield
    except (ValueError, OSError) as error:
        text = str(error)
    met = [(rank, text) for rank, text in enumerate(parallel.of_all(text, comm)) if text]
    if met:
        rank, text = met[0]
        where = "" if rank == 0 else f" (rank {rank})"
        raise AllRefuse(text + where)


def on_this_machine(arguments: Sequence[str], ranks: int) -> int:
    """Run `allhands` with these arguments on `ranks` ranks of this machine; return the exit code.

    The ranks' lines are printed as they come, each with its rank. Signals that ask a run to save
    and stop are passed on, and the exit code is the one that the ranks ended with. If a rank failed
    by itself, it is named, and the code is 1.
    """
    try:
        launch.mpirun(
            "allhands.cli",
            *arguments,
            ranks=ranks,
            time_limit_s=math.inf,
            echo=True,
            pass_on=PASSED_ON,
        )
    except launch.RanksFailed as error:
        codes = {error.finished.returncodes[rank] for rank in error.culprits}
        if len(codes) == 1 and codes <= EXITS:
            return codes.pop()
        hint = "If the run has a snapshot, --resume goes on from it."
        sys.stderr.write(f"allhands: {error}. {hint}\n")
        return 1
    return 0


@contextmanager
def nobody_waits(comm, wait_s: float = WAIT_S) -> Iterator[None]:
    """Within the block, an error that a rank meets alone ends the job, with a sentence.

    AllRefuse and FloatingPointError come on all ranks, and pass; so does everything on one rank. A
    second Ctrl-C ends at once. What is left goes to the hook of `excepthook`.
    """
    try:
        yield
    except AllRefuse:
        raise
    except KeyboardInterrupt:
        if comm is not ALONE:
            end(comm, "interrupted", EXIT_INTERRUPTED, wait_s=0.0)
        raise
    except (ValueError, OSError, MemoryError) as error:
        if comm is not ALONE:
            end(comm, str(error) or type(error).__name__, EXIT_WRONG_USE, wait_s)
        raise


def end(comm, text: str, code: int, wait_s: float = WAIT_S) -> None:
    """End the job of all ranks with `code`: this one met an error that the others do not know of.

    It says `text` first, and waits, so that ranks with the same error can say theirs.
    """
    sys.stderr.write(f"allhands: rank {comm.rank}: {text}\n")
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(wait_s)
    comm.mpi_comm.Abort(code)
