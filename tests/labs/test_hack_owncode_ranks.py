"""hack_owncode on ranks: what communicates, refused or passed; a script as a rank of a job."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from allhands import launch
from allhands.grade.checks.hack_owncode_ranks import Alone, on_ranks
from allhands.grade.desk import Desk
from allhands.train import own_program, own_start


@pytest.fixture
def desk() -> Desk:
    return Desk("hack_owncode")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# total, save


def reduced(n_right, n, dist, what, op=torch.distributed.ReduceOp.SUM):
    numbers = torch.tensor(what, dtype=torch.float64)
    dist.all_reduce(numbers, op=op)
    return numbers


TOTAL_MISTAKES = {
    "not reduced": (lambda a, n, dist: a / n, "that is rank 0 alone"),
    "mean of means": (
        lambda a, n, dist: float(reduced(a, n, dist, [a / n])[0] / dist.get_world_size()),
        "a mean of two ratios",
    ),
    "sum of means": (lambda a, n, dist: float(reduced(a, n, dist, [a / n])[0]), "a sum of two"),
    "the largest": (
        lambda a, n, dist: float(reduced(a, n, dist, [a / n], dist.ReduceOp.MAX)[0]),
        "that is rank 0 alone",
    ),
    "no tensor": (lambda a, n, dist: dist.all_reduce([a, n]), "all_reduce takes a tensor"),
    "rank 0 alone calls": (
        lambda a, n, dist: float(reduced(a, n, dist, [a, n])[0]) if dist.get_rank() == 0 else a / n,
        "the other ranks do not come",
    ),
}


@pytest.mark.parametrize("name", TOTAL_MISTAKES)
def test_a_total_that_is_none_is_refused(desk, name):
    mistake, sentence = TOTAL_MISTAKES[name]
    refused(desk.check("total", mistake), sentence)


def total(n_right, n, dist):
    right, count = torch.tensor(n_right), torch.tensor(n)
    dist.all_reduce(right, op=dist.ReduceOp.SUM)
    dist.all_reduce(count)
    return (right / count).item()


def total_in_the_background(n_right, n, dist):
    counts = torch.tensor([n_right, n], dtype=torch.float32)
    dist.all_reduce(counts, async_op=True).wait()
    return float(counts[0] / counts[1])


def test_each_way_to_add_up_passes(desk):
    assert desk.check("total", own_program.total).full
    assert desk.check("total", total).full
    assert desk.check("total", total_in_the_background).full


def nobody_waits(state, path, dist):
    if dist.get_rank() == 0:
        torch.save(state, path)


def barrier_inside(state, path, dist):
    if dist.get_rank() == 0:
        torch.save(state, path)
        dist.barrier()


def rank_1_writes(state, path, dist):
    if dist.get_rank() == 1:
        torch.save(state, path)
    dist.barrier()


def all_write(state, path, dist):
    torch.save(state, path)
    dist.barrier()


def barrier_before(state, path, dist):
    dist.barrier()
    if dist.get_rank() == 0:
        torch.save(state, path)


def a_part(state, path, dist):
    if dist.get_rank() == 0:
        torch.save(state["of"], path)
    dist.barrier()


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (all_write, "all ranks write the same file"),
        (barrier_before, "after the `if` and the save"),
        (a_part, "all of `state`"),
        (nobody_waits, "nobody waits"),
        (barrier_inside, "it stands after the `if`"),
        (rank_1_writes, "only rank 0 should"),
    ],
)
def test_a_save_that_others_read_too_early_is_refused(desk, mistake, sentence):
    refused(desk.check("save", mistake), sentence)


def in_two_branches(state, path, dist):
    if dist.get_rank() != 0:
        dist.barrier()
        return
    torch.save(state, str(path) + ".part")
    Path(str(path) + ".part").rename(path)
    dist.barrier()


def test_each_way_to_save_passes(desk):
    assert desk.check("save", own_program.save).full
    assert desk.check("save", in_two_branches).full


def test_who_is_first_stays_first_after_each_meeting():
    for first in (0, 1, 2):
        order = []

        def walk(dist, order=order):
            for _ in range(3):
                order.append(dist.get_rank())
                dist.barrier()

        on_ranks(walk, size=3, first=[first])
        assert order[::3] == [first] * 3


def test_the_ranks_of_a_check_meet_and_nobody_hangs():
    def ordered(dist):
        tensor = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(tensor)
        dist.barrier()
        return tensor.item()

    assert on_ranks(ordered, size=4) == [6.0] * 4
    with pytest.raises(Alone, match="rank 0 waits in barrier"):
        on_ranks(lambda dist: dist.barrier() if dist.get_rank() == 0 else None, size=3)
    with pytest.raises(ZeroDivisionError):
        on_ranks(lambda dist: dist.barrier() if dist.get_rank() else 1 / 0, size=2)


# The start of a rank


def test_a_script_finds_what_torchrun_would_have_said():
    slurm = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "ALLHANDS_RANKS": "8"}
    said = own_start.as_torchrun(slurm, ranks_here=4)
    assert said == {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    mpich = {"PMI_RANK": "5", "PMI_SIZE": "8"}
    assert own_start.as_torchrun(mpich, 4)["LOCAL_RANK"] == "1"
    assert own_start.as_torchrun({}, 1) == {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    assert own_start.as_torchrun({"RANK": "3", "WORLD_SIZE": "4"}, 4) == {}


def test_own_start_runs_a_script_with_its_arguments_and_refuses_what_is_none(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text("import os, sys\nprint(sys.argv[1:], os.environ['RANK'], __name__)\n")
    command = [sys.executable, "-m", "allhands.train.own_start"]
    done = subprocess.run([*command, script, "--epochs", "2"], capture_output=True, text=True)
    assert done.stdout == "['--epochs', '2'] 0 __main__\n"
    none = subprocess.run([*command, tmp_path / "gone.py"], capture_output=True, text=True)
    assert none.returncode == 2
    assert "gone.py" in none.stderr


# Ranks that never meet

TWO = {"ALLHANDS_RANKS": "2", "PMI_RANK": "0", "PMI_SIZE": "2"}
MEETS = """
import tempfile
import torch.distributed as dist
place = tempfile.NamedTemporaryFile()
dist.init_process_group("gloo", init_method=f"file://{place.name}", rank=0, world_size=1)
"""


def started(folder, text, **environ):
    """A program, started by `own_start` in an environment of its own."""
    script = folder / "mine.py"
    script.write_text(text, encoding="utf-8")
    words = ("RANK", "WORLD_SIZE", "PMI_", "SLURM_", "OMPI_", "ALLHANDS_", "MPI_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(words)}
    command = [sys.executable, "-m", "allhands.train.own_start", script]
    return subprocess.run(command, env={**kept, **environ}, capture_output=True, text=True)


def test_a_program_that_joins_no_world_is_told_so_by_rank_0_and_ends_as_it_would(tmp_path):
    for text in ("print(1)", "import sys\nprint(1)\nsys.exit(0)"):
        done = started(tmp_path, text, **TWO)
        assert (done.returncode, done.stdout) == (0, "1\n")
        assert "2 ranks ran, and none joined the others: each trained alone" in done.stderr
        assert done.stderr.count("\n") == 1
    assert started(tmp_path, "print(1)", **TWO | {"PMI_RANK": "1"}).stderr == ""
    assert started(tmp_path, "print(1)").stderr == ""
    failed = started(tmp_path, "import sys\nsys.exit(3)", **TWO)
    assert (failed.returncode, failed.stderr) == (3, "")


@pytest.mark.parametrize("end", ["", "dist.destroy_process_group()\n"], ids=["open", "destroyed"])
def test_a_process_group_counts_also_when_it_is_gone(end, tmp_path):
    done = started(tmp_path, MEETS + end, **TWO)
    assert done.returncode == 0, done.stderr
    assert "none joined" not in done.stderr
    none = started(tmp_path, "import torch.distributed", **TWO)
    assert "none joined" in none.stderr


def test_a_world_of_mpi_counts_if_it_holds_others(tmp_path):
    script = tmp_path / "mine.py"

    def said_by(rank, text):
        script.write_text(text, encoding="utf-8")
        done = launch.mpirun(own_start.__file__, script, ranks=2, time_limit_s=60)
        return done.text(rank, stream="err")

    assert "none joined" in said_by(0, "print(1)")
    assert "none joined" not in said_by(1, "print(1)")
    assert "none joined" not in said_by(0, "from mpi4py import MPI")
    done = started(tmp_path, "from mpi4py import MPI", ALLHANDS_RANKS="2")  # no mpiexec: alone
    assert "none joined" in done.stderr
