"""Following a job to its end: what `--wait` says of the queue, the time and the log, and when.

The scheduler is a stand-in that takes the job and runs nothing.
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "cluster_jobs/lib"))
import follow
import schedulers

LAB = "lab1_seq2seq"


@pytest.fixture
def slurm(project):
    project.site("my_site", "ALLHANDS_SCHEDULER=slurm\n")
    project.program("sbatch", "#!/bin/bash\necho 7\n")
    return project


def wait(project, **more: str):
    return project.submit(LAB, "--site", "my_site", "--wait", **more)


def test_whatever_bytes_a_log_holds_are_passed_on(slurm):
    """A stand-in that has run the job to its end before it answers."""
    slurm.program(
        "sbatch",
        r"""#!/bin/bash
note=$(ls runs/jobs/*.job)
printf 'a \xff\xe3\x81\x82 b\n' > "${note%.job}.log"
echo ALLHANDS_ENDED=0 >> "$note"
echo 7
""",
    )
    ran = subprocess.run(
        slurm.command(LAB, "--site", "my_site", "--wait"),
        env=slurm.environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert b"a \xff\xe3\x81\x82 b\n" in ran.stdout


def test_a_job_that_vanished_is_said(slurm):
    slurm.program("squeue", "#!/bin/bash\n")
    ran = wait(slurm)
    assert ran.returncode == 1
    assert "The scheduler no longer knows job 7, and the job did not say how it ended" in ran.stdout


def test_wait_says_the_state_and_its_reason_once_and_again_when_it_changes(slurm):
    """Asked many times, said once: a job that waits for nodes, then runs, then ends."""
    slurm.program(
        "squeue",
        """#!/bin/bash
echo x >> times
n=$(wc -l < times)
[ $n -gt 3 ] || { echo 'PENDING|Priority'; exit; }
[ $n -gt 6 ] || { echo 'PENDING|Resources'; exit; }
[ $n -gt 9 ] || { echo 'RUNNING|None'; exit; }
echo ALLHANDS_ENDED=4 >> runs/jobs/*.job
""",
    )
    ran = wait(slurm, ALLHANDS_POLL_S="0.01")
    assert ran.returncode == 4
    said = re.findall(r"^\[\d\d:\d\d:\d\d\] (.*)$", ran.stdout, re.MULTILINE)
    assert said == ["Pending (Priority)", "Pending (Resources)", "Running"]


def test_the_time_that_is_used_is_said_a_tenth_of_the_limit_at_a_time(monkeypatch, capsys):
    job = follow_job(limit_s=3600)
    progress = follow.Progress(job)
    for used_s in (0, 100, 359, 361, 500, 719, 3000):
        monkeypatch.setattr(follow.time, "time", lambda now=1000 + used_s: now)
        progress.used({"ALLHANDS_STARTED": "1000"})
    said = re.findall(r"\] (.*)", capsys.readouterr().out)
    assert said == ["Running: 00:06:01 of 01:00:00", "Running: 00:50:00 of 01:00:00"]


def follow_job(limit_s):
    return type("Job", (), {"limit_s": limit_s})()


@pytest.mark.parametrize(
    ("scheduler", "text", "state"),
    [
        ("slurm", "PENDING|Resources\n", ("PENDING", "Resources")),
        ("slurm", "RUNNING|None\n", ("RUNNING", "")),
        ("slurm", "", None),
        (
            "pbs",
            "Job Id: 4.s\n    job_state = Q\n    comment = Not Running: Insufficient amount\n"
            "\tof resource: ncpus\n",
            ("Q", "Not Running: Insufficient amountof resource: ncpus"),
        ),
        ("pbs", "Job Id: 4.s\n    job_state = R\n    comment = Job run at Mon\n", ("R", "")),
        ("pbs", "", None),
        ("sge", "job-ID prior name user state\n----\n  4 0.55 lab1 r qw 11/30 1\n", ("qw", "")),
        ("sge", "  41 0.55 lab1 r r 11/30 1\n", None),
        ("pjm", "JOB_ID NAME MD ST USER\n4 lab1 NM QUE r\n", ("QUE", "")),
        ("pjm", "JOB_ID NAME STATUS PROJECT\n4 lab1 RUNNING gr\n", ("RUNNING", "")),
    ],
)
def test_the_answers_of_each_scheduler_about_job_4(scheduler, text, state):
    assert schedulers.SCHEDULERS[scheduler].state_of(text, "4") == state


def test_interrupting_wait_leaves_the_job_and_says_how_to_end_it(slurm):
    slurm.program("squeue", "#!/bin/bash\ntouch asked_for_state\necho RUNNING\\|None\n")
    with subprocess.Popen(
        slurm.command(LAB, "--site", "my_site", "--wait"),
        env=slurm.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        slurm.wait_for("asked_for_state", running)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Job 7 goes on; to end it: scancel 7" in output
