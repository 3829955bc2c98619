"""nbval itself passes on solved notebooks, and finds a stated output that is wrong.

The two shortest labs stand for all, because each run of a lab costs: that every lab runs and prints
what its source states is read off nbgrader's run (test_nbgrader.py). The job `notebooks` runs nbval
on all of them (cluster_jobs/notebooks.slurm).
"""

import os
import subprocess
import sys

import pytest
from sample_course import COURSE as SAMPLE

from allhands.grade import source


def nbval(folder):
    """Run nbval on the notebooks of a folder, with none of this project's pytest settings."""
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    options = ["--nbval-lax", "--nbval-cell-timeout=600", "-p", "no:cacheprovider", "-q", "-rA"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder)],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stem", ["lab0_doctor", "bug3_togpu"])
def test_a_solved_lab_runs_and_prints_what_its_source_says(stem, tmp_path):
    source.write(source.solved_notebook(stem), tmp_path / f"{stem}.ipynb")
    code, told = nbval(tmp_path)
    assert code == 0, told


def test_a_stated_output_that_is_wrong_is_found(tmp_path):
    right = source.solved_notebook("sample", SAMPLE)
    wrong = source.solved_notebook("sample", SAMPLE)
    wrong.cells[-1].outputs[0].text = "another cell\n"
    source.write(right, tmp_path / "right.ipynb")
    source.write(wrong, tmp_path / "wrong.ipynb")
    code, told = nbval(tmp_path)
    failed = [line for line in told.splitlines() if line.startswith("FAILED")]
    assert code == 1
    assert len(failed) == 1, told
    assert "wrong.ipynb" in failed[0]
