"""The link probe on real ranks: every size once, all ranks agree, a wrong world is refused."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from allhands import launch
from allhands.mgwfbp.table import read_table
from allhands.train import measure_link


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_table_holds_every_size(tmp_path, ranks):
    table = tmp_path / "link.csv"
    words = ("--out", table, "--repeats", 3)
    done = launch.mpirun("allhands.train.measure_link", *words, ranks=ranks, time_limit_s=120)
    sizes, times_s = read_table(table)
    assert sizes.tolist() == list(measure_link.SIZES_BYTES)
    assert np.all(times_s > 0)
    assert times_s[-1] > times_s[0]  # 4 MiB against 4 bytes: a million times as many
    assert f"{ranks} ranks: " in done.text(rank=0)
    assert done.text(rank=1) == ""  # rank 0 alone speaks


def test_a_world_of_another_size_than_the_job_asked_for_is_refused(tmp_path):
    command = [sys.executable, "-m", "allhands.train.measure_link", f"--out={tmp_path / 't.csv'}"]
    alone = subprocess.run(
        command, env={**os.environ, "ALLHANDS_RANKS": "2"}, capture_output=True, text=True
    )
    assert alone.returncode != 0
    assert "asked for 2 ranks, but the world of this one has size 1" in alone.stderr


def test_a_size_that_is_no_fp32_array_is_refused():
    from mpi4py import MPI

    with pytest.raises(ValueError, match="multiples of 4 bytes"):
        measure_link.time_all_reduces(MPI.COMM_SELF, [6])


def test_a_kept_line_says_the_way_to_lab_4(tmp_path, monkeypatch):
    notebooks, project = tmp_path / "notebooks", tmp_path / "a b"
    monkeypatch.setattr(measure_link, "LAB_4", notebooks / "runs" / "link.json")
    (project / "run").mkdir(parents=True)
    monkeypatch.chdir(project)
    kept = Path("run") / "link.json"
    kept.write_text("the line")
    command = measure_link.how_lab_4_finds(kept.resolve()).partition("this line: ")[2]
    subprocess.run(["bash", "-c", command], check=True)
    assert measure_link.LAB_4.read_text() == "the line"
    monkeypatch.chdir(notebooks)
    assert measure_link.how_lab_4_finds(Path("runs") / "link.json") == "Lab 4 reads this file."


def test_a_line_in_short_has_microseconds_and_nanoseconds():
    times_s = [2e-4 + 8e-9 * size for size in measure_link.SIZES_BYTES]
    assert measure_link.in_short("it", times_s) == "it: a = 200.0 us, b = 8.000 ns a byte"
    assert measure_link.in_short("it", times_s[::-1]) == "it: no straight line fits its times"


def test_a_table_that_no_line_fits_is_said_in_words():
    falling = [1e-3 / (i + 1) for i in range(len(measure_link.SIZES_BYTES))]
    assert "no straight line fits this table" in measure_link._fit_in_words(falling)
