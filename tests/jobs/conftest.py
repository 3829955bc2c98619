"""A project with only `cluster_jobs`, a stand-in trainer, and nothing of the machine's schedulers.

The stand-in `allhands` writes its arguments into <run folder>/calls and exits with 85 until it has
been called PARTS times; then with CODE.
"""

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from allhands.sites import detect

JOBS = Path(__file__).parents[2] / "cluster_jobs"

TRAINER = """#!/bin/bash
while [ "$1" != --out ]; do before+=("$1"); shift; done
mkdir -p "$2"
printf '%s|' "${before[@]}" "$@" >> "$2/calls"; echo >> "$2/calls"
env > "$2/environment"
part=$(wc -l < "$2/calls")
echo "trained part $part"
[ "$part" -ge "${PARTS:-1}" ] || exit 85
exit "${CODE:-0}"
"""


@dataclass(frozen=True)
class Project:
    root: Path
    programs: Path  # a folder that stands first on PATH

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def python_program(self, name: str, code: str) -> None:
        """A program in Python; the interpreter's path may hold spaces, which `#!` cannot."""
        file = self.programs / f"{name}.py"
        file.write_text(code, encoding="utf-8")
        command = shlex.join([sys.executable, str(file)])
        self.program(name, f'#!/bin/bash\nexec {command} "$@"\n')

    def site(self, name: str, text: str) -> None:
        (self.root / "cluster_jobs/sites" / f"{name}.env").write_text(text, encoding="utf-8")

    def environment(self, **more: str) -> dict[str, str]:
        """A login shell's variables and no more: nothing of this machine's choice leaks in."""
        return {
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(self.root),
            "ALLHANDS_POLL_S": "0.05",
            **more,
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "cluster_jobs/submit"), *arguments]

    def submit(self, *arguments: str, **more: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*arguments),
            env=self.environment(**more),
            cwd=os.sep,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def wait_for(self, name: str, process: subprocess.Popen) -> str:
        """The text of a file as soon as it is there; an error if `process` ends before."""
        while not (self.root / name).exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(0.02)
                raise AssertionError(f"ended with {code} before it wrote {name}")
        return (self.root / name).read_text()

    def only(self, pattern: str) -> Path:
        """The one file that matches below the project."""
        (found,) = self.root.glob(pattern)
        return found

    def calls(self) -> list[list[str]]:
        """The arguments of each call of the trainer, over the one run folder that there must be."""
        lines = self.only("runs/lab1_seq2seq/*/calls").read_text().splitlines()
        return [line.split("|")[:-1] for line in lines]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = tmp_path / "a project"  # a space: paths must be quoted
    shutil.copytree(JOBS, root / "cluster_jobs", ignore=shutil.ignore_patterns("default", "my_*"))
    programs = tmp_path / "programs"
    programs.mkdir()
    made = Project(root, programs)
    made.program("allhands", TRAINER)
    return made


# ---- login nodes, for `allhands site` ----


class Fake(detect.Node):
    """A login node that answers what it was told, has these programs and these interfaces."""

    def __init__(self, answers=(), programs=(), interfaces=(), packages=("mpich",), environ=()):
        self.answers, self.programs, self.packages = dict(answers), set(programs), packages
        self.devices, self.environ = tuple(interfaces), dict(environ)

    def which(self, program):
        return program in self.programs

    def ask(self, *words):
        return self.answers.get(" ".join(words), "")

    def interfaces(self):
        return self.devices

    def has_package(self, name):
        return name in self.packages


SLURM = Fake(
    {
        "sinfo --version": "slurm 22.05.8\n",
        "sinfo -a -h -o %P|%l|%D|%G": "work*|1:00:00|9|(null)\n"
        "fast|1-12:00:00|3|gpu:a100:4(S:0-1)\n"
        "fast|1-12:00:00|2|gpu:a100:8\n",
        "srun --mpi=list": "MPI plugin types are...\n\tpmix\n\tpmi2\n\tnone\n",
        "scontrol show config": "Configuration data\nClusterName             = Blue-Fir\n",
        "sacctmgr -nP show associations user=me format=account": "physics\nphysics\n",
    },
    {"sbatch", "srun", "mpiexec"},
    ("docker0", "eno1", "ib0", "lo"),
)
PBS = Fake(
    {
        "qstat -Q -f": "Queue: day\n    resources_max.walltime = 24:00:00\nQueue: big\n"
        "    resources_max.nodect = 16\n",
        "hostname -f": "login2.fir.example.org\n",
        "qstat -B -f": "    default_queue = day\n",
        "pbsnodes -a": "n1\n     resources_available.ngpus = 2\nn2\n"
        "     resources_available.ngpus = 4\n",
    },
    {"qsub", "qstat", "mpiexec"},
)


@pytest.fixture
def nodes():
    """The stand-in for a login node, one of Slurm and one of PBS."""
    return SimpleNamespace(Fake=Fake, slurm=SLURM, pbs=PBS)
