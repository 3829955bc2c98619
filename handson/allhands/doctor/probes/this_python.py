"""Are Python, the packages and Chainer those that the labs were tested with?

Chainer is tried in a process of its own, so that a crash or a hang there is a finding here.
"""

import re

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.version import Version

from allhands.doctor.finding import Finding
from allhands.doctor.machine import Machine

PYTHONS = ((3, 11), (3, 13))  # oldest and newest
TIME_LIMIT_S = 90.0  # for a library's first import, from a slow disk of a busy machine
MAKE_ENV = "Make the environment again: make env"
ONLY_FOR_RANKS = {"chainer", "mpi4py", "mpich", "torch"}  # the simulated level needs none of them


def python(machine: Machine) -> list[Finding]:
    version, shown = machine.python, ".".join(map(str, machine.python))
    seen = f"{shown} at {machine.executable}"
    if not PYTHONS[0] <= version[:2] <= PYTHONS[1]:
        advice = "The labs need Python 3.11, 3.12 or 3.13. Install one, then: make env"
        return [Finding("Python", "bad", seen, advice, blocks="simulated")]
    if not machine.in_environment():
        advice = "This is the system's Python. Use the project's: source .venv/bin/activate"
        return [Finding("Python", "warn", seen, advice)]
    return [Finding("Python", "good", seen)]


def packages(machine: Machine) -> list[Finding]:
    """Each pinned package is there, at its version; a local label such as +cpu does not count."""
    lines = machine.requirements()
    if lines is None:
        seen = "allhands itself is not installed"
        return [Finding("packages", "bad", seen, MAKE_ENV, blocks="simulated")]
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
        blocks = "cpu" if set(missing) <= ONLY_FOR_RANKS else "simulated"
        seen = f"missing: {', '.join(missing)}"
        return [Finding("packages", "bad", seen, MAKE_ENV, blocks=blocks)]
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
            blocks="cpu",
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

    def bad(seen: str, advice: str = MAKE_ENV) -> list[Finding]:
        return [Finding("Chainer", "bad", seen, advice, blocks="cpu")]

    ran = machine.run([str(machine.executable), "-c", CHAINER], TIME_LIMIT_S)
    found = re.search(r"chainer (\S+) numpy (\S+) gradient (\S+) (\S+)", ran.output)
    if ran.code is None:
        seen = f"no answer after {TIME_LIMIT_S:.0f} s"
        return bad(seen, "Is the disk slow, or full? Try once more.")
    if ran.code != 0 or not found:
        return bad(f"does not start: {ran.last_line}")
    if (float(found[3]), float(found[4])) != (22.0, 44.0):
        return bad(f"computes wrongly: gradient {found[3]}, {found[4]} instead of 22, 44")
    return [Finding("Chainer", "good", f"{found[1]} computes with NumPy {found[2]}")]


def jupyter(machine: Machine) -> list[Finding]:
    version = machine.version("jupyterlab")
    program = machine.executable.parent / "jupyter-lab"
    if version is None or not machine.has_file(program):
        seen = "JupyterLab is not in this environment"
        return [Finding("Jupyter", "bad", seen, MAKE_ENV, blocks="simulated")]
    if machine.version("ipykernel") is None:
        seen = "no kernel (ipykernel) for notebooks"
        return [Finding("Jupyter", "bad", seen, MAKE_ENV, blocks="simulated")]
    return [Finding("Jupyter", "good", f"JupyterLab {version}")]
