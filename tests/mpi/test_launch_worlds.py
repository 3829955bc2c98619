"""Before and around the ranks: which mpiexec, which world, which script; and from a notebook."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from allhands import launch

HELLO = "from mpi4py import MPI\nprint('rank', MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size)\n"


@pytest.fixture
def hello(tmp_path) -> Path:
    path = tmp_path / "hello.py"
    path.write_text(HELLO)
    return path


def fake_mpiexec(folder: Path, says: str, environ: str = "") -> Path:
    """A launcher that starts the ranks without telling them of each other."""
    path = folder / "mpiexec"
    path.write_text(
        f"#!/bin/sh\n[ $1 = --version ] && echo '{says}' && exit\n"
        f"n=$2; shift 2; i=0\n"
        f'while [ $i -lt $n ]; do {environ} "$@" & i=$((i + 1)); done; wait\n'
    )
    path.chmod(0o755)
    return path


def test_an_mpiexec_of_another_mpi_is_refused_before_ranks_start(tmp_path, hello):
    other = fake_mpiexec(tmp_path, "mpiexec (OpenRTE) 4.1.4", environ=f"touch {tmp_path}/ran;")
    with pytest.raises(launch.LaunchError, match="belongs to Open MPI, but mpi4py uses MPICH"):
        launch.mpirun(hello, ranks=2, time_limit_s=60, mpiexec=other)
    assert not (tmp_path / "ran").exists()


def test_ranks_that_are_told_nothing_do_not_run(tmp_path, hello):
    alone = fake_mpiexec(tmp_path, "HYDRA build details")
    hello.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(
        launch.WrongWorld, match=r"^asked for 4 ranks, but MPI built 4 worlds of 1 r"
    ):
        launch.mpirun(hello, ranks=4, time_limit_s=60, mpiexec=alone)
    assert not (tmp_path / "ran").exists()


def test_ranks_that_are_told_of_a_world_but_find_another_are_stopped_at_the_import(tmp_path, hello):
    """Here the environment promises 2 ranks, but there is no server through which to meet."""
    alone = fake_mpiexec(tmp_path, "HYDRA build details", environ="PMI_SIZE=2 PMI_RANK=$i")
    with pytest.raises(launch.WrongWorld, match="MPI built 2 worlds of 1 rank"):
        launch.mpirun(hello, ranks=2, time_limit_s=60, mpiexec=alone)


def test_without_an_mpiexec_the_error_says_what_to_install(tmp_path, hello, monkeypatch):
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(launch.LaunchError, match=r"no mpiexec beside .*pip install mpich"):
        launch.mpirun(hello, ranks=2, time_limit_s=60, python=python)


def test_no_ranks_at_all(hello):
    with pytest.raises(launch.LaunchError, match="asked for 0 ranks; at least 1 is needed"):
        launch.torchrun(hello, ranks=0, time_limit_s=60)


def test_a_script_that_is_not_there(tmp_path):
    with pytest.raises(launch.LaunchError, match=r"there is no script .*nowhere\.py"):
        launch.mpirun(tmp_path / "nowhere.py", ranks=2, time_limit_s=60)


def test_a_script_that_python_cannot_read(tmp_path):
    (tmp_path / "typo.py").write_text("x = 1\ny = (\n")
    with pytest.raises(
        launch.RanksFailed, match=r"raised SyntaxError.*never closed \(line 2 of typo.py\)"
    ):
        launch.mpirun(tmp_path / "typo.py", ranks=2, time_limit_s=60)


def test_a_module_in_the_working_folder_threads_and_environment(tmp_path):
    (tmp_path / "course").mkdir()
    (tmp_path / "course" / "hello.py").write_text(
        "import os\nprint(__name__, os.environ['OMP_NUM_THREADS'], os.environ['WORD'])\n"
    )
    done = launch.mpirun(
        "course.hello", ranks=2, time_limit_s=60, cwd=tmp_path, threads=2, env={"WORD": "neko"}
    )
    assert [done.text(rank) for rank in (0, 1)] == ["__main__ 2 neko"] * 2


def test_echo_prints_every_line_with_its_rank(hello, capsys):
    done = launch.mpirun(hello, ranks=2, time_limit_s=60, echo=True)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[0] rank 0 of 2",
        "[1] rank 1 of 2",
    ]
    assert done.text(0) == "rank 0 of 2"


def test_a_job_inside_a_job(tmp_path, hello):
    outer = tmp_path / "outer.py"
    outer.write_text(
        "from mpi4py import MPI\nfrom allhands import launch\n"
        f"print(launch.mpirun({str(hello)!r}, ranks=2, time_limit_s=60).text(1))\n"
    )
    assert launch.mpirun(outer, ranks=1, time_limit_s=60).text(0) == "rank 1 of 2"


def test_a_notebook_starts_ranks_also_after_its_kernel_has_started_mpi(tmp_path, hello):
    outputs = run_notebook(
        "from mpi4py import MPI; from allhands import launch",
        f"print(launch.mpirun({str(hello)!r}, ranks=2, time_limit_s=60).text(1))",
    )
    assert [output["text"] for output in outputs[1]] == ["rank 1 of 2\n"]


def test_an_interrupt_of_the_kernel_ends_the_ranks_and_the_kernel_lives_on(tmp_path):
    """Rank 0 interrupts the kernel as Jupyter does: by SIGINT. Then it waits for ever."""
    script = tmp_path / "stop.py"
    script.write_text(
        "import os, signal, sys\nfrom mpi4py import MPI\nMPI.COMM_WORLD.barrier()\n"
        "if MPI.COMM_WORLD.rank == 0:\n    os.kill(int(sys.argv[1]), signal.SIGINT)\n"
        "MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank).barrier()\nsignal.pause()\n"
    )
    outputs = run_notebook(
        "import os; from allhands import launch",
        f"launch.mpirun({str(script)!r}, os.getpid(), ranks=2, time_limit_s=60)",
        "print('the kernel lives')",
    )
    assert [output["ename"] for output in outputs[1]] == ["KeyboardInterrupt"]
    assert [output["text"] for output in outputs[2]] == ["the kernel lives\n"]
    listed = subprocess.run(["ps", "-axww", "-o", "args="], capture_output=True, text=True).stdout
    assert str(script) not in listed


def run_notebook(*cells: str) -> list[list[dict]]:
    """The outputs of each cell, run in a fresh kernel; an error does not stop it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, allow_errors=True, kernel_name="python3").execute()
    return [cell["outputs"] for cell in notebook.cells]


def test_a_communicator_of_another_size_than_asked_for_is_an_error(tmp_path, monkeypatch):
    class Alone:
        size = 1

    launch.expect_world(Alone())  # this process was not started as a rank: nothing was asked for
    for name, value in {"": "id", "_FOLDER": tmp_path, "_RANKS": 2}.items():
        monkeypatch.setitem(os.environ, f"ALLHANDS_LAUNCH{name}", str(value))
    with pytest.raises(launch.LaunchError, match=r"asked for 2 ranks, but .* has size 1"):
        launch.expect_world(Alone())
