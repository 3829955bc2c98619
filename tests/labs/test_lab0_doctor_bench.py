"""Lab 0's bench: its scripts end as their first lines say."""

import subprocess
from pathlib import Path

import pytest

from allhands import launch
from allhands.launch.job_header import header, limit_s

BENCH = Path(__file__).parents[2] / "handson" / "lab0_doctor"


def bash(script: str, *words: str, **environ: str) -> int:
    done = subprocess.run(
        ["bash", BENCH / script, *words],
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode


def test_the_failing_job_fails_with_the_code_that_it_is_given():
    assert bash("fail.slurm") == 7
    assert bash("fail.slurm", "5") == 5


def test_one_task_of_the_array_fails(tmp_path):
    (tmp_path / "sleep").write_text("#!/bin/bash\n")
    (tmp_path / "sleep").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    codes = [bash("array.slurm", "2", SLURM_ARRAY_TASK_ID=str(n), **environ) for n in range(4)]
    assert codes == [0, 0, 1, 0]


def test_every_header_line_of_the_bench_counts():
    for script in BENCH.glob("*.slurm"):
        text = script.read_text()
        assert len(header(text)) == text.count("#SBATCH")
        assert limit_s(header(text)["--time"]) <= 120


def test_the_bench_s_program_says_who_is_where_and_can_fail():
    done = launch.mpirun(BENCH / "where.py", ranks=2, time_limit_s=60)
    lines = done.text(rank=0).splitlines()
    assert [line.split(" on ")[0] for line in lines] == ["rank 0 of 2", "rank 1 of 2"]
    assert "local rank 1" in lines[1]
    with pytest.raises(launch.RanksFailed) as failed:
        launch.mpirun(BENCH / "where.py", "--fail", 1, ranks=2, time_limit_s=60)
    assert failed.value.culprits == (1,)
    (said,) = failed.value.finished.output[1]
    assert said.text.startswith("rank 1 on ")
    assert said.text.endswith(" fails: exit code 7")
