"""What can be seen of the site from this login node? Only looking; nothing is submitted.

Every look goes through a `Node`, so that a test can give it another. What cannot be seen is empty,
never an error: the questions then have no default.
"""

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ASK_LIMIT_S = 10
SUBMITS = {"slurm": "sbatch", "pjm": "pjsub", "pbs": "qsub", "sge": "qsub"}
FAST = re.compile(r"(ib|hsn|opa|bond)\w*\d")  # InfiniBand, Slingshot, Omni-Path, bundles
NOT_A_NETWORK = re.compile(
    r"lo$|docker|veth|virbr|br-|tap|tun|cni|flannel|dummy|sit|ip6|tunl|gre|erspan"
)
USEFUL_MODULES = re.compile(
    r"(cuda|nccl|cudnn|hpcx|openmpi|ompi|mpich|impi|intel-?mpi|mpi)\b", re.I
)


# Names that a site file could have anywhere: "(null)" is Slurm's own, the rest stand in domains.
SAYS_NOTHING = {"null", "cluster", "linux", "localhost", "localdomain", "local", "internal", "lan"}
SAYS_NOTHING |= {"home", "login", "head", "front", "ac", "co", "edu", "go", "or", "ne", "site"}


class Node:
    """This login node."""

    environ: Mapping[str, str] = os.environ

    def which(self, program: str) -> bool:
        return shutil.which(program) is not None

    def ask(self, *words: str) -> str:
        """What a command prints on stdout and stderr; "" if it is not here, fails or takes long."""
        try:
            ran = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=ASK_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return ran.stdout.decode(errors="replace") if ran.returncode == 0 else ""

    def interfaces(self) -> tuple[str, ...]:
        folder = Path("/sys/class/net")
        return tuple(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ()

    def can_write(self, folder: str) -> bool:
        return os.path.isdir(folder) and os.access(folder, os.W_OK)

    def has_package(self, name: str) -> bool:
        try:
            return bool(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            return False


@dataclass(frozen=True)
class Queue:
    """A queue or partition. time: HH:MM:SS, nodes and gpus (of a node); empty, 0: not known."""

    name: str
    time: str = ""
    nodes: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class Seen:
    """What this login node shows of its site."""

    scheduler: str = "none"
    name: str = ""  # a short one, for the file
    queues: Mapping[str, Queue] = field(default_factory=dict)
    default_queue: str = ""
    accounts: tuple[str, ...] = ()  # this user's, as the site's own command lists them
    mpi_types: tuple[str, ...] = ()  # of srun --mpi=
    mpi: str = ""  # "mpich" | "openmpi": the MPI of this environment
    modules: tuple[str, ...] = ()  # those that may be useful
    interfaces: tuple[str, ...] = ()
    scratch: str = ""
    conda: str = ""  # the active conda environment

    @property
    def fast_interface(self) -> str:
        return next((name for name in self.interfaces if FAST.match(name)), "")


def look(node: Node | None = None) -> Seen:
    """Look around on this node. Takes some seconds where a scheduler answers slowly."""
    node = node or Node()
    scheduler = scheduler_of(node)
    queues, default_queue = QUEUES[scheduler](node)
    packages = [name for name in ("mpich", "openmpi") if node.has_package(name)]
    return Seen(
        scheduler=scheduler,
        name=name_of_site(node, scheduler),
        queues={queue.name: queue for queue in queues},
        default_queue=default_queue,
        mpi_types=mpi_types(node) if scheduler == "slurm" else (),
        mpi=packages[0] if packages else "",
        modules=useful_modules(node),
        interfaces=tuple(n for n in node.interfaces() if not NOT_A_NETWORK.match(n)),
        scratch=node.environ.get("SCRATCH", ""),
        conda=node.environ.get("CONDA_PREFIX", ""),
    )


def scheduler_of(node: Node) -> str:
    """slurm, pjm, sge, pbs or none. Two have a qsub: Grid Engine has qconf too."""
    if node.which("sbatch") and node.ask("sinfo", "--version"):
        return "slurm"
    if node.which("pjsub"):
        return "pjm"
    if node.which("qsub"):
        return "sge" if node.which("qconf") else "pbs"
    return "none"


def name_of_site(node: Node, scheduler: str) -> str:
    """A short name, fit for a file: Slurm's cluster, else the first part of the host's domain that
    says something, else the host without its number; "" if none is left."""
    cluster = None
    if scheduler == "slurm":
        config = node.ask("scontrol", "show", "config")
        cluster = re.search(r"^ClusterName\s*=\s*(\S+)", config, re.MULTILINE)
    host, *domain = (node.ask("hostname", "-f") or node.ask("hostname")).strip().split(".")
    names = [cluster[1]] if cluster else []
    names += domain[:-1]  # its last part is a country, or `com`
    names += [re.sub(r"\d+$", "", host)]
    fit = (re.sub(r"[^a-z0-9_-]", "", name.lower()).strip("-_") for name in names)
    return next((name for name in fit if len(name) > 1 and name not in SAYS_NOTHING), "")


def slurm_queues(node: Node) -> tuple[list[Queue], str]:
    """(partitions, the default one): a line NAME*|LIMIT|NODES|GRES for each kind of nodes."""
    found: dict[str, Queue] = {}
    default = ""
    for line in node.ask("sinfo", "-a", "-h", "-o", "%P|%l|%D|%G").splitlines():
        words = line.strip().split("|")
        if len(words) != 4 or not words[2].isdigit():
            continue
        name = words[0].rstrip("*")
        default = name if words[0].endswith("*") else default
        gpus = sum(int(n) for n in re.findall(r"\bgpu(?::[^:,(]+)?:(\d+)", words[3]))
        before = found.get(name, Queue(name))
        found[name] = Queue(
            name, slurm_time(words[1]), before.nodes + int(words[2]), max(before.gpus, gpus)
        )
    return list(found.values()), default


def slurm_time(text: str) -> str:
    """Slurm's D-HH:MM:SS or MM:SS as HH:MM:SS; "" for `infinite`."""
    parts = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not parts:
        return ""
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return f"{24 * days + hours:02d}:{minutes:02d}:{seconds:02d}"


def accounts(node: Node, command: str) -> tuple[str, ...]:
    """What the command lists, as a site file's ALLHANDS_ACCOUNTS has it; () for none."""
    words = shlex.split(command)
    listed = node.ask(*words).split() if words else []
    return tuple(dict.fromkeys(word for word in listed if re.fullmatch(r"[\w.@-]+", word)))


def mpi_types(node: Node) -> tuple[str, ...]:
    words = node.ask("srun", "--mpi=list").split()
    return tuple(word for word in words if re.fullmatch(r"pmi\w*|cray_shasta|none", word))


def pbs_queues(node: Node) -> tuple[list[Queue], str]:
    """(queues with their longest time, the server's default one)."""
    gpus = [
        int(n)
        for n in re.findall(r"resources_available\.ngpus = (\d+)", node.ask("pbsnodes", "-a"))
    ]
    queues = []
    for block in re.split(r"^Queue: ", node.ask("qstat", "-Q", "-f"), flags=re.MULTILINE)[1:]:
        time = re.search(r"resources_max\.walltime = (\d+:\d\d:\d\d)", block)
        nodes = re.search(r"resources_max\.(?:nodect|nodes) = (\d+)", block)
        queues.append(
            Queue(
                block.split()[0],
                time[1] if time else "",
                int(nodes[1]) if nodes else 0,
                max(gpus, default=0),
            )
        )
    default = re.search(r"default_queue = (\S+)", node.ask("qstat", "-B", "-f"))
    return queues, default[1] if default else ""


def sge_queues(node: Node) -> tuple[list[Queue], str]:
    return [Queue(name) for name in node.ask("qconf", "-sql").split()], ""


QUEUES = {
    "slurm": slurm_queues,
    "pbs": pbs_queues,
    "sge": sge_queues,
    "pjm": lambda node: ([], ""),
    "none": lambda node: ([], ""),
}


def useful_modules(node: Node) -> tuple[str, ...]:
    """Names of modules for GPUs and MPI; () where there is no `module`."""
    listed = node.ask("bash", "-lc", "type module > /dev/null && module -t avail 2>&1")
    words = [line.strip().removesuffix("(default)") for line in listed.splitlines()]
    return tuple(sorted({w for w in words if USEFUL_MODULES.match(w) and not w.endswith(":")}))


def load_and_find(node: Node, modules: str, program: str) -> bool:
    """Is `program` found after the modules are loaded as in lib/run.sh, or beside Python?"""
    if not modules and (Path(sys.executable).parent / program).exists():
        return True
    script = (
        "[ ! -e /etc/profile.d/modules.sh ] || . /etc/profile.d/modules.sh; "
        '[ -z "$1" ] || module load $1 || exit 1; command -v "$2"'
    )
    return bool(node.ask("bash", "-c", script, "bash", modules, program))
