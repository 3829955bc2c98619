"""Shared memory, the disk that runs are written to, and the file system's clock."""

from pathlib import Path

from allhands.doctor.finding import Finding
from allhands.doctor.machine import OWNED_BY_RANKS, Folder, Machine, Segment
from allhands.doctor.probes.jobs import several_hosts

MIB, GIB = 2**20, 2**30
SHM = Path("/dev/shm")
# MPICH 5 ends with "Bus error" on less: measured, 1.01 MiB for two ranks and 4.04 MiB for four.
SHM_FOR_RANKS = 8 * MIB
SHM_FOR_MORE = 256 * MIB  # NCCL and PyTorch's loaders take tens of MiB a rank
LEFT_OVER = 64 * MIB
SLOW_S = 2.0  # to write 1 MiB
CLOCK_S = 2.0  # NFS tells times in whole seconds at worst


def shared_memory(machine: Machine) -> list[Finding]:
    """Ranks of one host talk through /dev/shm. Linux only."""
    if not machine.has_file(SHM):
        if machine.text("/proc/version"):
            advice = "Ranks of one host need it: mount -t tmpfs tmpfs /dev/shm (as root)."
            return [Finding("/dev/shm", "bad", "not there", advice, blocks="cpu")]
        return []
    folder, left = machine.folder(SHM), [one for one in machine.segments() if not one.mapped]
    if not folder.total_bytes and folder.error:
        advice = "Ranks of one host need it: does `ls /dev/shm` answer?"
        seen = f"could not be looked at: {folder.error}"
        return [Finding("/dev/shm", "bad", seen, advice, blocks="cpu")]
    seen = f"{folder.free_bytes / MIB:,.0f} MiB free of {folder.total_bytes / MIB:,.0f}"
    seen += f" ({folder.type})" if folder.type else ""
    n_bytes = sum(one.n_bytes for one in left)
    if left:
        seen += f"; {_n(len(left), 'file')} of ended jobs ({n_bytes / MIB:,.0f} MiB)"
    enlarge = "As root: mount -o remount,size=1g /dev/shm. In a container: --shm-size=1g"
    small = folder.free_bytes < SHM_FOR_RANKS
    if small or folder.error:
        seen += f": {folder.error}" if folder.error and not small else ""
        advice = _remove(left) if n_bytes >= SHM_FOR_RANKS else enlarge
        return [Finding("/dev/shm", "bad", seen, advice, blocks="cpu")]
    if folder.type not in ("tmpfs", ""):
        advice = "This is a disk, which is slow. As root: mount -t tmpfs tmpfs /dev/shm"
        return [Finding("/dev/shm", "warn", seen, advice)]
    if n_bytes >= LEFT_OVER:
        return [Finding("/dev/shm", "warn", seen, _remove(left))]
    if folder.free_bytes < SHM_FOR_MORE:
        return [Finding("/dev/shm", "warn", seen, f"NCCL and many ranks need more. {enlarge}")]
    return [Finding("/dev/shm", "good", seen)]


def _remove(left: list[Segment]) -> str:
    """The command that removes the files that ranks make, of those kinds that are left."""
    kinds = sorted({found[1] for one in left if (found := OWNED_BY_RANKS.fullmatch(one.name))})
    names = " -o ".join(f"-name '{kind}[-._]*'" for kind in kinds)
    return f"When no job of yours runs here: find {SHM} -user $(id -u) \\( {names} \\) -delete"


def scratch(machine: Machine) -> list[Finding]:
    """The folder that runs are written to: $ALLHANDS_SCRATCH, or else the one we are in."""
    path = _folder_of_runs(machine)
    if path is None:
        seen, advice = "the folder that you are in is gone", "Go into the project's folder: cd ..."
        return [Finding("scratch", "bad", seen, advice, blocks="simulated")]
    named = machine.environ.get("ALLHANDS_SCRATCH", "")
    other = "ALLHANDS_SCRATCH names it" if named else "Runs are written below this folder"
    other += ". Name a folder of your own: export ALLHANDS_SCRATCH=..."
    if named and not machine.has_file(path):
        seen, advice = f"{path} is not there", f"ALLHANDS_SCRATCH names it: mkdir -p {path}"
        return [Finding("scratch", "bad", seen, advice, blocks="simulated")]
    folder = machine.folder(path)
    free = folder.free_bytes
    seen = f"{free / GIB:.1f} GiB free in {path}" + (f" ({folder.type})" if folder.type else "")
    room = "Remove old runs (runs/), or use another disk: export ALLHANDS_SCRATCH=..."
    if folder.total_bytes and free < 0.1 * GIB:
        return [Finding("scratch", "bad", seen, room, blocks="simulated")]
    if folder.error:
        seen = f"cannot write in {path}: {folder.error}"
        return [Finding("scratch", "bad", seen, other, blocks="simulated")]
    if free < GIB:
        return [Finding("scratch", "warn", seen, room)]
    if folder.write_s > SLOW_S:
        seen += f"; 1 MiB took {folder.write_s:.1f} s to write"
        advice = "Checkpoints would take long. Is there a faster disk? export ALLHANDS_SCRATCH=..."
        return [Finding("scratch", "warn", seen, advice)]
    if several_hosts(machine) and _local(folder):
        advice = "The job has several hosts, and only this one sees the files: use a shared disk."
        return [Finding("scratch", "warn", seen, advice)]
    return [Finding("scratch", "good", seen)]


def _folder_of_runs(machine: Machine) -> Path | None:
    """Where runs are written; None if that is the folder that we are in, and it is gone."""
    named = machine.environ.get("ALLHANDS_SCRATCH", "")
    return Path(named) if named else machine.here()


def _local(folder: Folder) -> bool:
    """Whether a file system is surely one host's own."""
    return folder.type in ("ext3", "ext4", "xfs", "btrfs", "tmpfs", "overlay")


def clock(machine: Machine) -> list[Finding]:
    """The time that the file system gives a fresh file, against this host's time."""
    path = _folder_of_runs(machine)
    if path is None:
        return []  # `scratch` says so
    folder = machine.folder(path)
    if folder.error:
        return []  # and this too
    if abs(folder.ahead_s) > CLOCK_S:
        side = "ahead of" if folder.ahead_s > 0 else "behind"
        seen = f"the file system's clock is {abs(folder.ahead_s):.1f} s {side} this host's"
        advice = (
            "Newest-file rules (make, resuming) go wrong. Set the time (timedatectl set-ntp true), "
            "or use a disk of this host: export ALLHANDS_SCRATCH=..."
        )
        return [Finding("clock", "warn", seen, advice)]
    return [Finding("clock", "good", "this host and its file system agree")]


def _n(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' * (number != 1)}"
