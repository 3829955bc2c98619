"""Scripts that are not labs: what a script may leave out, and what lib/run.sh does for it."""

import re
import shlex
import subprocess

import pytest

PLACE = {"ALLHANDS_QUEUE": "long", "ALLHANDS_ACCOUNT": "gr01"}
PLAIN = """#!/bin/bash
{header}
. "${{SLURM_SUBMIT_DIR:-${{PBS_O_WORKDIR:-.}}}}/cluster_jobs/lib/run.sh"
at_end 'echo first >> ended'
at_end 'echo second >> ended'
say "here with $ALLHANDS_RANKS rank"
exit 3
"""


@pytest.fixture
def plain(project):
    """A script that needs nothing, runs nothing through `run`, and says when it ends."""
    script = project.root / "cluster_jobs/plain.slurm"
    script.write_text(PLAIN.format(header=""))
    return project


def test_a_script_without_needs_is_one_rank_for_half_an_hour(plain):
    ran = plain.submit("plain", "--site", "slurm-generic", "--dry-run", **PLACE)
    assert ran.returncode == 0, ran.stderr
    assert "plain: 1 node, 1 rank, 0 GPUs, at most 00:30:00" in ran.stdout
    (line,) = re.findall(r"^command  (.*)$", ran.stdout, re.MULTILINE)
    assert "--time=00:30:00" in shlex.split(line)
    refused = plain.submit("plain", "--nodes", "2")
    assert refused.returncode == 2
    assert "plain was asked to run on 2 nodes; it runs on 1." in refused.stderr


def test_a_script_that_grows_takes_more_ranks(plain):
    (plain.root / "cluster_jobs/plain.slurm").write_text(PLAIN.format(header="#NEEDS grows=1"))
    words = ["plain", "--site", "slurm-generic", "--nodes", "2", "--ranks", "4", "--dry-run"]
    assert " --nodes=2 --ntasks-per-node=2 " in plain.submit(*words, **PLACE).stdout


def test_what_a_script_wants_done_at_its_end_is_done_and_its_code_kept(plain):
    ran = plain.submit("plain")
    assert ran.returncode == 3
    assert (plain.root / "ended").read_text() == "first\nsecond\n"
    assert "ALLHANDS_ENDED=3\n" in plain.only("runs/jobs/*.job").read_text()
    assert "here with 1 rank" in plain.only("runs/jobs/*.log").read_text()


def test_the_files_of_a_private_job_are_for_its_owner_alone(plain):
    (plain.root / "cluster_jobs/plain.slurm").write_text(PLAIN.format(header="#NEEDS private=1"))
    plain.submit("plain")
    for kind in ("job", "log"):
        assert plain.only(f"runs/jobs/*.{kind}").stat().st_mode & 0o077 == 0, kind


@pytest.mark.parametrize(("granted", "says"), [("1", True), ("2", False), ("96", False)])
def test_less_room_than_ranks_is_said_before_the_launcher_starts(plain, granted, says):
    """Grid Engine counts cores where whole nodes are asked for, so more is no fault."""
    environment = plain.environment(
        ALLHANDS_SITE="slurm-generic", ALLHANDS_RANKS="2", SLURM_NTASKS=granted, SLURM_JOB_ID="1"
    )
    ran = subprocess.run(
        ["bash", "cluster_jobs/plain.slurm"],
        cwd=plain.root,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 3
    assert ("gave room for 1 ranks, and 2 are wanted" in ran.stderr) == says
