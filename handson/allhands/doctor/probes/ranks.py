"""Do mpi4py, its MPI library and the launchers belong together?

If they do not, each rank may believe to be rank 0 of 1, without any error.
"""

import json
import os
import re
import shlex
from pathlib import Path

from allhands.doctor.finding import Finding
from allhands.doctor.machine import Machine
from allhands.doctor.probes.jobs import in_job
from allhands.doctor.probes.this_python import MAKE_ENV

MPI_TIME_LIMIT_S = 20.0
SRUN_TIME_LIMIT_S = 5.0
FITTING_LAUNCHER = (
    'In the site file: ALLHANDS_LAUNCHER="mpiexec -n {ranks}", with the mpiexec of the same MPI. '
    "By srun, Open MPI speaks pmix, and MPICH pmi2, but that of a wheel hangs on several nodes."
)
FITTING_PMI = {"MPICH": "pmi2", "Intel MPI": "pmi2", "Open MPI": "pmix"}
# Open MPI refuses root, and more ranks than it was given; two ranks are only a question here.
ALLOW = {
    **dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
    **dict.fromkeys(("PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"),
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}

# One write a rank, so that the lines of two ranks do not mix.
MPI = """
import sys
from mpi4py import MPI
library = " ".join(MPI.Get_library_version().splitlines()[0].split(",")[0].split())
world = MPI.COMM_WORLD
sys.stdout.write(f"\\n<rank {world.rank} of {world.size}: {library}>\\n")
"""

# MPI starts on one rank; then the library is asked. The function is an extension that MPICH and
# Open MPI have.
LIBRARY = """
import ctypes, json
from mpi4py import MPI
seen = {"vendor": MPI.get_vendor()[0], "version": ".".join(map(str, MPI.get_vendor()[1]))}
seen["cuda"] = None
try:
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "/libmpi" in line)
    seen["cuda"] = bool(ctypes.CDLL(path).MPIX_Query_cuda_support())
except (AttributeError, OSError, StopIteration):
    pass
print("\\n" + json.dumps(seen), flush=True)
"""


def _world(machine: Machine, launcher: list[str]) -> tuple[int | None, list, str]:
    """(exit code, [(rank, size, library), ...], last line) of the ranks that a launcher starts."""
    command = [*launcher, str(machine.executable), "-c", MPI]
    ran = machine.run(command, MPI_TIME_LIMIT_S, ALLOW)
    ranks = re.findall(r"<rank (\d+) of (\d+): (.*)>", ran.output)
    return ran.code, [(int(r), int(s), library) for r, s, library in ranks], ran.last_line


def mpi(machine: Machine) -> list[Finding]:
    """The launcher beside this Python and mpi4py's library belong together: 2 ranks, one world."""

    def finding(status: str, seen: str, advice: str = "") -> list[Finding]:
        return [Finding("MPI", status, seen, advice, blocks="cpu" if status == "bad" else "")]

    launcher = str(machine.executable.parent / "mpiexec")
    if not machine.has_file(Path(launcher)):
        elsewhere = machine.which("mpiexec")
        if elsewhere is None:
            return finding("bad", "no mpiexec", MAKE_ENV)
        launcher = elsewhere
    code, ranks, last_line = _world(machine, [launcher, "-n", "2"])
    if code is None:
        return finding(
            "bad",
            f"{launcher} -n 2 was ended after {MPI_TIME_LIMIT_S:.0f} s",
            "Does this machine know its own name (ping $(hostname)), and does a firewall stop "
            f"local connections? Or launcher and library differ. {MAKE_ENV}",
        )
    if [size for _, size, _ in ranks] == [1, 1]:
        return finding(
            "bad",
            f"{launcher} -n 2 made two worlds of size 1 ({ranks[0][2]})",
            "The launcher belongs to another MPI than mpi4py's library. Use the mpiexec of the "
            f"same MPI. {MAKE_ENV}",
        )
    if code != 0 or sorted(rank[:2] for rank in ranks) != [(0, 2), (1, 2)]:
        seen = f"{launcher} -n 2 failed (exit code {code}): {last_line}"
        return finding("bad", seen, f"mpi4py and its MPI library must fit. {MAKE_ENV}")
    if Path(launcher).parent != machine.executable.parent:
        advice = f"It works here. Name it in full where another mpiexec may be first: {launcher}"
        return finding("warn", f"2 ranks, with a launcher from elsewhere: {launcher}", advice)
    return finding("good", f"2 ranks in one world, {ranks[0][2]}")


def first_mpiexec(machine: Machine) -> list[Finding]:
    """Who types `mpiexec` gets the first one in PATH."""
    own, first = machine.executable.parent / "mpiexec", machine.which("mpiexec")
    if not machine.has_file(own) or first is None:
        return []  # `mpi` has tried what there is
    if os.path.realpath(first) == os.path.realpath(own):
        return [Finding("mpiexec", "good", f"the first in PATH is {own}")]
    seen = f"the first in PATH is {first}, not {own}"
    advice = f"It may belong to another MPI. Put ours first: export PATH={own.parent}:$PATH"
    return [Finding("mpiexec", "warn", seen, advice)]


def _library(machine: Machine) -> dict | None:
    """mpi4py's MPI library: vendor, version, cuda (True, False or None: it does not say)."""
    ran = machine.run([str(machine.executable), "-c", LIBRARY], MPI_TIME_LIMIT_S, ALLOW)
    for line in ran.lines:
        if line.startswith('{"vendor"'):
            return json.loads(line)
    return None  # `mpi` says what is wrong with it


def pmi(machine: Machine) -> list[Finding]:
    """srun starts ranks too, if it speaks the protocol (PMI) of their library."""
    if machine.which("srun") is None:
        return []
    ran = machine.run(["srun", "--mpi=list"], SRUN_TIME_LIMIT_S)
    offered = [word for word in ran.lines if re.fullmatch(r"[a-z0-9_]+", word)]
    library = _library(machine) if ran.code == 0 and offered else None
    if library is None:
        return []  # Slurm is not in use here, which `scheduler` tells, or mpi4py is broken
    vendor = library["vendor"]
    wanted, listed = FITTING_PMI.get(vendor, ""), ", ".join(offered)
    if not wanted:
        advice = f"Ask its documentation which of these it speaks: {listed}"
        return [Finding("PMI", "warn", f"{vendor} is not known to this program", advice)]
    chosen = re.search(r"--mpi[= ](\w+)", machine.environ.get("ALLHANDS_LAUNCHER", ""))
    if chosen and not chosen[1].startswith(wanted):
        seen = f"ALLHANDS_LAUNCHER says --mpi={chosen[1]}, but {vendor} speaks {wanted}"
        return [Finding("PMI", "bad", seen, FITTING_LAUNCHER, blocks="cpu")]
    if chosen and vendor == "MPICH" and machine.version("mpich"):
        seen = f"ALLHANDS_LAUNCHER says --mpi={chosen[1]}, and MPICH is from a wheel"
        return [Finding("PMI", "warn", seen, FITTING_LAUNCHER)]
    if not any(one.startswith(wanted) for one in offered):
        seen = f"{vendor} speaks {wanted}; srun offers {listed}"
        advice = 'Start ranks with the library\'s own: ALLHANDS_LAUNCHER="mpiexec -n {ranks}"'
        return [Finding("PMI", "warn", seen, advice)]
    return [Finding("PMI", "good", f"srun --mpi={wanted} for {vendor} (offered: {listed})")]


def launcher(machine: Machine) -> list[Finding]:
    """In a job: two ranks by the launcher of the site file."""
    shown = machine.environ.get("ALLHANDS_LAUNCHER", "")
    try:
        words = shlex.split(shown)
    except ValueError as error:  # a quote that does not end
        seen, advice = f"{shown}: {error}", "Mend the quotes of ALLHANDS_LAUNCHER in the site file."
        return [Finding("launcher", "bad", seen, advice, blocks="cpu")]
    if not words or not in_job(machine) or machine.environ.get("ALLHANDS_CONTAINER"):
        return []  # inside a container there is no launcher of the site
    counts = {"{ranks}": "2", "{ranks_per_node}": "2", "{nodes}": "1"}
    for name, count in counts.items():
        words = [word.replace(name, count) for word in words]
    if Path(words[0]).name == "srun":  # two ranks in the place of one, and beside this program
        words += ["--ntasks=2", "--nodes=1", "--overcommit", "--overlap"]
    code, ranks, last_line = _world(machine, words)
    if code == 0 and sorted(rank[:2] for rank in ranks) == [(0, 2), (1, 2)]:
        return [Finding("launcher", "good", f"{shown}: 2 ranks in one world")]
    if [size for _, size, _ in ranks] == [1, 1]:
        seen = f"{shown} made two worlds of size 1 ({ranks[0][2]})"
        advice = "It speaks another protocol than the library. " + FITTING_LAUNCHER
    elif "Invalid MPI type" in last_line:
        seen = f"{shown} failed: {last_line}"
        advice = "Slurm may list a plugin and lack its library. " + FITTING_LAUNCHER
    elif code is None:
        seen = f"{shown} was ended after {MPI_TIME_LIMIT_S:.0f} s"
        advice = "Does the launcher of the site file fit this MPI? Try it by hand in a job."
    else:
        seen = f"{shown} failed (exit code {code}): {last_line}"
        advice = FITTING_LAUNCHER
    return [Finding("launcher", "bad", seen, advice, blocks="cpu")]


def cuda_aware(machine: Machine) -> list[Finding]:
    """The library is asked itself. Where it cannot, arrays of GPUs still go through NCCL."""
    library = _library(machine)
    if library is None:
        return []
    says = {True: "yes", False: "no", None: "it does not say"}[library["cuda"]]
    seen = f"{library['vendor']} {library['version']}: {says}"
    if not machine.which("nvidia-smi"):
        return [Finding("CUDA-aware", "good", f"{seen}; without a GPU it does not matter")]
    if not library["cuda"]:
        seen += "; arrays go through NCCL (pure_nccl), not through the communicator 'flat'"
    return [Finding("CUDA-aware", "good", seen)]
