"""What jobs do on Slurm: arrays, dependencies, exit codes, the time limit, and the end of ranks."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

SEEDS = """#!/bin/bash
#SBATCH --job-name=seeds
#SBATCH --array=0-2
#SBATCH --time=00:05:00
. "$SLURM_SUBMIT_DIR/cluster_jobs/lib/run.sh"
run allhands train lab1_cpu --out "$ALLHANDS_RUN" --set seed=$SLURM_ARRAY_TASK_ID {tiny}
again_if_85 $?
"""


LIMIT_TEST = "test_before_the_time_limit_a_job_saves_goes_back_into_the_queue_and_ends"


@pytest.fixture
def exits(slurm):
    """A job that ends with a code; returns its script."""
    return lambda code: slurm.script(f"exit{code}.sh", f"#!/bin/bash\nexit {code}\n")


def state(slurm, job: str) -> str:
    """JobState, and the reason if it waits."""
    shown = slurm.run("scontrol", "--oneliner", "show", "job", job).stdout
    found, reason = (re.search(rf"{name}=(\S+)", shown)[1] for name in ("JobState", "Reason"))
    return f"{found} {reason}" if found == "PENDING" else found


def sbatch(slurm, *words: object) -> str:
    ran = slurm.run("sbatch", "--parsable", "--output=/dev/null", "--time=1", *words)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout.strip()


def train_three_seeds(slurm, tiny):
    script = slurm.script("seeds.slurm", SEEDS.format(tiny=" ".join(tiny)))
    return slurm.run("sbatch", "--wait", "--output=seeds.%a.out", script)


def train_until_the_limit(project, tiny):
    """Six updates: the trainer's clock stops part 1 after three, and part 2 goes on there."""
    return project.submit("lab1_seq2seq", "--", *tiny, "--set", "epochs=2", "--stop-after", "4")


@pytest.fixture(scope="session")
def begun(slurm, ticking, tiny, begin):
    """What takes long, beside the other tests."""
    project = ticking(slurm)
    limit = (train_until_the_limit, project, tiny)
    return {
        "project": project,
        "seeds": begin(
            __file__, "test_an_array_trains_with_three_seeds", train_three_seeds, slurm, tiny
        ),
        "limit": begin(__file__, LIMIT_TEST, *limit),
    }


@pytest.fixture(scope="session", autouse=True)
def _begin(begun):
    """Begin with the first test of this file."""


def test_an_array_trains_with_three_seeds(slurm, begun):
    ran = begun["seeds"].result()
    assert ran.returncode == 0, ran.stdout
    folders = list(slurm.root.glob("runs/seeds/*"))
    configs = [json.loads((folder / "config.json").read_text()) for folder in folders]
    assert sorted(config["seed"] for config in configs) == [0, 1, 2]
    losses = {json.loads((folder / "result.json").read_text())["test_loss"] for folder in folders}
    assert len(losses) == 3


def test_a_dependency_waits_for_a_good_end_and_never_starts_after_a_bad_one(slurm, exits, until):
    good, bad = sbatch(slurm, "--hold", exits(0)), sbatch(slurm, exits(3))
    after_good = sbatch(slurm, f"--dependency=afterok:{good}", exits(0))
    after_bad = sbatch(slurm, f"--dependency=afterok:{bad}", exits(0))
    whatever = sbatch(slurm, f"--dependency=afterany:{bad}", exits(0))
    assert state(slurm, after_good) == "PENDING Dependency"
    assert slurm.run("scontrol", "release", good).returncode == 0
    until(lambda: state(slurm, after_good) == "COMPLETED", "end of the job after a good one")
    until(lambda: state(slurm, whatever) == "COMPLETED", "end of the job after any end")
    assert state(slurm, bad) == "FAILED"
    never = "PENDING DependencyNeverSatisfied"
    until(lambda: state(slurm, after_bad) == never, "word that the dependency cannot be met")


def test_a_failing_jobs_exit_code_comes_through(slurm, exits):
    waited = slurm.run("sbatch", "--wait", "--output=/dev/null", "--time=1", exits(7))
    assert waited.returncode == 7


def test_a_failing_rank_fails_the_lab(slurm):
    """Bug 1 as it is committed fails on purpose; `submit --wait` ends with the job's own code."""
    ran = slurm.submit("bug1_errorcount")
    said = re.search(r"ended with exit code (\d+)", ran.stdout)
    assert said, ran.stdout
    assert ran.returncode == int(said[1]) != 0
    assert "TypeError" in slurm.log("bug1_errorcount")


def test_before_the_time_limit_a_job_saves_goes_back_into_the_queue_and_ends(begun):
    project, ran = begun["project"], begun["limit"].result()
    assert ran.returncode == 0, ran.stdout
    log = project.log("lab1_seq2seq")
    parts = re.findall(r"job (\d+), part (\d)", log)
    assert [part for _, part in parts] == ["1", "2"]
    assert len({job for job, _ in parts}) == 1, "a requeued job keeps its id"
    assert re.findall(r"resume from .*snapshot_iter_(\d+)", log) == ["3"]
    (result,) = project.root.glob("runs/lab1_seq2seq/*/result.json")
    assert json.loads(result.read_text())["n_updates"] == 6
    shown = project.run("scontrol", "show", "job", parts[0][0]).stdout
    assert "Restarts=1" in shown


def test_scancel_leaves_no_rank(slurm, tiny, until, processes_with):
    corpus = f"cancel-{os.getpid()}-slurm.tsv"
    (slurm.root / corpus).write_text((slurm.root / "pairs.tsv").read_text())
    settings = [*tiny, "--set", f"train={corpus}", "--set", "epochs=100000"]
    shape = ("--nodes", "2", "--ranks-per-node", "1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(slurm.submit, "lab2_dataparallel", *shape, "--", *settings)

        def trains() -> bool:
            return any(
                "run folder" in p.read_text() for p in slurm.root.glob("runs/jobs/lab2*.log")
            )

        until(lambda: trains() or waiting.done(), "training")
        (note,) = slurm.root.glob("runs/jobs/lab2_dataparallel.*.job")
        job = re.search(r"^ALLHANDS_JOB_ID=(\d+)", note.read_text(), re.MULTILINE)[1]
        assert processes_with(f"train={corpus}"), waiting.result().stdout
        assert slurm.run("scancel", job).returncode == 0
        until(lambda: len(processes_with(f"train={corpus}")) <= 2, "end of the ranks")
        assert waiting.result().returncode not in (0, 2)
    assert processes_with(f"train={corpus}") == []
    assert state(slurm, job) == "CANCELLED"
