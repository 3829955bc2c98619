"""Every job of the course can be asked for at every site; where a node is too small, it says how.

Nothing is started, and no scheduler is needed: this is what `submit --dry-run` plans.
"""

import functools
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "cluster_jobs/lib"))
import plan
import sites

JOBS = Path(__file__).parents[2] / "cluster_jobs"

NAMES = sorted({path.stem for path in JOBS.glob("*.slurm")})
SITES = sorted(p.stem for p in JOBS.glob("sites/*.env") if not p.stem.startswith("my_"))


@pytest.fixture
def planned(monkeypatch):
    """Plans a job at a site, with a queue and an account of which the scheduler is not asked."""
    for name, value in {"ACCOUNT": "gr01", "ASK": "no", "LEVEL": "gpu"}.items():
        monkeypatch.setenv(f"ALLHANDS_{name}", value)
    monkeypatch.setattr(plan, "read_site", functools.cache(sites.read_site))
    monkeypatch.chdir(JOBS.parent)

    def ask(name, site, **asked):
        words = plan.AS_WRITTEN._replace(**asked)
        return plan.plan(name, site, None, [], words, dry_run=True)

    return ask


def with_room(planned, name, site):
    """The job, if need be on as many nodes as the refusal says."""
    try:
        return planned(name, site)
    except plan.Refusal as refusal:  # a lab of more ranks on a node than it has GPUs
        way = re.search(r"--nodes (\d+) --ranks (\d+)", str(refusal))
        if not way:
            raise
        return planned(name, site, nodes=int(way[1]), ranks=int(way[2]))


@pytest.mark.parametrize("site", SITES)
def test_every_job_can_be_asked_for(planned, site, monkeypatch):
    if site.endswith("-generic"):
        monkeypatch.setenv("ALLHANDS_QUEUE", "work")
    for name in NAMES:
        job = with_room(planned, name, site)
        words, needs = " ".join(job.command), job.needs
        assert job.command[-1] == job.script
        assert "{" not in words, "a name in braces was left"
        if job.scheduler is None:
            continue
        assert f"ALLHANDS_JOB={job.base}.job" in words, "the job finds its note"
        if "-k" in job.command:
            kept = job.command[job.command.index("-k") + 1]
            assert "d" in kept, "else PBS keeps the output in the home folder, whatever -o says"
        if not job.scheduler.header:
            nodes, ranks = needs["nodes"], needs["ranks"]
            assert re.search(rf"node(_f)?={nodes}\b|-pe mpi {ranks}\b", words), words


def test_a_gpu_is_asked_for_by_each_job_that_has_ranks_with_gpus(planned, monkeypatch):
    monkeypatch.setenv("ALLHANDS_QUEUE", "work")
    for name in NAMES:
        job = planned(name, "slurm-generic")
        asked = [word for word in job.command if word.startswith("--gres=gpu:")]
        gpus = job.needs["gpus_per_node"]
        assert asked == ([f"--gres=gpu:{gpus}"] if gpus else [])
