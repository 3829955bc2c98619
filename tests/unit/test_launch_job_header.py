"""A job script's header is read by sbatch's rules; `submit` is called, and its words come back."""

import os
import sys

import pytest

from allhands import launch
from allhands.launch import by_script
from allhands.launch.job_header import header, limit_s

SCRIPT = """#!/bin/bash
#SBATCH --job-name=first
# a comment
# SBATCH --nodes=9
 #SBATCH --nodes=8
"""


def test_a_header_line_begins_exactly_so_at_the_left_edge():
    text = SCRIPT.replace(" #SBATCH --nodes=8\n", "#SBATCH --nodes=2\n")
    assert header(text) == {"--job-name": "first", "--nodes": "2"}


def test_no_header_counts_after_the_first_command():
    assert header(SCRIPT + "#SBATCH --nodes=2\n") == {"--job-name": "first"}
    assert header("#SBATCH --requeue\necho\n#SBATCH --nodes=2\n") == {"--requeue": ""}
    assert header("#SBATCH --requeue\n\n#SBATCH --nodes=2\n") == {"--requeue": "", "--nodes": "2"}


def test_all_ways_to_write_an_option():
    text = "#SBATCH -N 2 --ntasks-per-node 3 --time=10  # ten minutes\n#SBATCH --time=20\n"
    assert header(text) == {"--nodes": "2", "--ntasks-per-node": "3", "--time": "20"}
    assert header("#SBATCH -N2 -t10") == {"--nodes": "2", "--time": "10"}
    assert header("#SBATCH --nodes='2' --comment=\"a b\"") == {"--nodes": "2", "--comment": "a b"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("00:10", 10),
        ("00:10:00", 600),
        ("1-00", 86400),
        ("1-00:30", 88200),
        ("0-0:0:5", 5),
    ],
)
def test_time_limits_are_read_as_sbatch_reads_them(text, seconds):
    assert limit_s(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "10m", "1:2:3:4", "-5"])
def test_another_form_of_time_is_refused(text):
    with pytest.raises(ValueError, match="Write hours:minutes:seconds, such as 00:10:00"):
        limit_s(text)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "cluster_jobs").mkdir()
    return tmp_path


def test_submit_runs_in_the_project_with_this_environment_and_prints_as_it_goes(project, capfd):
    program = "import os, sys\nprint(os.getcwd(), *sys.argv[1:])\nprint(os.environ['PATH'])\n"
    program += "print('SLURM_JOB_ID' in os.environ)\nsys.exit(3)\n"
    (project / "cluster_jobs" / "submit").write_text(program)
    environ = {**os.environ, "SLURM_JOB_ID": "9"}
    sent = by_script.submit("lab", "--site", "x", project=project, environ=environ)
    where, path, in_a_job = sent.text.splitlines()
    assert sent.code == 3
    assert where == f"{project} lab --site x"
    assert path.split(os.pathsep)[0] == os.path.dirname(sys.executable)
    assert in_a_job == "False"  # what an outer job says would mislead this one
    assert capfd.readouterr().out == sent.text


def test_the_run_folder_is_that_of_the_last_job_that_has_ended(project):
    jobs = project / "runs" / "jobs"
    with pytest.raises(launch.LaunchError, match="no job of lab has ended yet"):
        by_script.run_folder("lab", project)
    jobs.mkdir(parents=True)
    ended = "[job] job 1 ended with exit code 0. Run folder: "
    for folder in ("my scratch/lab/2", "runs/lab/1", "runs/other/4"):
        (project / folder).mkdir(parents=True)
    elsewhere = project / "my scratch" / "lab" / "2"
    texts = {"lab.2": f"{ended}{elsewhere}\n", "lab.1": f"{ended}runs/lab/1\n"}
    texts |= {"lab.3": "[job] job 3, part 1\n", "other.4": f"{ended}runs/other/4\n"}
    texts |= {"lab.5": f"{ended}runs/lab/gone\n"}
    for second, (name, text) in enumerate(texts.items()):
        (jobs / f"{name}.log").write_text(text)
        os.utime(jobs / f"{name}.log", (second, second))
    assert by_script.run_folder("lab", project) == project / "runs/lab/1"
    (jobs / "lab.1.log").unlink()
    assert by_script.run_folder("lab", project) == elsewhere


def test_without_the_repository_there_is_a_sentence(tmp_path):
    with pytest.raises(launch.LaunchError, match="the job scripts are in the project's repository"):
        by_script.submit("lab", project=tmp_path)
