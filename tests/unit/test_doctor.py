"""The doctor names each fault, says what to do, and never fails itself."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from allhands.doctor import Finding, exit_code, probe_all, probes, render, report, to_json
from allhands.doctor.machine import Machine, Ran

PINS = ["chainer==7.8.1", "numpy==1.26.4; python_version < '3.13'", "torch==2.13.0"]
GPU_PINS = ["cupy-cuda12x==13.6.0; extra == 'gpu'"]
GIB = 2**30
CUPY_ON_ONE_GPU = {"devices": 1, "names": ["GPU X"], "sum": 10.0, "nccl": 22203, "cupy": "13.6.0"}


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
            "mpi4py": Ran(0, "\n<rank 1 of 2: MPICH>\n\n<rank 0 of 2: MPICH>\n"),
            **changes.pop("answers", {}),
        }
        self.programs = changes.pop("programs", {})
        self.facts = {
            **{"python": (3, 11, 9), "environ": {"OMP_NUM_THREADS": "1"}, "cores": 4},
            **{"in_environment": True, "requirements": PINS + GPU_PINS, "can_write": True},
            **{"memory_bytes": 8 * GIB, "disk_bytes": 50 * GIB, "missing_files": set()},
            **changes,
        }

    python = property(lambda self: self.facts["python"])
    executable = property(lambda self: Path("/env/bin/python"))
    environ = property(lambda self: self.facts["environ"])

    def in_environment(self):
        return self.facts["in_environment"]

    def has_file(self, path):
        return path.name not in self.facts["missing_files"]

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

    def disk_bytes(self, folder):
        return self.facts["disk_bytes"]

    def can_write(self, folder):
        return self.facts["can_write"]

    def run(self, command, time_limit_s):
        (answer,) = [ran for word, ran in self.answers.items() if word in " ".join(command)]
        return answer


def with_gpu(**changes) -> Laptop:
    """A machine with one GPU, its driver, CuPy and NCCL."""
    changes.setdefault("programs", {"nvidia-smi": "/usr/bin/nvidia-smi"})
    changes.setdefault("installed", {"cupy-cuda12x": "13.6.0"})
    answers = {
        "nvidia-smi": Ran(0, "GPU X, 550.54\n"),
        "import cupy": Ran(0, "a warning\n" + json.dumps(CUPY_ON_ONE_GPU)),
    }
    return Laptop(answers={**answers, **changes.pop("answers", {})}, **changes)


def cupy_says(**changes) -> dict[str, Ran]:
    return {"import cupy": Ran(0, json.dumps({**CUPY_ON_ONE_GPU, **changes}))}


def test_a_laptop_without_a_gpu_is_good():
    findings = probe_all(Laptop())
    assert {finding.status for finding in findings} == {"good"}
    (gpu,) = [finding for finding in findings if finding.name == "GPU"]
    assert "CPU level" in gpu.seen
    assert exit_code(findings) == 0


def test_a_machine_with_a_gpu_is_good():
    findings = probe_all(with_gpu())
    assert {finding.status for finding in findings} == {"good"}
    seen = {finding.name: finding.seen for finding in findings}
    assert "1 x GPU X" in seen["GPU"]
    assert seen["NCCL"] == "22203"


SINGLETONS = Ran(0, "\n<rank 0 of 1: Open MPI>\n\n<rank 0 of 1: Open MPI>\n")
FAULTS = [
    # (what is wrong, machine, finding, status, words of what was seen, words of the advice)
    ("old Python", Laptop(python=(3, 10, 1)), "Python", "bad", "3.10.1", "Python 3.11"),
    ("new Python", Laptop(python=(3, 14, 0)), "Python", "bad", "3.14.0", "Python 3.11"),
    ("no venv", Laptop(in_environment=False), "Python", "warn", "3.11.9", "activate"),
    ("not installed", Laptop(requirements=None), "packages", "bad", "allhands", "make env"),
    ("missing", Laptop(installed={"torch": None}), "packages", "bad", "torch", "make env"),
    (
        "wrong version",
        Laptop(installed={"numpy": "2.4.6"}),
        "packages",
        "warn",
        "numpy 2.4.6 (pinned: ==1.26.4)",
        "make env",
    ),
    (
        "intruder",
        Laptop(installed={"chainermn": "1.3.1"}),
        "chainermn",
        "bad",
        "chainermn 1.3.1",
        "pip uninstall chainermn",
    ),
    (
        "Chainer does not start",
        Laptop(answers={"numpy.array": Ran(1, "Traceback\nModuleNotFoundError: No module X\n")}),
        "Chainer",
        "bad",
        "ModuleNotFoundError: No module X",
        "make env",
    ),
    (
        "Chainer crashes",
        Laptop(answers={"numpy.array": Ran(-11, "")}),
        "Chainer",
        "bad",
        "no output",
        "make env",
    ),
    (
        "Chainer computes wrongly",
        Laptop(answers={"numpy.array": Ran(0, "chainer 7.8.1 numpy 1.26.4 gradient 22.0 0.0\n")}),
        "Chainer",
        "bad",
        "instead of 22, 44",
        "make env",
    ),
    (
        "Chainer hangs",
        Laptop(answers={"numpy.array": Ran(None, "")}),
        "Chainer",
        "bad",
        "no answer",
        "disk",
    ),
    (
        "two worlds of size 1",
        Laptop(answers={"mpi4py": SINGLETONS}),
        "MPI",
        "bad",
        "two worlds of size 1 (Open MPI)",
        "same MPI",
    ),
    (
        "mpiexec hangs",
        Laptop(answers={"mpi4py": Ran(None, "")}),
        "MPI",
        "bad",
        "was ended after",
        "firewall",
    ),
    (
        "no mpi4py",
        Laptop(answers={"mpi4py": Ran(1, "ModuleNotFoundError: No module named 'mpi4py'\n")}),
        "MPI",
        "bad",
        "No module named 'mpi4py'",
        "make env",
    ),
    (
        "one rank died",
        Laptop(answers={"mpi4py": Ran(0, "<rank 0 of 2: MPICH>\n")}),
        "MPI",
        "bad",
        "failed",
        "must fit",
    ),
    ("no mpiexec", Laptop(missing_files={"mpiexec"}), "MPI", "bad", "no mpiexec", "make env"),
    (
        "mpiexec from elsewhere",
        Laptop(missing_files={"mpiexec"}, programs={"mpiexec": "/usr/bin/mpiexec"}),
        "MPI",
        "warn",
        "/usr/bin/mpiexec",
        "in full",
    ),
    ("one core", Laptop(cores=1), "cores", "warn", "1", "speed-up"),
    ("little memory", Laptop(memory_bytes=GIB), "memory", "warn", "1.0 GiB", "2 GiB"),
    ("little disk", Laptop(disk_bytes=GIB // 2), "disk", "warn", "0.5 GiB", "old runs"),
    ("full disk", Laptop(disk_bytes=GIB // 100), "disk", "bad", "0.0 GiB", "old runs"),
    ("read-only", Laptop(can_write=False), "disk", "bad", "cannot write", "folder of your own"),
    ("threads unset", Laptop(environ={}), "threads", "warn", "all 4 cores", "OMP_NUM_THREADS=1"),
    (
        "many threads",
        Laptop(environ={"OMP_NUM_THREADS": "8"}),
        "threads",
        "warn",
        "OMP_NUM_THREADS=8",
        "OMP_NUM_THREADS=1",
    ),
    ("no lab", Laptop(missing_files={"jupyter-lab"}), "Jupyter", "bad", "JupyterLab", "make env"),
    (
        "no JupyterLab",
        Laptop(installed={"jupyterlab": None}),
        "Jupyter",
        "bad",
        "JupyterLab",
        "make env",
    ),
    (
        "no kernel",
        Laptop(installed={"ipykernel": None}),
        "Jupyter",
        "bad",
        "ipykernel",
        "make env",
    ),
    ("GPU, no CuPy", with_gpu(installed={}), "GPU", "warn", "no CuPy", "[gpu]"),
    (
        "CuPy does not start",
        with_gpu(answers={"import cupy": Ran(1, "ImportError: libcublas.so.12\n")}),
        "GPU",
        "warn",
        "libcublas.so.12",
        "CUDA version",
    ),
    (
        "CuPy sees none",
        with_gpu(answers=cupy_says(devices=0)),
        "GPU",
        "warn",
        "GPU X",
        "CUDA_VISIBLE_DEVICES",
    ),
    ("wrong sum", with_gpu(answers=cupy_says(sum=0.0)), "GPU", "bad", "is 0.0", "make env"),
    (
        "no NCCL",
        with_gpu(answers=cupy_says(nccl=None, nccl_error="libnccl.so.2")),
        "NCCL",
        "warn",
        "libnccl.so.2",
        "nvidia-nccl",
    ),
]


@pytest.mark.parametrize(
    ("machine", "name", "status", "seen", "advice"),
    [fault[1:] for fault in FAULTS],
    ids=[fault[0] for fault in FAULTS],
)
def test_each_fault_is_named_with_its_cure_and_nothing_else_is(machine, name, status, seen, advice):
    findings = probe_all(machine)
    (fault,) = [finding for finding in findings if finding.status != "good"]
    assert (fault.name, fault.status) == (name, status)
    assert seen in fault.seen
    assert advice in fault.advice
    assert exit_code(findings) == (1 if status == "bad" else 0)


def test_cupy_on_a_login_node_without_a_gpu_is_good():
    machine = Laptop(installed={"cupy-cuda12x": "13.6.0"}, answers=cupy_says(devices=0, nccl=1))
    (finding,) = probes.gpu(machine)
    assert finding.status == "good"
    assert "CPU level" in finding.seen


@pytest.mark.parametrize(("python", "numpy"), [((3, 12, 1), "1.26.4"), ((3, 13, 0), "2.2.6")])
def test_a_pin_for_another_python_does_not_count(python, numpy):
    pins = [*PINS, "numpy==2.2.6; python_version >= '3.13'"]
    machine = Laptop(python=python, requirements=pins, installed={"numpy": numpy})
    assert {finding.status for finding in probe_all(machine)} == {"good"}


def test_a_probe_that_fails_is_a_finding_and_the_others_still_run():
    def broken(machine):
        raise RuntimeError("no such thing")

    findings = probe_all(Laptop(), [broken, probes.python])
    assert [finding.name for finding in findings] == ["broken", "Python"]
    assert findings[0].status == "warn"
    assert "RuntimeError: no such thing" in findings[0].seen


def test_every_finding_that_is_not_good_has_advice():
    for fault in FAULTS:
        for finding in probe_all(fault[1]):
            assert bool(finding.advice) == (finding.status != "good"), finding


# ---- the report ----

THREE = [
    Finding("a", "good", "well [bold]as written[/bold]"),
    Finding("b", "warn", "hm", "try this"),
    Finding("c", "bad", "no", "do that"),
]


def printed(findings) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(findings, console)
    return console.file.getvalue()


def test_the_report_shows_every_finding_and_its_advice():
    text = printed(THREE)
    for finding in THREE:
        assert finding.seen in text
        assert finding.advice in text
    assert "1 bad" in text
    assert "1 could be better" in printed(THREE[:2])
    assert "The labs run here." in printed(THREE[:1])


def test_json_holds_the_same(capsys):
    report(THREE, as_json=True)
    content = json.loads(capsys.readouterr().out)
    assert content["good"] is False
    assert [Finding(**finding) for finding in content["findings"]] == THREE
    assert json.loads(to_json(THREE[:2]))["good"] is True
