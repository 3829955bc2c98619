"""Set-ups that are broken on purpose, each as data: what breaks it, what is seen, what mends it.

Each is broken for real, in a process of its own: by its environment, by files, or in namespaces
(mounts, network, host name) that end with it. The doctor looks, the script does what the advice
says, and the doctor looks once more.
"""

from dataclasses import dataclass

CHEAP = ["python", "packages", "intruder", "jupyter", "first_mpiexec", "hardware", "threads"]
CHEAP += ["files", "processes", "shared_memory", "scratch", "clock", "network", "scheduler"]
CHEAP += ["inside_job", "devices"]

ASK = """
import json, os, sys
from dataclasses import asdict
from allhands.doctor import probes
sys.executable = os.environ.get("EXECUTABLE", sys.executable)
found = probes.probe_all(probes=[getattr(probes, name) for name in sys.argv[2:]], level=sys.argv[1])
print(json.dumps([asdict(one) for one in found]))
"""

# $T: an empty folder. $PYTHON: this Python. ask: the doctor, with the probes that are named.
SCRIPT = """
set -e
ask() { "$PYTHON" -c "$ASK" "$LEVEL" $PROBES; }
mkdir "$T/own"
%s
ask > "$T/before"
cure=$(CURE=%s "$PYTHON" -I -S -c '
import json, os, re
found = json.load(open(os.environ["T"] + "/before"))
advice = [one["advice"] for one in found if one["name"] == os.environ["NAME"]]
print(re.search(os.environ["CURE"], " ".join(advice))[0])')
%s
ask > "$T/after"
"""
FOLLOWED = 'eval "${cure//.../$T/own}"'  # an advice's "..." is for the reader to fill in


@dataclass(frozen=True)
class Broken:
    """breaks: in bash. cure: an expression that finds the command in the advice.

    by_hand: if the advice is no command, how one follows it, in bash.
    namespaces: flags of unshare. level: the one that is asked for.
    """

    breaks: str
    name: str
    status: str
    seen: str
    cure: str
    by_hand: str = FOLLOWED
    namespaces: str = ""
    level: str = "cpu"
    probes: tuple[str, ...] = tuple(CHEAP)


def package(name: str, version: str) -> str:
    """A package of that name and version comes first, and only its metadata are there."""
    folder = f"$T/site/{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n"
    return f'mkdir -p {folder}; printf "{metadata}" > {folder}/METADATA; export PYTHONPATH=$T/site'


def program(name: str, text: str) -> str:
    """A program of that name comes first in PATH."""
    return (
        f"mkdir -p $T/bin; printf '#!/bin/sh\\n%s\\n' '{text}' > $T/bin/{name}; "
        f"chmod +x $T/bin/{name}; export PATH=$T/bin:$PATH"
    )


CUPY_STUB = """
import sys
from types import ModuleType, SimpleNamespace
from numpy import arange
__version__ = "13.6.0"
cuda = sys.modules["cupy.cuda"] = ModuleType("cupy.cuda")
cuda.is_available = lambda: True
cuda.nccl = SimpleNamespace(get_version=lambda: 22203)
cuda.runtime = SimpleNamespace(
    getDeviceCount=lambda: 1, getDeviceProperties=lambda device: {"name": b"GPU X"}
)
"""
HOSTS = "cp /etc/hosts $T/hosts; mount --bind $T/hosts /etc/hosts"
ALONE = "hostname localhost"  # a name that a host without other networks knows
A_PYTHON = (  # without the programs that lie beside the real one
    "mkdir $T/env; export EXECUTABLE=$T/env/python; "
    'printf \'#!/bin/sh\\nexec "$PYTHON" "$@"\\n\' > $EXECUTABLE; chmod +x $EXECUTABLE'
)
HOLDER = """
import socket, time
held = []
try:
    while True:
        held.append(socket.socket())
        held[-1].bind(("127.0.0.1", 0))
        held[-1].listen(1)
except OSError:
    print("all are taken", flush=True)
time.sleep(600)
"""
SLOW_CLOCK = """
import runpy, sys, time
real = time.time
time.time = lambda: real() - 100
sys.argv = sys.argv[3:]  # after -I and -S
runpy.run_path(sys.argv[0], run_name="__main__")
"""

ENVIRONMENT = {
    "threads are not set": Broken(
        "unset OMP_NUM_THREADS", "threads", "warn", "unset: all", "export OMP_NUM_THREADS=1"
    ),
    "64 open files": Broken("ulimit -Sn 64", "open files", "warn", "at most 64", r"ulimit -n \d+"),
    "scratch is not there": Broken(
        "export ALLHANDS_SCRATCH=$T/gone/deep",
        "scratch",
        "bad",
        "gone/deep is not there",
        r"mkdir -p \S+",
    ),
    "an interface that does not exist": Broken(
        "export ALLHANDS_NETWORK=nowhere0",
        "interfaces",
        "bad",
        "nowhere0 is not on this host",
        "unset ALLHANDS_NETWORK",
    ),
    "a foreign mpiexec comes first": Broken(
        program("mpiexec", "exit 0"),
        "mpiexec",
        "warn",
        "bin/mpiexec, not",
        r"export PATH=\S+",
    ),
    "the separate package chainermn": Broken(
        package("chainermn", "1.3.1"),
        "chainermn",
        "bad",
        "chainermn 1.3.1 overwrites",
        "pip uninstall chainermn",
        by_hand="rm -r $T/site/chainermn-*",  # what pip does in an environment
    ),
    "another version than the pinned one": Broken(
        package("rich", "9.9"),
        "packages",
        "warn",
        "rich 9.9 (pinned: ==",
        "make env",
        by_hand="rm -r $T/site/rich-*",  # and what make env does
    ),
    "SLURM_CONF names nothing": Broken(
        f"{program('sinfo', 'echo debug')}; {program('sbatch', 'exit 0')}; "
        "export SLURM_CONF=$T/gone.conf",
        "scheduler",
        "warn",
        "gone.conf, which is not there",
        "unset SLURM_CONF",
    ),
    "a driver for CUDA 11, CuPy for CUDA 12": Broken(
        f"{program('nvidia-smi', 'echo GPU X, 515.43.04')}; {package('cupy_cuda12x', '13.6.0')}; "
        f"{package('torch', '2.13.0')}; mkdir $T/site/torch $T/site/cupy; "
        "echo \"cuda: str = '11.8'\" > $T/site/torch/version.py; "
        'echo "$CUPY_STUB" > $T/site/cupy/__init__.py',
        "driver",
        "bad",
        "515.43.04, but CuPy (CUDA 12) needs 525.60.13",
        "cupy-cuda11x in place of cupy-cuda12x",
        by_hand=f"rm -r $T/site/cupy_cuda12x-*; {package('cupy_cuda11x', '13.6.0')}",
        level="gpu",
        probes=("python", "devices"),
    ),
    "CuPy without a driver that runs": Broken(
        f"{program('nvidia-smi', 'echo NVIDIA-SMI has failed; exit 9')}; "
        f"{package('cupy_cuda12x', '13.6.0')}; mkdir $T/site/cupy; "
        "echo 'raise ImportError(\"libcuda.so.1\")' > $T/site/cupy/__init__.py",
        "driver",
        "warn",
        "NVIDIA-SMI has failed",
        "use another node",
        by_hand="rm $T/bin/nvidia-smi",  # a node without a driver: the CPU level
    ),
    "JupyterLab is missing": Broken(
        A_PYTHON,
        "Jupyter",
        "bad",
        "not in this environment",
        "make env",
        by_hand="ln -s $BIN/jupyter-lab $T/env/",
        probes=("python", "packages", "jupyter"),
    ),
}

NAMESPACES = {
    "1 MiB of shared memory": Broken(
        "mount -t tmpfs -o size=1m tmpfs /dev/shm",
        "/dev/shm",
        "bad",
        "1 MiB free of 1 (tmpfs)",
        r"mount -o remount,\S+ /dev/shm",
        namespaces="-m",
    ),
    "shared memory full of ended jobs": Broken(
        "mount -t tmpfs -o size=1g tmpfs /dev/shm; truncate -s 100M /dev/shm/mpich_shm_1_0; "
        "truncate -s 9M /dev/shm/torch_2; echo mine > /dev/shm/notes",
        "/dev/shm",
        "warn",
        "2 files of ended jobs (109 MiB)",
        "find .*-delete",
        by_hand=f"{FOLLOWED}; test $(ls /dev/shm) = notes",
        namespaces="-m",
    ),
    "a read-only folder": Broken(
        "mkdir $T/ro; mount -t tmpfs -o ro,size=2g tmpfs $T/ro; cd $T/ro",
        "scratch",
        "bad",
        "Read-only file system",
        r"export ALLHANDS_SCRATCH=\.\.\.",
        namespaces="-m",
    ),
    "a disk that is full": Broken(
        "mkdir $T/full; mount -t tmpfs -o size=2m tmpfs $T/full; cd $T/full; "
        "head -c 2M /dev/zero > old 2> /dev/null || true",
        "scratch",
        "bad",
        "0.0 GiB free",
        r"export ALLHANDS_SCRATCH=\.\.\.",
        namespaces="-m",
    ),
    "a host name that is unknown": Broken(
        f"{HOSTS}; hostname nowhere-known",
        "host name",
        "warn",
        "'nowhere-known' has no address",
        'echo "[^"]*" >> /etc/hosts',
        namespaces="-m -u",
    ),
    "a host name with another host's address": Broken(
        f"{HOSTS}; hostname nowhere-known; echo 203.0.113.9 nowhere-known >> /etc/hosts",
        "host name",
        "warn",
        "203.0.113.9, which is no address of this host",
        r"in /etc/hosts: \S+",
        by_hand='sed "s/^203.0.113.9/${cure##* }/" $T/hosts > $T/new; cat $T/new > /etc/hosts',
        namespaces="-m -u",
    ),
    "no loopback": Broken(
        ALONE,
        "loopback",
        "bad",
        "127.0.0.1 does not answer",
        "ip link set lo up",
        namespaces="-n -u",
    ),
    "an interface that is down": Broken(
        f"{ALONE}; ip link set lo up; ip link add ib0 type veth peer name other; "
        "ip link set other up; ip address add 10.9.8.7/24 dev ib0; export ALLHANDS_NETWORK=ib0",
        "interfaces",
        "bad",
        "ib0 is down",
        "ip link set ib0 up",
        namespaces="-n -u",
    ),
    "all ports are taken": Broken(
        f"{ALONE}; ip link set lo up; echo 40000 40003 > /proc/sys/net/ipv4/ip_local_port_range; "
        'exec 3< <(exec "$PYTHON" -I -S -c "$HOLDER"); trap "kill $!" EXIT; read -u 3',
        "ports",
        "bad",
        "no two ports are free in 40000-40003",
        r"echo \d+ \d+ > \S+",
        namespaces="-n -u",
    ),
}
RANKS = {
    "a foreign mpiexec alone": Broken(
        f'{A_PYTHON}; printf \'#!/bin/bash\\nshift 2; "$@"; "$@"\\n\' > $T/env/mpiexec; '
        "chmod +x $T/env/mpiexec",
        "MPI",
        "bad",
        "two worlds of size 1",
        "Use the mpiexec of the same MPI",
        by_hand="printf '#!/bin/sh\\nexec $BIN/mpiexec \"$@\"\\n' > $T/env/mpiexec",
        probes=("mpi",),
    ),
    "mpi4py does not start": Broken(
        "mkdir -p $T/site/mpi4py; echo 'raise ImportError(\"cannot load MPI library\")' "
        "> $T/site/mpi4py/__init__.py; export PYTHONPATH=$T/site",
        "MPI",
        "bad",
        "",
        "make env",
        by_hand="rm -r $T/site/mpi4py",
        probes=("mpi",),
    ),
    "shared memory is too small for ranks": Broken(
        "mount -t tmpfs -o size=1m tmpfs /dev/shm",
        "/dev/shm",
        "bad",
        "1 MiB free",
        r"mount -o remount,\S+ /dev/shm",
        namespaces="-m",
        probes=("shared_memory", "mpi"),
    ),
}
