"""What can be seen of this machine and this Python? Only looking; the probes judge.

Everything that a probe looks at goes through a `Machine`, so that a test can give it another. What
may take for ever (a file system or a name server that is gone) is looked at in another process.
"""

import contextlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands.doctor import ran
from allhands.doctor.ran import Ran

__all__ = ["Folder", "Interface", "Machine", "Network", "Ran", "Segment"]

LOOK_S = 8.0  # for a file system or a name server to answer
UNLIMITED = 2**62  # a limit beyond this is none
# The limit and the use of a control group, and the word for files that are only kept at hand.
GROUP_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
GROUP_2 = ("memory.max", "memory.current", "inactive_file")
OWNED_BY_RANKS = re.compile(r"(mpich_shm|sm_segment|vader_segment|nccl|torch)[-._].*")


@dataclass(frozen=True)
class Folder:
    """What came of writing 1 MiB into a folder. error: why not, in the system's words; or empty."""

    type: str = ""  # of the file system: ext4, tmpfs, nfs4, lustre; empty if not known
    total_bytes: int = 0
    free_bytes: int = 0
    write_s: float = 0.0
    ahead_s: float = 0.0  # the file system's clock against this host's; 0 if they agree
    error: str = ""


@dataclass(frozen=True)
class Interface:
    name: str
    up: bool = True
    loopback: bool = False
    address: str = ""  # IPv4, or empty
    mbit_s: int = -1  # -1: it does not say
    infiniband: bool = False


@dataclass(frozen=True)
class Network:
    """What this host knows of itself. Errors are the system's words; None or empty if all is well.

    addresses: those that its own name has; bindable: those of them that are its own.
    ports_error: two free ports of the loopback at once; range_free: how many of a range are free.
    """

    name: str = ""
    interfaces: tuple[Interface, ...] = ()
    addresses: tuple[str, ...] = ()
    bindable: tuple[str, ...] = ()
    name_error: str = ""
    loopback_error: str | None = None
    ports_error: str | None = None
    range_free: int | None = None
    error: str = ""  # nothing of all this could be seen


@dataclass(frozen=True)
class Segment:
    """A file of ranks in shared memory that is this user's; mapped: a process still uses it."""

    name: str
    n_bytes: int
    mapped: bool


class Machine:
    """The machine that this process runs on."""

    # ---- this Python ----

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

    def version(self, package: str) -> str | None:
        """The version of an installed package, or None."""
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(package)
        return None

    def package_text(self, package: str, file: str) -> str:
        """The text of a file of an installed package, or an empty text."""
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found = importlib.metadata.distribution(package)
            return self.text(Path(str(found.locate_file(file))))
        return ""

    def requirements(self) -> list[str] | None:
        """What the installed `allhands` requires (PEP 508 lines); None if it is not installed."""
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.requires("allhands") or []
        return None

    # ---- files and programs ----

    def has_file(self, path: Path) -> bool:
        return path.exists()

    def text(self, path: str | Path) -> str:
        """The text of a small local file (/proc, /sys, ...); empty if it cannot be read."""
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return ""

    def here(self) -> Path | None:
        """The folder that this process is in; None if somebody has removed it."""
        try:
            return Path.cwd()
        except FileNotFoundError:
            return None

    def which(self, program: str) -> str | None:
        return shutil.which(program)

    def run(
        self,
        command: Sequence[str],
        time_limit_s: float,
        environ: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run a command, with more environment if given. Its time is up: its family is ended."""
        return ran.run(command, time_limit_s, {**self.environ, **environ} if environ else None)

    # ---- the host ----

    def system(self) -> str:
        """The operating system in a line."""
        release = re.search(r'^PRETTY_NAME="?([^"\n]+)', self.text("/etc/os-release"), re.MULTILINE)
        name = release[1] if release else platform.system()
        return f"{name}, kernel {platform.release()}, {platform.machine()}"

    def cores(self) -> int:
        """The cores that this process may use: affinity, and the quota of a container."""
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        quota, _, period = self.text("/sys/fs/cgroup/cpu.max").partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            count = min(count, max(1, int(quota) // int(period)))
        return count or 1

    def memory_bytes(self) -> int:
        """The memory that programs can still take: the host's, and that of each control group.

        A group's figure of use counts files that the kernel only keeps at hand (the page cache) and
        gives up when memory is asked for; the inactive ones are not counted here.
        """
        found = re.search(r"^MemAvailable:\s+(\d+) kB", self.text("/proc/meminfo"), re.MULTILINE)
        if found:
            free = int(found[1]) * 1024
        else:
            free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for folder in self._memory_groups():
            version_1 = folder.parts[:5] == ("/", "sys", "fs", "cgroup", "memory")
            names = GROUP_1 if version_1 else GROUP_2
            limit, used = (self.text(folder / name).strip() for name in names[:2])
            if limit.isdigit() and used.isdigit() and int(limit) < UNLIMITED:
                cache = re.search(rf"^{names[2]} (\d+)", self.text(folder / "memory.stat"), re.M)
                free = min(free, int(limit) - int(used) + (int(cache[1]) if cache else 0))
        return max(0, free)

    def _memory_groups(self) -> list[Path]:
        """The folders of this process' control groups for memory, and of those around them."""
        folders = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")]
        for line in self.text("/proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "memory" in controllers.split(","):
                root = folders[bool(controllers)]
                inner = root / path.lstrip("/")
                folders += [one for one in (inner, *inner.parents) if root in one.parents]
        return folders

    def limit(self, name: str) -> tuple[int | None, int | None]:
        """The soft and the hard limit "nofile", "nproc" or "memlock"; None: there is none."""
        try:
            import resource  # not on Windows
        except ImportError:
            return None, None
        soft, hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper()))
        unlimited = resource.RLIM_INFINITY
        return None if soft == unlimited else soft, None if hard == unlimited else hard

    # ---- what may take for ever ----

    def folder(self, path: Path) -> Folder:
        """Write a little into a folder."""
        seen = self._look("look_folder.py", str(path))
        return Folder(error=seen) if isinstance(seen, str) else Folder(**seen)

    def network(self, low: int | None = None, high: int | None = None) -> Network:
        """What this host knows of itself; low, high: a range of ports to look at too."""
        ports = [] if low is None or high is None else [str(low), str(high)]
        seen = self._look("look_network.py", *ports)
        if isinstance(seen, str):
            return Network(error=seen)
        interfaces = tuple(Interface(**one) for one in seen.pop("interfaces"))
        lists = {name: tuple(seen.pop(name)) for name in ("addresses", "bindable")}
        return Network(interfaces=interfaces, **lists, **seen)

    def _look(self, program: str, *arguments: str) -> dict | str:
        """What a looking program prints; or, in words, why it did not."""
        path = str(Path(__file__).with_name(program))
        found = self.run([str(self.executable), "-I", "-S", path, *arguments], LOOK_S)
        if found.code is None:
            return f"no answer after {LOOK_S:.0f} s"
        try:
            return json.loads(found.last_line)
        except ValueError:
            return found.last_line

    # ---- shared memory ----

    def segments(self, folder: str = "/dev/shm") -> list[Segment]:
        """The files of ranks (MPI, NCCL, PyTorch) in shared memory that are this user's."""
        mine = {}
        for path in Path(folder).glob("*"):
            with contextlib.suppress(OSError):
                if OWNED_BY_RANKS.fullmatch(path.name) and path.stat().st_uid == os.geteuid():
                    mine[str(path)] = path.stat().st_size
        in_use: set[str] = set()
        for process in Path("/proc").glob("[0-9]*") if mine else ():
            maps = self.text(process / "maps")
            in_use.update(path for path in mine if path in maps)
        return [Segment(Path(path).name, size, path in in_use) for path, size in mine.items()]
