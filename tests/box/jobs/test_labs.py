"""Every lab's job to a good end, by `submit --wait`: its .slurm on Slurm, its .pbs on PBS.

On two nodes where the lab has them. All are started together, a few at a time, with small settings;
a lab that has none in SMALL runs as it is committed.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from allhands.labs import COURSE

AT_A_TIME = 3  # jobs: ranks spin while they wait for each other, and the cores are few


@dataclass(frozen=True)
class Small:
    """A lab's job in small. shape: for submit; arguments: for the program; shows: in its log.

    trains: it also gets the settings of the tiny translator.
    """

    shape: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    shows: str = ""
    trains: bool = False


TWO_NODES = ("--nodes", "2", "--ranks-per-node", "1")
SMALL = {
    "lab0_doctor": Small(arguments=("--repeats", "3"), shows=r"n1[\s\S]*n2"),
    "lab1_seq2seq": Small(shows=r"update 3/3 ", trains=True),
    "lab2_dataparallel": Small(shape=TWO_NODES, shows=r"update 2/2 ", trains=True),
    "lab3_mixedprec": Small(shows=r"update 3/3 ", trains=True),
    "lab4_mgwfbp": Small(arguments=("--repeats", "3"), shows=r"2 ranks: T\(s\) = "),
    "bug1_errorcount": Small(arguments=("--fault", "none"), shows=r"408 words"),
    "bug2_singlegpu": Small(shows=r"node.*\(2\).* agree\n.*\(4\): all 4 programs agree"),
    "bug3_togpu": Small(shows=r"3 of 4 ranks failed"),
    "bug4_slower": Small(shows=r"update 2/2 ", trains=True),
}
JOBS = Path(__file__).parents[3] / "cluster_jobs"
LABS = [lab for lab in COURSE.labs() if (JOBS / f"{lab}.slurm").exists()]  # a lab may have no job


@pytest.fixture(scope="module")
def ended(slurm, pbs, tiny, request) -> Iterator[dict[tuple[str, str], Future]]:
    """(lab, scheduler) -> what submit said of the job; of those that the chosen tests ask for."""
    chosen = [getattr(item, "callspec", None) for item in request.session.items]
    asked = {
        (call.params.get("lab", "lab2_dataparallel"), call.params["scheduler"])
        for item, call in zip(request.session.items, chosen, strict=True)
        if call and item.path == request.path
    }
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        started = {}
        for lab, scheduler in sorted(asked):
            small, cluster = SMALL.get(lab, Small()), {"slurm": slurm, "pbs": pbs}[scheduler]
            words = (lab, *small.shape, "--", *small.arguments, *(tiny * small.trains))
            started[lab, scheduler] = pool.submit(cluster.submit, *words)
        yield started
        for future in started.values():
            future.cancel()
        slurm.end()
        pbs.end()


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_the_labs_job_ends_well(scheduler: str, lab: str, ended):
    ran: subprocess.CompletedProcess = ended[lab, scheduler].result()
    assert ran.returncode == 0, ran.stdout
    assert "ended with exit code 0" in ran.stdout
    assert re.search(SMALL.get(lab, Small()).shows, ran.stdout), ran.stdout


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_lab_2_trained_on_two_ranks(scheduler: str, ended, request):
    """The ranks found each other: of 12 pairs each had 6, so an epoch is two updates of 4."""
    assert ended["lab2_dataparallel", scheduler].result().returncode == 0
    root = request.getfixturevalue(scheduler).root
    (path,) = root.glob("runs/lab2_dataparallel/*/result.json")
    result = json.loads(path.read_text())
    assert (result["ranks"], result["n_updates"]) == (2, 2)
