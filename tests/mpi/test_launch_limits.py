"""What a job may use up, and what it leaves behind: time, shared memory, the disk, the memory."""

import ast
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allhands import launch
from allhands.launch import job as job_module
from allhands.launch import mpi, shared_memory, start
from allhands.train import rungs

# Each rank says which files of MPI in shared memory it maps; then rank 1 does what `how` says.
SHARED = """\
import os, signal, sys
from mpi4py import MPI
from allhands.launch import shared_memory
comm = MPI.COMM_WORLD
print(sorted(shared_memory.mapped()))
comm.barrier()
how = sys.argv[1]
if comm.rank == 1 and how == "kill": os.kill(os.getpid(), signal.SIGKILL)
if comm.rank == 1 and how == "caller": os.kill(int(sys.argv[2]), signal.SIGKILL)
if how != "good": signal.pause()
"""
FOR_EVER = "import sys\nwhile True: print(*sys.argv[1:])\n"


@pytest.fixture
def shared(tmp_path) -> Path:
    if not (Path("/dev/shm").exists() and mpi.find().family == "MPICH"):
        pytest.skip("looks for the files of MPICH in /dev/shm")
    path = tmp_path / "shared.py"
    path.write_text(SHARED)
    return path


def mapped(done: launch.Finished) -> set[str]:
    """What the ranks said; each said something."""
    files = [ast.literal_eval(done.text(rank)) for rank in range(done.ranks)]
    assert all(files)
    return set().union(*files)


@pytest.mark.parametrize(
    ("how", "limits", "error"),
    [
        ("stay", {"time_limit_s": 60, "hang_s": 0.5}, launch.TimeUp),
        ("kill", {"time_limit_s": 60}, launch.RanksFailed),
    ],
)
def test_a_job_that_is_ended_leaves_nothing_in_shared_memory(shared, how, limits, error):
    with pytest.raises(error) as caught:
        launch.mpirun(shared, how, ranks=2, **limits)
    files = mapped(caught.value.finished)
    assert [path for path in files if os.path.exists(path)] == []


def test_what_a_process_outside_the_job_maps_too_stays(shared, tmp_path):
    """Here it is this process, with a file of a name as MPICH gives them."""
    path = Path(f"/dev/shm/mpich_shm_{tmp_path.name}_{os.getpid()}")
    path.write_bytes(b"1234")
    try:
        holder = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import mmap, signal, sys; file = open(sys.argv[1], 'r+b');"
                "kept = mmap.mmap(file.fileno(), 4); print('here', flush=True); signal.pause()",
                path,
            ],
            stdout=subprocess.PIPE,
        )
        holder.stdout.readline()
        assert shared_memory.mapped(holder.pid) == {str(path)}
        shared_memory.remove([str(path)])
        assert path.exists()
        holder.kill()
        holder.communicate()
        shared_memory.remove([str(path)])
        assert not path.exists()
    finally:
        path.unlink(missing_ok=True)


def test_a_job_whose_caller_was_killed_leaves_nothing_in_shared_memory(shared, tmp_path):
    said = tmp_path / "said"
    shared.write_text(SHARED.replace("print(", f"print(file=open({str(said)!r}, 'a'), *"))
    program = (
        "import os; from allhands import launch\n"
        f"launch.mpirun({str(shared)!r}, 'caller', os.getpid(), ranks=2, time_limit_s=60)"
    )
    caller = subprocess.run([sys.executable, "-c", program], env=os.environ)
    assert caller.returncode == -signal.SIGKILL
    files = set(said.read_text().split())
    assert files
    while any(map(os.path.exists, files)):  # pytest's time limit ends the loop
        time.sleep(0.05)


def test_a_rank_that_prints_for_ever_is_kept_at_both_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(job_module, "KEPT_BYTES", 1000)
    script = tmp_path / "words.py"
    script.write_text(FOR_EVER)
    with pytest.raises(launch.TimeUp) as caught:
        launch.mpirun(script, "cat", ranks=2, time_limit_s=1.5)
    assert str(caught.value) == (
        'no rank ended within 1.5 s; rank 0 was at line 2 of words.py (its last line: "cat"); '
        "rank 1 was at line 2 of words.py (the same last line as rank 0)"
    )
    for rank in (0, 1):
        lines = caught.value.finished.text(rank).splitlines()
        assert 498 <= lines.count("cat") <= 500  # 4 bytes each
        (told,) = set(lines) - {"cat"}
        assert re.fullmatch(r"\[[\d,]+ of [\d,]+ bytes are left out here\]", told)
        assert lines.index(told) in (249, 250)


def test_a_rank_that_fills_the_disk_is_named_and_the_job_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(start, "MOST_BYTES", 100_000)
    script = tmp_path / "words.py"
    script.write_text(
        "import os, signal, sys\n"
        "while os.environ['PMI_RANK'] == '1': print('cat', file=sys.stderr)\n"
        "signal.pause()\n"
    )
    with pytest.raises(launch.RanksFailed) as caught:
        launch.mpirun(script, ranks=2, time_limit_s=60)
    assert not isinstance(caught.value, launch.TimeUp)
    assert re.fullmatch(
        r"rank 1 wrote [\d,]+ bytes to stderr, and a job is ended above 100,000 bytes: print less, "
        r"or into a file of the program's own",
        str(caught.value),
    )
    assert caught.value.culprits == (1,)


def test_the_time_of_a_hang_counts_from_when_all_ranks_are_up(tmp_path):
    """Rank 1 takes longer to start than a hang may last."""
    script = tmp_path / "late.py"
    script.write_text(
        "import os, time\n"
        "if os.environ['PMI_RANK'] == '1': time.sleep(2)\n"
        "from mpi4py import MPI\n"
        "MPI.COMM_WORLD.barrier()\n"
        "print('together', flush=True)\n"
        "if MPI.COMM_WORLD.rank == 1: MPI.COMM_WORLD.recv()\n"
    )
    with pytest.raises(launch.TimeUp) as caught:
        launch.mpirun(script, ranks=2, time_limit_s=60, hang_s=1)
    assert str(caught.value).startswith("no rank ended within 1 s; rank 0 was at its end")
    assert [caught.value.finished.text(rank) for rank in (0, 1)] == ["together"] * 2
    assert 3 <= caught.value.finished.wall_s < 60


def test_a_program_on_the_rungs_has_its_time_for_itself(monkeypatch):
    given = {}

    def mpirun(script, **limits):
        given.update(limits)
        raise launch.LaunchError("not today")

    monkeypatch.setattr(launch, "mpirun", mpirun)
    with pytest.raises(launch.LaunchError):
        rungs.start(test_a_program_on_the_rungs_has_its_time_for_itself, ranks=2)
    assert given["hang_s"] == rungs.HANG_S
    assert given["time_limit_s"] == rungs.HANG_S + rungs.START_S
