"""Lab 0's job on real ranks: who is where, and a link that lab 4 can read."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from allhands import launch
from allhands.mgwfbp import own_link
from allhands.mgwfbp.table import read_table
from allhands.train import measure_link

HOST = socket.gethostname().partition(".")[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job") / "run"
    words = ("--out", folder, "--repeats", 3)
    done = launch.mpirun("allhands.train.first_job", *words, ranks=3, time_limit_s=120)
    assert done.text(rank=1) == done.text(rank=2) == ""  # rank 0 alone speaks
    last = [line.partition(":")[0] for line in done.text(rank=0).splitlines()[-2:]]
    assert last == ["one message, ranks 0 and 1", "one all-reduce, 3 ranks"]
    assert (folder / "places.txt").read_text() in done.text(rank=0) + "\n"
    return folder


def test_each_rank_says_where_it_is(folder):
    lines = (folder / "places.txt").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        f"rank {rank} of 3 on {HOST}: local rank {rank}" for rank in range(3)
    ]
    assert all("started by no launcher" not in line for line in lines)


def test_messages_and_all_reduces_are_timed_for_every_size(folder):
    for name in ("message.csv", "link.csv"):
        sizes, times_s = read_table(folder / name)
        assert sizes.tolist() == list(measure_link.SIZES_BYTES)
        assert np.all(times_s > 0)


def test_lab_4_can_read_the_link(folder):
    if not (folder / "link.json").exists():  # on a busy machine no line may fit: then it says so
        assert "no straight line" in measure_link._fit_in_words(read_table(folder / "link.csv")[1])
        return
    link = own_link.load(folder / "link.json")
    assert (link.ranks, link.hosts) == (3, (HOST,) * 3)
    assert link.window_bytes == (measure_link.SIZES_BYTES[0], measure_link.SIZES_BYTES[-1])
    assert link.cost(4) < link.cost(4 * 2**20)


def alone(module: str, *words: str, **environ: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", module, *words]
    environ = {k: v for k, v in os.environ.items() if k != "ALLHANDS_RANKS"} | environ
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)


def test_one_rank_says_where_it_is_and_that_it_has_nobody_to_send_to(tmp_path):
    done = alone("allhands.train.first_job", "--out", str(tmp_path))
    assert done.returncode == 0
    assert f"rank 0 of 1 on {HOST}: local rank 0" in done.stdout
    assert "started by no launcher" in done.stdout
    assert "ask for 2 ranks" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["places.txt"]


def test_a_world_of_another_size_is_refused():
    done = alone("allhands.train.rank_place", ALLHANDS_RANKS="2")
    assert done.returncode != 0
    assert "asked for 2 ranks, but the world of this one has size 1" in done.stderr
    assert "rank 0" not in done.stdout
