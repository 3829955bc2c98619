"""The doctor on a real Slurm: on the login node, in a job, with a launcher that does not fit."""

import json
import sys
from pathlib import Path

import pytest

ALLHANDS = str(Path(sys.executable).with_name("allhands"))
ROOT = Path(__file__).parents[2]


def findings(text: str) -> dict[str, dict]:
    return {one["name"]: one for one in json.loads(text)["findings"]}


def test_on_the_login_node_it_sees_the_scheduler_and_which_pmi_fits(box):
    ran = box.run([ALLHANDS, "doctor", "--json"], capture_output=True, text=True)
    found = findings(ran.stdout)
    assert ran.returncode == 0
    assert found["scheduler"]["seen"].startswith("Slurm answers: debug")
    assert found["PMI"]["status"] == "good"
    assert "job" not in found
    assert found["host name"]["seen"].startswith("'ctl' is ")


@pytest.fixture
def job_files(tmp_path):
    """Removes the log and the note of a job whose runs go to this test's folder."""
    yield
    for note in (ROOT / "runs" / "jobs").glob("doctor.*.job"):
        if str(tmp_path) in note.read_text():
            for path in note.parent.glob(f"{note.stem}.*"):
                path.unlink()


@pytest.fixture
def on_a_node(box, job_files, tmp_path):
    """What the doctor says on a compute node, with more environment: (exit code, findings)."""

    def look(*words, **environ):
        settings = [f"{name}={value}" for name, value in environ.items()]
        settings.append(f"ALLHANDS_SCRATCH={tmp_path}")
        command = ["env", *settings, ALLHANDS, "doctor", "--job", "--site", "box", "--json", *words]
        ran = box.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
        assert ran.stdout, ran.stderr
        return ran.returncode, findings(ran.stdout)

    return look


def test_in_a_job_it_sees_the_node_and_starts_ranks_as_labs_do(on_a_node):
    code, found = on_a_node()
    assert code == 0
    assert found["launcher"]["status"] == "good"
    assert "nodes n1" in found["job"]["seen"]
    assert found["host name"]["seen"].startswith("'n1' is ")


def test_a_level_that_the_node_does_not_have_is_the_jobs_exit_code(on_a_node):
    """The box gives a device file that is no GPU: the job has it, the driver is not there."""
    code, found = on_a_node("--level", "gpu")
    assert code == 3
    assert "GPUs 0" in found["job"]["seen"]
    assert found["GPU"]["status"] == "bad"


def test_a_launcher_that_speaks_another_pmi_is_named_twice(box):
    """MPICH cannot speak pmix: the name of the option says so, and so do the ranks."""
    probe = (
        "import json; from dataclasses import asdict; from allhands.doctor import probes; "
        "found = probes.probe_all(probes=[probes.pmi, probes.launcher]); "
        "print(json.dumps({'findings': [asdict(one) for one in found]}))"
    )
    settings = ["env", "ALLHANDS_LAUNCHER=srun --mpi=pmix", "salloc", "--quiet", "-N1", "-n1"]
    ran = box.run([*settings, sys.executable, "-c", probe], capture_output=True, text=True)
    found = findings(ran.stdout.splitlines()[-1])
    for name in ("PMI", "launcher"):
        assert found[name]["status"] == "bad"
        assert "pmi2" in found[name]["advice"]
