"""The doctor sees what a machine has, says at which level the labs run, and never fails itself."""

import io
import json
import threading
from dataclasses import replace

import pytest
from rich.console import Console
from sample_machines import DISK, HOME, PINS, SLURM, SRUN, Laptop, cupy_says, on_slurm, with_gpu

from allhands.doctor import (
    Finding,
    at_level,
    exit_code,
    last_line,
    probe_all,
    probes,
    render,
    report,
    to_json,
    verdict,
    write,
)
from allhands.doctor.machine import Ran


def test_a_laptop_without_a_gpu_is_good():
    findings = probe_all(Laptop())
    assert {finding.status for finding in findings} == {"good"}
    (gpu,) = [finding for finding in findings if finding.name == "GPU"]
    assert "CPU level" in gpu.seen
    assert verdict(findings, "cpu").code == 0
    assert verdict(findings, "cpu").level == "cpu"


def test_a_machine_with_a_gpu_is_good():
    findings = probe_all(with_gpu())
    assert {finding.status for finding in findings} == {"good"}
    seen = {finding.name: finding.seen for finding in findings}
    assert "1 x GPU X" in seen["GPU"]
    assert seen["NCCL"] == "CuPy: 2.22.3, PyTorch: 2.27.5"
    assert verdict(findings, "gpu").level == "gpu"


def test_a_job_on_a_cluster_is_good_and_says_which_it_is():
    machine = on_slurm({**SRUN, "CUDA_VISIBLE_DEVICES": "2"}, disk=replace(DISK, type="nfs4"))
    home = replace(HOME, addresses=("10.0.0.7",), bindable=("10.0.0.7",))
    machine.facts["network"] = home
    findings = probe_all(machine)
    assert {finding.status for finding in findings} == {"good"}
    seen = {finding.name: finding.seen for finding in findings}
    for word in ("Slurm's 7", "n[1-2]", "GPUs 2"):
        assert word in seen["job"]
    assert "--mpi=pmi2 for MPICH" in seen["PMI"]
    assert seen["scheduler"] == "Slurm answers: debug, gpu"


def test_cupy_on_a_login_node_without_a_gpu_is_good():
    machine = Laptop(installed={"cupy-cuda12x": "13.6.0"}, answers=cupy_says(devices=0, nccl=1))
    (finding,) = probes.devices(machine)
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


def test_a_probe_that_never_comes_back_is_a_finding():
    never = threading.Event()

    def waits(machine):
        never.wait()

    findings = probe_all(Laptop(), [waits, probes.python], longest_s=0.05)
    never.set()
    assert [finding.status for finding in findings] == ["warn", "good"]
    assert "no answer" in findings[0].seen


@pytest.mark.parametrize("program", ["nvidia-smi", "sinfo", "qstat"])
def test_a_program_that_is_there_without_what_it_speaks_to_is_no_fault(program):
    """nvidia-smi on a machine without a GPU; Slurm's programs on a laptop; PBS' with no Slurm."""
    answers = {
        "nvidia-smi": Ran(6, "No devices were found\n"),
        "sinfo": Ran(1, "sinfo: fatal: Could not establish a configuration source\n"),
        "--mpi=list": Ran(1, "srun: fatal: Could not establish a configuration source\n"),
        "qstat": Ran(0, "Queue  Max\n----- ---\nworkq  0\n"),
    }
    programs = {"sinfo": SLURM, "qstat": {"qstat": "q", "qsub": "q"}}.get(program, {program: "p"})
    findings = probe_all(Laptop(programs=programs, answers=answers))
    assert {finding.status for finding in findings} == {"good"}
    if program == "qstat":
        assert "PBS answers: workq" in [finding.seen for finding in findings]


# ---- the level ----


@pytest.mark.parametrize(
    ("machine", "asked", "level", "code"),
    [
        (Laptop(), "simulated", "cpu", 0),
        (Laptop(), "cpu", "cpu", 0),
        (Laptop(), "gpu", "cpu", 3),
        (with_gpu(), "cpu", "gpu", 0),
        (with_gpu(), "gpu", "gpu", 0),
        (with_gpu(answers={"nvidia-smi": Ran(None, "")}), "gpu", "cpu", 3),
        (Laptop(missing_files={"mpiexec"}), "simulated", "simulated", 0),
        (Laptop(missing_files={"mpiexec"}), "cpu", "simulated", 3),
        (Laptop(missing_files={"mpiexec"}), "gpu", "simulated", 3),
        (Laptop(installed={"torch": None}), "cpu", "simulated", 3),
        (Laptop(installed={"numpy": None}), "simulated", None, 1),
        (Laptop(python=(3, 10, 0)), "cpu", None, 1),
    ],
)
def test_the_exit_code_says_at_which_level_the_labs_run(machine, asked, level, code):
    findings = probe_all(machine, level=asked)
    assert (verdict(findings, asked).level, verdict(findings, asked).code) == (level, code)
    assert exit_code(findings) == (code != 0)
    content = json.loads(to_json(findings, asked))
    assert (content["level"], content["exit_code"], content["good"]) == (level, code, code == 0)
    if code == 3:
        names = {"simulated": "simulated level only", "cpu": "CPU level only"}
        assert names[level] in last_line(findings, asked)


def test_what_stops_a_higher_level_alone_is_not_bad():
    finding = Finding("x", "bad", "seen", "advice", blocks="gpu")
    assert [at_level([finding], level)[0].status for level in ("simulated", "cpu", "gpu")] == [
        "warn",
        "warn",
        "bad",
    ]


# ---- the report ----

THREE = [
    Finding("a", "good", "well [bold]as written[/bold]"),
    Finding("b", "warn", "hm", "try this"),
    Finding("c", "bad", "no", "do that", "Is it c?", blocks="cpu"),
]


def printed(findings) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(findings, console)
    return console.file.getvalue()


def test_the_report_shows_every_finding_and_its_advice():
    text = printed(THREE)
    assert "Is it c?" in text
    for finding in THREE:
        assert finding.seen in text
        assert finding.advice in text
    assert "what is bad (c)" in text
    assert "1 could be better" in printed(THREE[:2])
    assert "The labs run here, at the GPU level." in printed(THREE[:1])


def test_json_holds_the_same(capsys):
    report(THREE, as_json=True)
    content = json.loads(capsys.readouterr().out)
    assert content["good"] is False
    assert [Finding(**finding) for finding in content["findings"]] == THREE
    assert json.loads(to_json(THREE[:2]))["good"] is True


def test_the_file_for_somebody_who_helps_has_everything_and_no_secret(tmp_path):
    environ = {
        "OMP_NUM_THREADS": "8",
        "PBS_JOBCOOKIE": "s3cret-a",
        "SLURM_JWT": "s3cret-b",
        "JUPYTER_TOKEN": "s3cret-c",
        "ALLHANDS_API_KEY": "s3cret-d",
        "ALLHANDS_SITE_ADDRESS": "https://ann:s3cret-e@host/x",
        "AWS_ANYTHING": "s3cret-f",
    }
    machine = Laptop(environ=environ, installed={"chainer": "7.7"})
    findings = probe_all(machine)
    write(tmp_path / "sub" / "doctor.txt", findings, machine)
    text = (tmp_path / "sub" / "doctor.txt").read_text()
    for finding in findings:
        for part in (finding.name, finding.seen, finding.advice, finding.asked):
            assert part in text
    assert "chainer 7.7" in text
    assert "OMP_NUM_THREADS=8" in text
    assert "PBS_JOBCOOKIE=(set, not shown)" in text
    assert "https://...@host/x" in text
    assert "s3cret" not in text
    assert last_line(findings) in text


def test_a_file_that_ends_in_json_is_json(tmp_path):
    write(tmp_path / "doctor.json", THREE, Laptop(), "gpu")
    assert json.loads((tmp_path / "doctor.json").read_text())["level_asked"] == "gpu"
