"""Can the labs run on this machine, and if not, what is to be done?

A probe looks at a `Machine` and returns findings. It imports no heavy library: Chainer, mpi4py and
CuPy are tried in processes of their own, so that a crash or a hang there is a finding here.
"""

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.version import Version

from allhands.doctor.finding import Finding, report
from allhands.doctor.machine import Machine

__all__ = ["PROBES", "Finding", "probe_all", "report"]

GIB = 2**30
PYTHONS = ((3, 11), (3, 13))  # oldest and newest
TIME_LIMIT_S = 90.0  # for a library's first import, from a slow disk of a busy machine
MPI_TIME_LIMIT_S = 20.0
MAKE_ENV = "Make the environment again: make env"


def python(machine: Machine) -> list[Finding]:
    version, shown = machine.python, ".".join(map(str, machine.python))
    seen = f"{shown} at {machine.executable}"
    if not PYTHONS[0] <= version[:2] <= PYTHONS[1]:
        advice = "The labs need Python 3.11, 3.12 or 3.13. Install one, then: make env"
        return [Finding("Python", "bad", seen, advice)]
    if not machine.in_environment():
        advice = "This is the system's Python. Use the project's: source .venv/bin/activate"
        return [Finding("Python", "warn", seen, advice)]
    return [Finding("Python", "good", seen)]


def packages(machine: Machine) -> list[Finding]:
    """Each pinned package is there, at its version; a local label such as +cpu does not count."""
    lines = machine.requirements()
    if lines is None:
        return [Finding("packages", "bad", "allhands itself is not installed", MAKE_ENV)]
    environment = {**default_environment(), "extra": ""}
    environment["python_version"] = ".".join(map(str, machine.python[:2]))
    wanted = [r for r in map(Requirement, lines) if not r.marker or r.marker.evaluate(environment)]
    missing, other = [], []
    for requirement in wanted:
        version = machine.version(requirement.name)
        if version is None:
            missing.append(requirement.name)
        elif not requirement.specifier.contains(Version(version).public, prereleases=True):
            other.append(f"{requirement.name} {version} (pinned: {requirement.specifier})")
    if missing:
        return [Finding("packages", "bad", f"missing: {', '.join(missing)}", MAKE_ENV)]
    if other:
        advice = f"The labs were tested with the pinned versions. {MAKE_ENV}"
        return [Finding("packages", "warn", f"other versions: {', '.join(other)}", advice)]
    return [Finding("packages", "good", f"all {len(wanted)} at their pinned versions")]


def intruder(machine: Machine) -> list[Finding]:
    """PyPI's own `chainermn` overwrites the one that Chainer 7 brings."""
    version = machine.version("chainermn")
    if version is None:
        return [Finding("chainermn", "good", "only the one that Chainer brings")]
    return [
        Finding(
            "chainermn",
            "bad",
            f"the separate package chainermn {version} overwrites Chainer's own",
            "pip uninstall chainermn, then: pip install --force-reinstall --no-deps "
            "--no-build-isolation chainer==7.8.1",
        )
    ]


# y = 1*3 + 2*4 = 11, and d(y^2)/dW = 2*y*x = (22, 44).
CHAINER = """
import numpy, chainer, chainer.functions as F, chainermn
chainermn.create_communicator
W = chainer.Parameter(numpy.array([[3, 4]], "f"))
F.sum(F.linear(numpy.array([[1, 2]], "f"), W) ** 2).backward()
print("chainer", chainer.__version__, "numpy", numpy.__version__, "gradient", *W.grad[0])
"""


def chainer(machine: Machine) -> list[Finding]:
    """Chainer can be imported, and a gradient that is known by hand comes out."""
    ran = machine.run([str(machine.executable), "-c", CHAINER], TIME_LIMIT_S)
    found = re.search(r"chainer (\S+) numpy (\S+) gradient (\S+) (\S+)", ran.output)
    if ran.code is None:
        seen = f"no answer after {TIME_LIMIT_S:.0f} s"
        return [Finding("Chainer", "bad", seen, "Is the disk slow, or full? Try once more.")]
    if ran.code != 0 or not found:
        return [Finding("Chainer", "bad", f"does not start: {ran.last_line}", MAKE_ENV)]
    if (float(found[3]), float(found[4])) != (22.0, 44.0):
        seen = f"computes wrongly: gradient {found[3]}, {found[4]} instead of 22, 44"
        return [Finding("Chainer", "bad", seen, MAKE_ENV)]
    return [Finding("Chainer", "good", f"{found[1]} computes with NumPy {found[2]}")]


# One write a rank, so that the lines of two ranks do not mix.
MPI = """
import sys
from mpi4py import MPI
library = " ".join(MPI.Get_library_version().splitlines()[0].split(",")[0].split())
world = MPI.COMM_WORLD
sys.stdout.write(f"\\n<rank {world.rank} of {world.size}: {library}>\\n")
"""


def mpi(machine: Machine) -> list[Finding]:
    """The launcher beside this Python and mpi4py's library belong together: 2 ranks, one world."""

    def finding(status: str, seen: str, advice: str = "") -> list[Finding]:
        return [Finding("MPI", status, seen, advice)]

    launcher = str(machine.executable.parent / "mpiexec")
    if not machine.has_file(Path(launcher)):
        elsewhere = machine.which("mpiexec")
        if elsewhere is None:
            return finding("bad", "no mpiexec", MAKE_ENV)
        launcher = elsewhere
    command = [launcher, "-n", "2", str(machine.executable), "-c", MPI]
    ran = machine.run(command, MPI_TIME_LIMIT_S)
    ranks = re.findall(r"<rank (\d+) of (\d+): (.*)>", ran.output)
    if ran.code is None:
        return finding(
            "bad",
            f"{launcher} -n 2 was ended after {MPI_TIME_LIMIT_S:.0f} s",
            "Does this machine know its own name (ping $(hostname)), and does a firewall stop "
            f"local connections? Or launcher and library differ. {MAKE_ENV}",
        )
    if [size for _, size, _ in ranks] == ["1", "1"]:
        return finding(
            "bad",
            f"{launcher} -n 2 made two worlds of size 1 ({ranks[0][2]})",
            "The launcher belongs to another MPI than mpi4py's library. Use the mpiexec of the "
            f"same MPI. {MAKE_ENV}",
        )
    if ran.code != 0 or sorted((int(r), int(s)) for r, s, _ in ranks) != [(0, 2), (1, 2)]:
        seen = f"{launcher} -n 2 failed (exit code {ran.code}): {ran.last_line}"
        return finding("bad", seen, f"mpi4py and its MPI library must fit. {MAKE_ENV}")
    if Path(launcher).parent != machine.executable.parent:
        advice = f"It works here. Name it in full where another mpiexec may be first: {launcher}"
        return finding("warn", f"2 ranks, with a launcher from elsewhere: {launcher}", advice)
    return finding("good", f"2 ranks in one world, {ranks[0][2]}")


def hardware(machine: Machine) -> list[Finding]:
    """Cores, memory, and the disk of the folder that runs are written to."""
    folder = Path.cwd()
    cores, memory = machine.cores(), machine.memory_bytes() / GIB
    findings = [Finding("cores", "good", str(cores))]
    if cores == 1:
        advice = "Two ranks share one core: everything runs, but no speed-up can be measured."
        findings = [Finding("cores", "warn", "1", advice)]
    seen = f"{memory:.1f} GiB free"
    if memory < 2:
        findings.append(Finding("memory", "warn", seen, "Close other programs: a lab takes 2 GiB."))
    else:
        findings.append(Finding("memory", "good", seen))
    if not machine.can_write(folder):
        advice = "Runs are written below this folder. Go to a folder of your own."
        findings.append(Finding("disk", "bad", f"cannot write in {folder}", advice))
        return findings
    free = machine.disk_bytes(folder) / GIB
    seen = f"{free:.1f} GiB free in {folder}"
    if free < 1:
        status = "bad" if free < 0.1 else "warn"
        findings.append(
            Finding("disk", status, seen, "Remove old runs (runs/), or use another disk.")
        )
    else:
        findings.append(Finding("disk", "good", seen))
    return findings


# chainer.backends.cuda.available is True on a login node without a GPU: CuPy is asked itself.
CUPY = """
import json
seen = {"devices": 0, "nccl": None, "names": [], "sum": None, "cupy": None}
import cupy
seen["cupy"] = cupy.__version__
if cupy.cuda.is_available():
    seen["devices"] = cupy.cuda.runtime.getDeviceCount()
    for device in range(seen["devices"]):
        seen["names"].append(cupy.cuda.runtime.getDeviceProperties(device)["name"].decode())
    seen["sum"] = float(cupy.arange(5, dtype="f").sum())
try:
    from cupy.cuda import nccl
    seen["nccl"] = nccl.get_version()
except Exception as error:
    seen["nccl_error"] = str(error)
print("\\n" + json.dumps(seen))
"""


def gpu(machine: Machine) -> list[Finding]:
    """GPUs of the driver and of CuPy, and NCCL. None at all is good: the CPU level."""
    cpu_level = "the labs run here at the CPU level"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    ran = machine.run(query, TIME_LIMIT_S) if machine.which("nvidia-smi") else None
    driver = ran.output.strip().splitlines() if ran and ran.code == 0 else []
    cupy = [name for name in ("cupy-cuda12x", "cupy-cuda13x", "cupy") if machine.version(name)]
    if not driver and not cupy:
        return [Finding("GPU", "good", f"none: {cpu_level}")]
    if not cupy:
        advice = "To use it: pip install '.[gpu]' (in the project's folder)"
        return [Finding("GPU", "warn", f"{driver[0]}, but no CuPy: {cpu_level}", advice)]
    ran = machine.run([str(machine.executable), "-c", CUPY], TIME_LIMIT_S)
    try:
        seen = json.loads(ran.last_line)
    except ValueError:
        advice = "Does CuPy's CUDA version fit the driver's? Compare: nvidia-smi; pip list"
        return [Finding("GPU", "warn", f"CuPy does not start: {ran.last_line}", advice)]
    if not seen["devices"]:
        if not driver:
            return [Finding("GPU", "good", f"none (CuPy {seen['cupy']} is there): {cpu_level}")]
        advice = "CuPy sees no device. Is CUDA_VISIBLE_DEVICES empty? Is the driver too old?"
        return [Finding("GPU", "warn", f"{driver[0]}, but CuPy {seen['cupy']}: 0", advice)]
    if seen["sum"] != 10.0:
        findings = [Finding("GPU", "bad", f"0+1+2+3+4 is {seen['sum']} on the GPU", MAKE_ENV)]
    else:
        names = ", ".join(sorted(set(seen["names"])))
        text = f"{seen['devices']} x {names}, CuPy {seen['cupy']}: the GPU level"
        findings = [Finding("GPU", "good", text)]
    if seen["nccl"]:
        findings.append(Finding("NCCL", "good", str(seen["nccl"])))
    else:
        advice = "Several GPUs need it: pip install nvidia-nccl-cu12"
        findings.append(Finding("NCCL", "warn", seen.get("nccl_error", "not there"), advice))
    return findings


def jupyter(machine: Machine) -> list[Finding]:
    version = machine.version("jupyterlab")
    program = machine.executable.parent / "jupyter-lab"
    if version is None or not machine.has_file(program):
        seen = "JupyterLab is not in this environment"
        return [Finding("Jupyter", "bad", seen, MAKE_ENV)]
    if machine.version("ipykernel") is None:
        return [Finding("Jupyter", "bad", "no kernel (ipykernel) for notebooks", MAKE_ENV)]
    return [Finding("Jupyter", "good", f"JupyterLab {version}")]


def threads(machine: Machine) -> list[Finding]:
    """Ranks and threads share the cores: one thread a rank is fastest for the labs' models."""
    value, cores = machine.environ.get("OMP_NUM_THREADS"), machine.cores()
    if value == "1" or cores == 1:
        return [Finding("threads", "good", f"OMP_NUM_THREADS={value}" if value else "one core")]
    seen = f"OMP_NUM_THREADS={value}" if value else f"OMP_NUM_THREADS unset: all {cores} cores"
    advice = "Each rank would take so many. Before you start ranks: export OMP_NUM_THREADS=1"
    return [Finding("threads", "warn", seen, advice)]


# In the order of the report.
PROBES = (python, packages, intruder, chainer, mpi, hardware, threads, gpu, jupyter)


def probe_all(
    machine: Machine | None = None,
    probes: Sequence[Callable[[Machine], list[Finding]]] = PROBES,
) -> list[Finding]:
    """What all probes found, in their order. A probe that fails is a finding, never a traceback."""
    machine = machine or Machine()

    def safely(probe: Callable[[Machine], list[Finding]]) -> list[Finding]:
        try:
            return probe(machine)
        except Exception as error:
            seen = f"could not be looked at: {type(error).__name__}: {error}"
            return [Finding(probe.__name__, "warn", seen, "Look yourself, and please tell us.")]

    with ThreadPoolExecutor(max_workers=4) as pool:
        return [finding for found in pool.map(safely, probes) for finding in found]
