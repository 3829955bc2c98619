"""`allhands doctor` as a command: its level, its exit code, its files, and its way to a node."""

import json
import os
import subprocess
import sys

import pytest
from sample_machines import Laptop
from typer.testing import CliRunner

from allhands.cli import app
from allhands.doctor import on_node


@pytest.fixture
def doctor(monkeypatch):
    """Run the command on a machine that is given."""

    def run(machine, *arguments):
        monkeypatch.setattr("allhands.doctor.machine.Machine", lambda: machine)
        return CliRunner().invoke(app, ["doctor", *map(str, arguments)])

    return run


@pytest.mark.parametrize(
    ("machine", "arguments", "code", "line"),
    [
        (Laptop(), [], 0, "The labs run here, at the CPU level."),
        (Laptop(), ["--level", "gpu"], 3, "at the CPU level only, not at the GPU level."),
        (Laptop(missing_files={"mpiexec"}), [], 3, "at the simulated level only"),
        (Laptop(missing_files={"mpiexec"}), ["--level", "simulated"], 0, "the simulated level"),
        (Laptop(requirements=None), [], 1, "The labs do not run here."),
    ],
)
def test_the_last_line_and_the_exit_code_say_the_level(doctor, machine, arguments, code, line):
    ran = doctor(machine, *arguments)
    assert ran.exit_code == code
    assert line in " ".join(ran.output.split())


def test_json_and_files_say_the_same(doctor, tmp_path):
    files = tmp_path / "a" / "doctor.txt", tmp_path / "a" / "doctor.json"
    ran = doctor(Laptop(), "--json", "--file", files[0], "--file", files[1])
    content = json.loads(ran.stdout)
    assert content == json.loads(files[1].read_text())
    assert content["level"] == "cpu"
    for finding in content["findings"]:
        assert finding["seen"] in files[0].read_text()


def test_any_terminal_and_any_file_takes_any_name(tmp_path, monkeypatch):
    """A folder whose name is no UTF-8, a terminal that knows ASCII alone, and one of 20 columns."""
    folder = tmp_path / os.fsdecode("café ".encode() + b"\xff")
    folder.mkdir()
    code = "from allhands.cli import app; import allhands.doctor as doctor\n"
    code += "from allhands.doctor import probes\n"
    code += "full = doctor.probe_all\n"
    code += "doctor.probe_all = lambda m, level: full(m, [probes.scratch, probes.python], level)\n"
    code += "app()"
    command = [
        sys.executable,
        "-c",
        code,
        "doctor",
        "--file",
        "report.txt",
        "--file",
        "report.json",
    ]
    environ = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "20"}
    for more in ([], ["--json"]):
        ran = subprocess.run([*command, *more], cwd=folder, env=environ, capture_output=True)
        assert ran.returncode == 0, ran.stderr
    content = json.loads(ran.stdout)
    assert any(str(folder) in one["seen"] for one in content["findings"])
    assert content == json.loads((folder / "report.json").read_text())
    assert "folder: " in (folder / "report.txt").read_text()


def test_a_narrow_terminal_cuts_no_word(doctor, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    ran = doctor(Laptop())
    assert "…" not in ran.output
    assert "open files" in ran.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--level", "high"], "no level 'high'. The levels are: simulated, cpu, gpu"),
        (["--site", "local"], "give --job too"),
        (["--job", "--file", "x"], "leave out --file"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_sentence(doctor, arguments, words):
    ran = doctor(Laptop(), *arguments)
    assert ran.exit_code == 2
    assert words in ran.output


def test_a_file_that_cannot_be_written_is_told_after_the_report(doctor, tmp_path):
    (tmp_path / "taken").write_text("")
    ran = doctor(Laptop(), "--file", tmp_path / "taken" / "doctor.txt")
    assert ran.exit_code == 2
    assert "The labs run here" in ran.output
    assert "taken" in ran.output.splitlines()[-1]


# ---- on a compute node: cluster_jobs/submit does it, here one that only says what it is told ----

SUBMIT = """
import json, os, sys
print("script   doctor: 1 node")
print("[job] words", json.dumps(sys.argv[1:]), "level", os.environ.get("ALLHANDS_LEVEL"))
if "--json" in sys.argv:
    print(json.dumps({"level": "cpu"}, indent=2))
print("[job] the end")
sys.exit(3)
"""


@pytest.fixture
def submit(tmp_path):
    path = tmp_path / "submit"
    path.write_text(SUBMIT)
    return path


def test_the_job_is_submitted_and_waited_for_and_its_code_comes_back(submit, capfd):
    assert on_node.send("there", "gpu", as_json=False, submit=submit) == 3
    said = capfd.readouterr().out
    assert '["doctor", "--wait", "--site", "there", "--", "--level", "gpu"] level gpu' in said


def test_the_nodes_json_comes_alone(submit, capfd, monkeypatch):
    monkeypatch.delenv("ALLHANDS_LEVEL", raising=False)
    assert on_node.send(None, None, as_json=True, submit=submit) == 3
    out, err = capfd.readouterr()
    assert json.loads(out) == {"level": "cpu"}
    assert '["doctor", "--wait", "--", "--json"] level None' in err


def test_without_a_clone_there_is_no_job(tmp_path):
    with pytest.raises(FileNotFoundError, match="needs a clone"):
        on_node.command(None, None, tmp_path / "submit")


def test_the_last_object_of_a_log_is_found():
    log = ["{", '  "a": 1', "}", "text { }", "{", '  "b": {', '    "c": 2', "  }", "}", "end"]
    assert json.loads(on_node.json_object(log)) == {"b": {"c": 2}}
    assert on_node.json_object(["nothing"]) == "{}"


@pytest.fixture
def job_files(tmp_path):
    """Removes the log and the note of a job whose runs go to this test's folder."""
    yield
    for note in (on_node.SUBMIT.parents[1] / "runs" / "jobs").glob("doctor.*.job"):
        if str(tmp_path) in note.read_text():
            for path in note.parent.glob(f"{note.stem}.*"):
                path.unlink()


def test_on_this_machine_the_job_leaves_its_files(job_files, tmp_path, capfd, monkeypatch):
    """The real `submit`, without a scheduler. Runs go to another folder, the job's log too."""
    monkeypatch.setenv("ALLHANDS_SCRATCH", str(tmp_path))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    code = on_node.send("local", "cpu", as_json=True)
    found = json.loads(capfd.readouterr().out)
    assert found["exit_code"] == code == 0
    assert "launcher" in {finding["name"] for finding in found["findings"]}
    (text,) = tmp_path.glob("runs/doctor/*/doctor.txt")
    assert "The labs run here" in text.read_text()
