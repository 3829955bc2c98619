"""Which files in shared memory belong to a job's ranks, and who removes them if the job is killed?

Ranks of one machine talk through files in /dev/shm that they map: `mpich_shm_*` of MPICH,
`sm_segment.*` (5.x) and `vader_segment.*` (4.x) of Open MPI. MPI removes them in its Finalize,
which a rank that is killed never reaches. So a rank writes down its files as soon as MPI has
started, the keeper asks all that still run once more before it ends them, and what is left then is
removed.
Linux only: elsewhere nothing is found.

Not known: a file that MPI made after its start, if all ranks that mapped it died before the keeper
could ask.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from allhands.launch.job import PROC, Job

FOLDER = "/dev/shm"
OWNED_BY_MPI = re.compile(r"(mpich_shm|sm_segment|vader_segment)[._].*")


def mapped(process: int | str = "self") -> set[str]:
    """The files of MPI in shared memory that a process maps; none if it cannot be asked."""
    try:
        text = (PROC / str(process) / "maps").read_bytes().decode(errors="replace")
    except OSError:  # it has ended, or it is another user's
        return set()
    # address, rights, offset, device, inode, path; a file that was removed ends in " (deleted)"
    paths = {line.split(maxsplit=5)[-1] for line in text.splitlines() if FOLDER in line}
    return {
        path
        for path in paths
        if os.path.dirname(path) == FOLDER
        and OWNED_BY_MPI.fullmatch(os.path.basename(path))
        and not path.endswith(" (deleted)")
    }


def of_job(job: Job, ancestor: int | None = None) -> set[str]:
    """Those that the ranks wrote down when MPI had started, and those of what runs now."""
    noted = [job.read(path.name) for path in job.folder.glob("rank*.up")]
    found = {path for record in noted for path in record["shared_memory"]}
    return found.union(*map(mapped, job.processes(ancestor)))


def remove(paths: Iterable[str]) -> None:
    """Remove these files, where they are this user's and no process that runs maps them."""
    left = {path for path in paths if _is_mine(path)}
    if left:
        left -= set().union(*(mapped(folder.name) for folder in PROC.glob("[0-9]*")))
    for path in left:
        Path(path).unlink(missing_ok=True)


def _is_mine(path: str) -> bool:
    try:
        return os.stat(path).st_uid == os.geteuid()
    except OSError:  # MPI has removed it itself
        return False
