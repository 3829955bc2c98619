"""The trainers' except hook: the job ends, with exit code 1, and no traceback is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

from allhands import launch
from allhands.launch import mpi

SCRIPT = """\
import sys, threading
from mpi4py import MPI
from allhands.train.excepthook import end_job_on_error
comm = MPI.COMM_WORLD
end_job_on_error(comm, wait_s=float(sys.argv[1]))
comm.barrier()
if comm.rank in eval(sys.argv[2]):
    threading.Event().wait(0.2 * comm.rank)  # ranks reach the same fault one after the other
    raise ValueError(f"no such word on rank {comm.rank}")
comm.allreduce(1)
"""


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize("ranks", [2, 4])
def test_when_all_ranks_raise_each_traceback_is_there(script, ranks):
    """Under a plain mpiexec, as in a job script."""
    found = mpi.find()
    command = [*found.command(ranks), sys.executable, str(script), "2", f"range({ranks})"]
    done = subprocess.run(command, capture_output=True, text=True, env=None)
    assert done.returncode == 1
    for rank in range(ranks):
        assert f"Rank {rank} of {ranks} raised ValueError; the job will be aborted" in done.stderr
        assert done.stderr.count(f"ValueError: no such word on rank {rank}\n") == 1
    assert done.stderr.count("Traceback (most recent call last)") == ranks


def test_when_one_rank_raises_and_the_others_wait_the_job_ends_and_names_the_rank(script):
    """The issue is the error's kind: not TimeUp."""
    with pytest.raises(launch.RanksFailed) as caught:
        launch.mpirun(script, 0.1, [2], ranks=4, time_limit_s=60)
    assert not isinstance(caught.value, launch.TimeUp)
    assert str(caught.value) == (
        "rank 2 raised ValueError: no such word on rank 2 (line 9 of train.py); "
        "ranks 0, 1, 3 were stopped"
    )
    assert "Rank 2 of 4 raised ValueError" in caught.value.finished.text(2, "err")


def test_the_job_waits_as_long_as_it_is_told_and_a_chainermn_communicator_will_do(monkeypatch):
    from allhands.train import excepthook

    done = []

    class Comm:
        Get_rank, Get_size = (lambda self: 1), (lambda self: 2)

        def Abort(self, code: int) -> None:
            done.append(("abort", code))

    class ChainerMN:
        mpi_comm = Comm()

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(excepthook.time, "sleep", lambda seconds: done.append(("wait", seconds)))
    excepthook.end_job_on_error(ChainerMN())
    sys.excepthook(ValueError, ValueError("x"), None)
    assert done == [("wait", excepthook.WAIT_S), ("abort", 1)]
