"""Which MPI is here, and how is its mpiexec started on one machine?

mpi4py loads an MPI library, mpiexec belongs to an MPI. If these are two different ones, every rank
believes to be rank 0 of 1, often without an error. So both are asked before ranks are started.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands.launch.job import LaunchError

ASK_LIMIT_S = 60.0  # for the first import from a slow disk
# Intel MPI, MVAPICH and Cray's MPI are relatives of MPICH: one protocol, one binary interface.
FAMILIES = {
    "Open MPI": ("Open MPI", "OpenRTE", "PRRTE", "prterun"),
    "MPICH": ("MPICH", "HYDRA", "Intel(R) MPI", "MVAPICH"),
}
ASK_LIBRARY = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""

# As root, more ranks than cores, no binding to cores; version 5 reads the first name of a pair,
# version 4 the second. Within one machine shared memory is enough, and starts a second earlier.
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
}
OPEN_MPI_4 = {"OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}

# What a scheduler, an outer mpiexec or torchrun says about *its* ranks. It would mislead ours.
FOREIGN = ("SLURM_", "PBS_", "LSB_", "PE_HOSTFILE", "PMI_", "PMIX_", "HYDI_", "OMPI_COMM_WORLD_")
FOREIGN += ("PRTE_LAUNCHED", "MPI_LOCAL", "TORCHELASTIC_")
FOREIGN_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
FOREIGN_NAMES |= {"MASTER_ADDR", "MASTER_PORT"}


@dataclass(frozen=True)
class MPI:
    """An mpiexec that fits mpi4py. family: "MPICH", "Open MPI", or "" if it does not say."""

    mpiexec: str
    family: str
    version: str

    def command(self, ranks: int) -> list[str]:
        return [self.mpiexec, "-n", str(ranks)]

    def environ(self) -> dict[str, str]:
        """What this mpiexec needs to start ranks here; the user's own settings come before it."""
        if self.family != "Open MPI":
            return {}
        return OPEN_MPI | (OPEN_MPI_4 if self.version.startswith("4.") else {})


def own_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what belongs to another job."""
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(FOREIGN) and name not in FOREIGN_NAMES
    }


@functools.cache
def find(python: str = sys.executable, mpiexec: str | None = None) -> MPI:
    """The MPI of a Python environment. Asked once a process; MPI is not started here for that.

    python: the interpreter whose mpi4py counts. mpiexec: the launcher; None looks beside `python`,
    then in PATH. Raises LaunchError if one of them is missing or they belong to different MPIs.
    """
    mpiexec = mpiexec or beside(python) or shutil.which("mpiexec")
    if mpiexec is None:
        raise LaunchError(
            f"no mpiexec beside {python} nor in PATH: "
            "install an MPI (pip install mpich) or load the cluster's MPI module"
        )
    code, said = ask([mpiexec, "--version"])
    if code:
        raise LaunchError(f"{mpiexec} --version failed: {last_line(said)}")
    library_code, library = ask([python, "-c", ASK_LIBRARY])
    if library_code:
        raise LaunchError(f"mpi4py does not work in {python}: {last_line(library)}")
    if family(said) and family(library) and family(said) != family(library):
        raise LaunchError(
            f"{mpiexec} belongs to {family(said)}, but mpi4py uses {family(library)}: each rank "
            f"would be alone in its world; use {family(library)}'s mpiexec, or another environment"
        )
    return MPI(mpiexec, family(said), version(said))


def beside(python: str) -> str | None:
    path = Path(python).parent / "mpiexec"  # links are not followed: a venv's python is one
    return str(path) if path.exists() else None


def family(text: str) -> str:
    for name, marks in FAMILIES.items():
        if any(mark.lower() in text.lower() for mark in marks):
            return name
    return ""


def version(text: str) -> str:
    """The first word that looks like a version number, such as 5.0.2."""
    return next((word for word in text.split() if word[0].isdigit() and "." in word), "")


def ask(command: Sequence[str]) -> tuple[int, str]:
    """(exit code, what it said)."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=own_environ(os.environ) | OPEN_MPI,
            timeout=ASK_LIMIT_S,
        )
    except OSError as error:
        return 127, str(error)
    except subprocess.TimeoutExpired:
        return 124, f"no answer within {ASK_LIMIT_S:.0f} s"
    return done.returncode, done.stdout.decode(errors="replace")


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
