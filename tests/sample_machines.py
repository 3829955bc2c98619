"""Machines for the doctor: a laptop, one with a GPU, a node of a cluster. Nothing is really run."""

import json
from pathlib import Path

from allhands.doctor import exit_code, probe_all
from allhands.doctor.machine import Folder, Interface, Machine, Network, Ran

PINS = ["chainer==7.8.1", "numpy==1.26.4; python_version < '3.13'", "torch==2.13.0"]
GPU_PINS = ["cupy-cuda12x==13.6.0; extra == 'gpu'"]
MIB, GIB = 2**20, 2**30
CUPY_ON_ONE_GPU = {"devices": 1, "names": ["GPU X"], "sum": 10.0, "nccl": 22203, "cupy": "13.6.0"}
LO, ETH0 = (
    Interface("lo", loopback=True, address="127.0.0.1"),
    Interface("eth0", address="10.0.0.7"),
)
HOME = Network("laptop", (LO, ETH0), ("127.0.1.1",), ("127.0.1.1",), range_free=100)
DISK = Folder("ext4", 100 * GIB, 50 * GIB, write_s=0.01)
SHM = Folder("tmpfs", 4 * GIB, 4 * GIB)
MPICH = Ran(0, json.dumps({"vendor": "MPICH", "version": "5.0.2", "cuda": False}))
PMIS = Ran(0, "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\n")
SLURM = {name: f"/usr/bin/{name}" for name in ("sinfo", "sbatch", "srun")}
BUILT_FOR_12 = "cuda: Optional[str] = '12.6'\n"


class Laptop(Machine):
    """A good laptop without a GPU. Each argument changes one thing of it; nothing is really run."""

    def __init__(self, **changes):
        self.installed = {
            **{"chainer": "7.8.1", "numpy": "1.26.4", "torch": "2.13.0+cpu"},
            **{"jupyterlab": "4.6.6", "ipykernel": "7.4.0"},
            **changes.pop("installed", {}),
        }
        self.answers = {  # by a word of the command that is run
            "numpy.array": Ran(0, "chainer 7.8.1 numpy 1.26.4 gradient 22.0 44.0\n"),
            "COMM_WORLD": Ran(0, "\n<rank 1 of 2: MPICH>\n\n<rank 0 of 2: MPICH>\n"),
            "MPIX_Query": MPICH,
            "sinfo": Ran(0, "debug*\ngpu\n"),
            "--mpi=list": PMIS,
            **changes.pop("answers", {}),
        }
        self.programs = changes.pop("programs", {})
        self.folders = {"/dev/shm": SHM, **changes.pop("folders", {})}
        self.facts = {
            **{"python": (3, 11, 9), "environ": {"OMP_NUM_THREADS": "1"}, "cores": 4},
            **{"in_environment": True, "requirements": PINS + GPU_PINS, "network": HOME},
            **{"memory_bytes": 8 * GIB, "missing_files": set(), "disk": DISK, "segments": []},
            **{"limits": {}, "texts": {}, "torch_text": "cuda: Optional[str] = None\n"},
            **changes,
            "environ": {"OMP_NUM_THREADS": "1"} | changes.get("environ", {}),
        }

    python = property(lambda self: self.facts["python"])
    executable = property(lambda self: Path("/env/bin/python"))
    environ = property(lambda self: self.facts["environ"])

    def in_environment(self):
        return self.facts["in_environment"]

    def has_file(self, path):
        return path.name not in self.facts["missing_files"]

    def text(self, path):
        return self.facts["texts"].get(str(path), "")

    def package_text(self, package, file):
        return self.facts["torch_text"]

    def which(self, program):
        return self.programs.get(program)

    def version(self, package):
        return self.installed.get(package)

    def requirements(self):
        return self.facts["requirements"]

    def cores(self):
        return self.facts["cores"]

    def memory_bytes(self):
        return self.facts["memory_bytes"]

    def limit(self, name):
        return self.facts["limits"].get(name, (4096, 4096))

    def folder(self, path):
        return self.folders.get(str(path), self.facts["disk"])

    def network(self, low=None, high=None):
        return self.facts["network"]

    def segments(self, folder="/dev/shm"):
        return self.facts["segments"]

    def run(self, command, time_limit_s, environ=None):
        line = " ".join(command)
        matching = [answer for word, answer in self.answers.items() if word in line]
        return matching[-1]  # a word that a test adds comes before the usual ones


def with_gpu(**changes) -> Laptop:
    """A machine with one GPU, its driver, CuPy, NCCL, and a PyTorch that is built for it."""
    changes.setdefault("programs", {"nvidia-smi": "/usr/bin/nvidia-smi"})
    changes.setdefault("installed", {"cupy-cuda12x": "13.6.0", "nvidia-nccl-cu12": "2.27.5"})
    changes.setdefault("torch_text", BUILT_FOR_12)
    answers = {
        "nvidia-smi": Ran(0, "GPU X, 550.54\n"),
        "import cupy": Ran(0, "a warning\n" + json.dumps(CUPY_ON_ONE_GPU)),
    }
    return Laptop(answers={**answers, **changes.pop("answers", {})}, **changes)


def on_slurm(environ=None, **changes) -> Laptop:
    """A node of a cluster with Slurm. With an environment: in a job."""
    return Laptop(programs=SLURM, environ=environ or {}, **changes)


JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2"}
SRUN = {**JOB, "ALLHANDS_LAUNCHER": "srun --mpi=pmi2"}


def cupy_says(**changes) -> dict[str, Ran]:
    return {"import cupy": Ran(0, json.dumps({**CUPY_ON_ONE_GPU, **changes}))}


def only_this_is_named(machine, name, status, seen, advice):
    """The doctor finds one fault, says what it saw and what to do, and finds all else good."""
    findings = probe_all(machine)
    (fault,) = [finding for finding in findings if finding.status != "good"]
    assert (fault.name, fault.status) == (name, status)
    assert seen in fault.seen
    assert advice in fault.advice
    assert exit_code(findings) == (1 if status == "bad" else 0)
    for finding in findings:
        assert bool(finding.advice) == (finding.status != "good")
        assert finding.asked.endswith("?")
