"""A job's processes are found, wherever they went, and its records are read whole."""

import os
import signal
import subprocess
import sys

import pytest

from allhands.launch import job as job_module
from allhands.launch.job import Job, world

# Starts a process without a parent and, at argv[1], without an environment; says its pid; waits.
FATHER = """
import os, signal, sys
pause = [sys.executable, "-c", "import signal; signal.pause()"]
if os.fork() == 0:
    print(os.getpid(), flush=True)
    os.execve(pause[0], pause, {} if sys.argv[1] == "bare" else os.environ)
sys.argv[2] == "dies" or signal.pause()
"""


@pytest.fixture
def job(tmp_path) -> Job:
    return Job(f"id-{tmp_path.name}-{os.getpid()}", tmp_path, 2)


@pytest.fixture
def family(job):
    """family(how the child is, what the father does) -> (the father, the child's pid)"""
    fathers = []

    def start(child: str, father: str) -> tuple[subprocess.Popen, int]:
        process = subprocess.Popen(
            [sys.executable, "-c", FATHER, child, father],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | job.environ(),
        )
        fathers.append(process)
        pid = int(process.stdout.readline())
        if father == "dies":
            process.wait()
        return process, pid

    yield start
    for process in fathers:
        job.end(ancestor=process.pid)
        process.kill()
        process.communicate()


@pytest.mark.skipif(not job_module.PROC.exists(), reason="this system has no /proc")
class TestProcesses:
    def test_a_process_whose_parent_has_died_is_found_by_its_environment(self, job, family):
        _, child = family("marked", "dies")
        assert job.processes() == {child}
        job.end()
        assert job.processes() == set()

    def test_a_process_that_cleared_its_environment_is_found_as_a_descendant(self, job, family):
        father, child = family("bare", "lives")
        assert job.processes(ancestor=father.pid) == {child}
        job.end(ancestor=father.pid)
        assert father.poll() is None  # the ancestor itself is spared

    def test_the_processes_of_another_job_are_not_touched(self, job, family, tmp_path):
        _, child = family("marked", "lives")
        other = Job(job.id[:-1], tmp_path, 2)  # the one id begins with the other
        assert other.processes() == set()
        other.end()
        os.kill(child, 0)  # raises if it is gone


def test_without_proc_the_ranks_are_known_by_their_files(job, monkeypatch, tmp_path):
    monkeypatch.setattr(job_module, "PROC", tmp_path / "nowhere")
    sleeper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    job.write("rank0.pid", pid=sleeper.pid)
    assert job.processes() == {sleeper.pid}
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    assert job.processes() == set()


def test_a_record_is_read_as_it_was_written_and_a_missing_one_is_none(job):
    job.write("rank0.raised", what="raised ValueError: 猫")
    assert job.read("rank0.raised")["what"] == "raised ValueError: 猫"
    assert job.read("rank1.raised") is None
    assert [path.name for path in job.folder.iterdir()] == ["rank0.raised"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"", ""),
        (b"one\ntwo\r\nsix\n", "one\ntwo\nsix\n"),  # 13 bytes, and 20 are kept
        (b"0123456\n" * 4, "0123456\n[17 of 32 bytes are left out here]\n0123456\n"),
        (b"x" * 30, "x" * 10 + "\n[10 of 30 bytes are left out here]\n" + "x" * 10),
    ],
)
def test_of_a_long_output_both_ends_are_read(job, monkeypatch, written, read):
    monkeypatch.setattr(job_module, "KEPT_BYTES", 10)
    (job.folder / "rank0.out").write_bytes(written)
    assert job.text("rank0.out") == read


@pytest.mark.parametrize(
    ("environ", "seen"),
    [
        ({}, None),
        ({"PMI_RANK": "2"}, None),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, ("MPICH", 2, 4)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}, ("Open MPI", 0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}, ("torchrun", 1, 2)),
    ],
)
def test_each_launcher_tells_the_world_in_its_own_words(environ, seen):
    assert world(environ) == seen
