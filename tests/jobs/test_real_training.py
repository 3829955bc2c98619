"""A lab's two job scripts train for real: a tiny translator, with `allhands train` itself."""

import json
import re
import sys
from pathlib import Path

import pytest

LAB = "lab1_seq2seq"
PARALLEL = "lab2_dataparallel"
TINY = {
    **dict.fromkeys(("train", "valid", "test"), "pairs.tsv"),
    **{"batch_size": 4, "n_embed": 4, "n_hidden": 4, "epochs": 1, "evaluate_pairs": 1},
}
SETTINGS = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture
def training(project):
    """The project with 12 pairs (3 updates an epoch), and the trainer of this environment."""
    (project.programs / "allhands").unlink()
    (project.programs / "allhands").symlink_to(Path(sys.executable).parent / "allhands")
    lines = [f"no {number} two\tbango {number} ni\n" for number in range(12)]
    (project.root / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    return project


@pytest.mark.parametrize("kind", ["slurm", "pbs"])
def test_the_script_trains_and_leaves_a_result(training, kind):
    ran = training.submit(LAB, "--script", kind, "--", *SETTINGS)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert training.only("runs/lab1_seq2seq/*/result.json").exists()
    config = json.loads(training.only("runs/lab1_seq2seq/*/config.json").read_text())
    assert config["preset"] == "lab1_cpu"
    assert {key: config[key] for key in TINY} == TINY


# The real trainer, in which every part has time for two updates and no more.
TWO_UPDATES = """
from allhands import cli
from allhands.train.stop import StopTrigger

decide, asked = StopTrigger.__call__, []


def stop_after_two_updates(trigger, trainer):
    asked.append(trainer.updater.iteration)
    if asked[-1] - asked[0] == 2:
        trigger.request("two updates are done")
    return decide(trigger, trainer)


StopTrigger.__call__ = stop_after_two_updates
cli.main()
"""


@pytest.mark.parametrize("kind", ["slurm", "pbs"])
def test_a_training_that_stops_in_time_goes_on_in_the_next_part(training, kind):
    """Nine updates, two a part: five parts, which go on after updates 2, 4, 6 and 8."""
    (training.programs / "allhands").unlink()
    training.python_program("allhands", TWO_UPDATES)
    ran = training.submit(LAB, "--script", kind, "--", *SETTINGS, "--set", "epochs=3")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    log = training.only("runs/jobs/*.log").read_text()
    assert re.findall(r"part (\d), on", log) == ["1", "2", "3", "4", "5"]
    assert re.findall(r"resume from .*snapshot_iter_(\d)", log) == ["2", "4", "6", "8"]
    assert training.only("runs/lab1_seq2seq/*/result.json").exists()


@pytest.fixture
def on_two_ranks(training):
    """The launcher of this environment, which the site's `mpiexec` stands for."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    training.program("mpiexec", f'#!/bin/bash\nexec "{mpiexec}" "$@"\n')
    return training


@pytest.mark.parametrize("kind", ["slurm", "pbs"])
def test_lab_2_trains_on_two_ranks_in_parts(on_two_ranks, kind):
    """Twelve pairs, six a rank: two updates an epoch, and two a part."""
    (on_two_ranks.programs / "allhands").unlink()
    on_two_ranks.python_program("allhands", TWO_UPDATES)
    words = ["--script", kind, "--", *SETTINGS, "--set", "epochs=2"]
    ran = on_two_ranks.submit(PARALLEL, *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    log = on_two_ranks.only("runs/jobs/*.log").read_text()
    assert re.findall(r"part (\d), on", log) == ["1", "2"]
    assert re.findall(r"resume from .*snapshot_iter_(\d)", log) == ["2"]
    result = json.loads(on_two_ranks.only("runs/lab2_dataparallel/*/result.json").read_text())
    assert (result["ranks"], result["n_updates"]) == (2, 4)
