"""What belongs to one job? Its folder of records, its place in the environment, its processes.

A job is one start of N ranks. Four kinds of process take part, and they talk through files:

    the caller -> keeper.py -> mpiexec or torchrun -> rank.py (watches) -> rank.py (runs the script)

Files in the job's folder (times are those of `time.monotonic`, one clock for the whole machine):

    rank2.out, rank2.err    what the script of rank 2 wrote
    rank2.pid               JSON: the process that runs the script
    rank2.up                JSON: MPI has started, and its world has the right size; its files in
                            shared memory
    rank2.raised            JSON: an exception that nobody caught, or sys.exit(not 0): what, where;
                            written before any except hook runs
    rank2.over              JSON: the script is over; its process may still wait in MPI's Finalize
    rank2.ended             JSON: how that process ended
    rank2.stack             where it was when the time was up
    PID.world               JSON: a process that found another world than the one asked for
    launcher.out            what mpiexec or torchrun said itself
    keeper.ended            JSON: why the job ended, and when

A rank may write what it likes, for ever. Of a file of more than 2 KEPT_BYTES the middle is left out
when it is read; a job in which one file passes MOST_BYTES is ended, before the disk is full.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

JOB, FOLDER, RANKS = "ALLHANDS_LAUNCH", "ALLHANDS_LAUNCH_FOLDER", "ALLHANDS_LAUNCH_RANKS"
SCHEDULED_RANKS = "ALLHANDS_RANKS"  # how many a job script asked for: see cluster_jobs/lib/run.sh
# Where the launchers say which rank a process is, and of how many.
WORLDS = {
    "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "MPICH": ("PMI_RANK", "PMI_SIZE"),
    "torchrun": ("RANK", "WORLD_SIZE"),
}
PROC = Path("/proc")
# To a rank: write your stack. A signal that nobody uses, and that dumps no core; Windows has none.
ASK_WHERE = getattr(signal, "SIGVTALRM", None)
POLL_S = 0.02
KEPT_BYTES = 2**20  # of each end of an output, when it is read
MOST_BYTES = 200 * 2**20  # of one rank's stdout or stderr
KILL_S = 10.0  # a process that signal 9 has not ended by then hangs in the kernel


class LaunchError(RuntimeError):
    """Ranks could not be started, or did not end well. The text is one sentence for people."""


@dataclass(frozen=True)
class Job:
    """One start of ranks. id: found in the environment of each of its processes."""

    id: str
    folder: Path
    ranks: int

    @classmethod
    def of_this_process(cls) -> "Job":
        return cls(os.environ[JOB], Path(os.environ[FOLDER]), int(os.environ[RANKS]))

    def environ(self) -> dict[str, str]:
        return {JOB: self.id, FOLDER: str(self.folder), RANKS: str(self.ranks)}

    def write(self, name: str, **content: object) -> None:
        """Write a JSON record, stamped with the time. A reader sees all of it or none."""
        part = self.folder / f"{name}.part{os.getpid()}"
        part.write_text(json.dumps(content | {"at_s": time.monotonic()}), encoding="utf-8")
        part.replace(self.folder / name)

    def read(self, name: str) -> dict | None:
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def text(self, name: str) -> str:
        """What a file holds, "" if there is none; of a long one the first and last KEPT_BYTES.

        A line between the two says how much is left out.
        """
        try:
            with (self.folder / name).open("rb") as file:
                content = file.read(2 * KEPT_BYTES)
                n_bytes = file.seek(0, os.SEEK_END)
                if n_bytes > 2 * KEPT_BYTES:
                    file.seek(-KEPT_BYTES, os.SEEK_END)
                    content = _shortened(content[:KEPT_BYTES], file.read(KEPT_BYTES), n_bytes)
        except FileNotFoundError:
            return ""
        return content.decode(errors="replace").replace("\r\n", "\n")

    def processes(self, ancestor: int | None = None) -> set[int]:
        """The job's running processes: those with its id in their environment, and descendants.

        ancestor: the process whose descendants count. The id finds processes whose parent has died,
        the descent finds those that cleared their environment. The calling process and `ancestor`
        are left out. Without /proc (macOS) only the ranks themselves are known.
        """
        if not (PROC / "self/environ").exists():
            return {pid for pid in self._recorded() if _is_alive(pid)}
        mark = f"{JOB}={self.id}".encode()
        parents = _parents()
        found = {pid for pid in parents if mark in _bytes(PROC / f"{pid}/environ").split(b"\0")}
        return (found | descendants(ancestor, parents)) - {os.getpid(), ancestor}

    def end(self, ancestor: int | None = None) -> None:
        """Kill the job's processes, again and again: some may have been born meanwhile."""
        end_s = time.monotonic() + KILL_S
        while (left := self.processes(ancestor)) and time.monotonic() < end_s:
            kill(left, signal.SIGKILL)
            time.sleep(POLL_S)

    def _recorded(self) -> set[int]:
        return {self.read(path.name)["pid"] for path in self.folder.glob("rank*.pid")}


def descendants(ancestor: int | None, parents: Mapping[int, int] | None = None) -> set[int]:
    """The running processes that `ancestor` has started, and those that these have. Reads /proc.

    parents: the parent of each process, if known already.
    """
    parents = _parents() if parents is None else parents
    found, more = set(), {ancestor}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more}
        found |= more
    return found


def kill(pids: Collection[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def world(environ: Mapping[str, str]) -> tuple[str, int, int] | None:
    """(launcher, rank, size) as the launcher told this process; None if no launcher did."""
    for launcher, (rank, size) in WORLDS.items():
        if rank in environ and size in environ:
            return launcher, int(environ[rank]), int(environ[size])
    return None


def is_ours() -> bool:
    """True in a rank that `mpirun` or `torchrun` of this package started."""
    return JOB in os.environ


def place(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """(rank, size) of this process as its launcher or job script says; (0, 1) if none does.

    It is known before any MPI starts. What counts for work is the size of the communicator.
    """
    if seen := world(environ):
        return seen[1:]
    rank = environ.get("PMIX_RANK", environ.get("SLURM_PROCID", 0))
    return int(rank), int(environ.get(SCHEDULED_RANKS, 1))


def expect_world(comm: object) -> None:
    """Raise LaunchError if `comm` (with Get_size or size) has not the size that was asked for.

    Asked for by `mpirun` or `torchrun` of this package, or by a job script; does nothing in other
    processes. The trap: with an mpiexec of another MPI every process believes to be rank 0 of 1,
    and no error comes.
    """
    job = Job.of_this_process() if JOB in os.environ else None
    asked = job.ranks if job else int(os.environ.get(SCHEDULED_RANKS, 0))
    seen = comm.Get_size() if hasattr(comm, "Get_size") else comm.size
    if asked and seen != asked:
        if job:
            job.write(f"{os.getpid()}.world", size=seen)
        raise LaunchError(
            f"asked for {asked} ranks, but the world of this one has size {seen}: do the launcher "
            f"and mpi4py belong to one MPI?"
        )
    if job and (launched := world(os.environ)):
        _is_up(job, launched[1])


def _is_up(job: Job, rank: int) -> None:
    """Write down, once, that this rank is there, and its files in shared memory."""
    from allhands.launch import shared_memory

    if not (job.folder / f"rank{rank}.up").exists():
        job.write(f"rank{rank}.up", shared_memory=sorted(shared_memory.mapped()))


def _shortened(head: bytes, tail: bytes, n_bytes: int) -> bytes:
    """Both ends of a text of `n_bytes`, cut where a line ends, and a line between them."""
    head = head[: head.rfind(b"\n")] if b"\n" in head else head
    tail = tail[tail.find(b"\n", 0, -1) + 1 :]
    left_out = n_bytes - len(head) - len(tail)
    told = f"\n[{left_out:,} of {n_bytes:,} bytes are left out here]\n"
    return head + told.encode() + tail


def _parents() -> dict[int, int]:
    """{pid: its parent} of all processes that run."""
    table = {}
    for folder in PROC.glob("[0-9]*"):
        fields = _bytes(folder / "stat").rpartition(b")")[2].split()
        if fields and fields[0] != b"Z":  # Z: ended, not yet collected by its parent
            table[int(folder.name)] = int(fields[1])
    return table


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended, or it is another user's
        return b""


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
