"""What can be seen of this machine and this Python? Only looking; `probes.py` judges.

Everything that a probe looks at goes through a `Machine`, so that a test can give it another.
"""

import contextlib
import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.0  # between the polite and the hard stop of a command that takes too long


@dataclass(frozen=True)
class Ran:
    """A command that was run. `code` is None if it was ended because its time was up."""

    code: int | None
    output: str  # stdout and stderr together

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return lines[-1] if lines else "no output"


class Machine:
    """The machine that this process runs on."""

    @property
    def python(self) -> tuple[int, int, int]:
        return sys.version_info[:3]

    @property
    def executable(self) -> Path:
        return Path(sys.executable)

    @property
    def environ(self) -> Mapping[str, str]:
        return os.environ

    def in_environment(self) -> bool:
        """True in a virtual environment, and in a conda environment."""
        return sys.prefix != sys.base_prefix or (Path(sys.prefix) / "conda-meta").is_dir()

    def has_file(self, path: Path) -> bool:
        return path.exists()

    def which(self, program: str) -> str | None:
        return shutil.which(program)

    def version(self, package: str) -> str | None:
        """The version of an installed package, or None."""
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return None

    def requirements(self) -> list[str] | None:
        """What the installed `allhands` requires (PEP 508 lines); None if it is not installed."""
        try:
            return importlib.metadata.requires("allhands") or []
        except importlib.metadata.PackageNotFoundError:
            return None

    def cores(self) -> int:
        """The cores that this process may use: affinity, and the quota of a container."""
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        quota, _, period = _read("/sys/fs/cgroup/cpu.max").partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            count = min(count, max(1, int(quota) // int(period)))
        return count or 1

    def memory_bytes(self) -> int:
        """The memory that programs can still take."""
        for line in _read("/proc/meminfo").splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
                break
        else:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = _read("/sys/fs/cgroup/memory.max").strip()
        used = _read("/sys/fs/cgroup/memory.current").strip()
        if limit.isdigit() and used.isdigit():
            free = min(free, int(limit) - int(used))
        return free

    def disk_bytes(self, folder: Path) -> int:
        """What is free on the disk of a folder."""
        return shutil.disk_usage(folder).free

    def can_write(self, folder: Path) -> bool:
        try:
            with tempfile.TemporaryFile(dir=folder):
                return True
        except OSError:
            return False

    def run(self, command: Sequence[str], time_limit_s: float) -> Ran:
        """Run a command. When its time is up, it and all that it started are ended."""
        # A file, not a pipe: a pipe stays open as long as any grandchild lives.
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                return Ran(127, str(error))
            try:
                code = process.wait(time_limit_s)
            except subprocess.TimeoutExpired:
                code = None
                _end(process)
            output.seek(0)
            return Ran(code, output.read().decode(errors="replace"))


def _end(process: subprocess.Popen) -> None:
    """End a process and all that it started: TERM, so that launchers clean up, then KILL.

    MPI launchers give their ranks sessions of their own. So the family is read from /proc; where
    there is none (macOS), the launcher must end its ranks itself.
    """
    family, more = set(), {key for key in _processes() if key[0] == process.pid}
    while more:
        family |= more
        parents = {pid for pid, _ in family}
        more = {key for key, parent in _processes().items() if parent in parents} - family
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        for pid, _ in family & set(_processes()) if number == signal.SIGKILL else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        end_s = time.monotonic() + GRACE_S
        while time.monotonic() < end_s:
            if process.poll() is not None and not family & set(_processes()):
                return
            time.sleep(0.02)


def _processes() -> dict[tuple[int, str], int]:
    """{(pid, start time): parent} of all that run; the start time tells reused pids apart."""
    table = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _read(folder / "stat").rpartition(")")[2].split()
        if fields and fields[0] != "Z":  # Z: ended, not yet collected by its parent
            table[int(folder.name), fields[19]] = int(fields[1])
    return table


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
