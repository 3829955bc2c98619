"""Every lab's job to a good end, by `submit --wait`: its .slurm on Slurm, its .pbs on PBS.

On two nodes where the lab has them, with small settings; a lab that has none in SMALL runs as it is
committed. The jobs are begun at once, a few at a time, and run beside the tests of the other files.
"""

import itertools
import json
import re
import subprocess
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest

from allhands.labs import COURSE

SCHEDULERS = ("slurm", "pbs")


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
    "hack_owncode": Small(arguments=("own.py",), shows=r"2 ranks: loss"),
}
JOBS = Path(__file__).parents[3] / "cluster_jobs"
LABS = [lab for lab in COURSE.labs() if (JOBS / f"{lab}.slurm").exists()]  # a lab may have no job


@dataclass(frozen=True)
class Begun:
    """Jobs that run beside the tests: what `submit` says in the end, and where their project is."""

    said: dict[tuple[str, str], Future | None]
    roots: dict[str, Path]


@pytest.fixture(scope="session")
def begun(project, begin, tiny) -> Begun:
    """The job of each lab on each scheduler, with what `submit` says; None: it was not chosen."""
    clusters = {scheduler: project(scheduler) for scheduler in SCHEDULERS}
    said = {}
    for lab, scheduler in itertools.product(LABS, SCHEDULERS):
        small, cluster = SMALL.get(lab, Small()), clusters[scheduler]
        words = (lab, *small.shape, "--", *small.arguments, *(tiny * small.trains))
        test = f"test_the_labs_job_ends_well[{scheduler}-{lab}]"
        said[lab, scheduler] = begin(__file__, test, cluster.submit, *words)
    return Begun(said, {name: cluster.root for name, cluster in clusters.items()})


def test_each_lab_has_a_job_for_both_schedulers_or_none(request):
    """Also begins the jobs; they run beside the tests that follow."""
    assert {path.stem for path in JOBS.glob("*.pbs")} == {p.stem for p in JOBS.glob("*.slurm")}
    assert LABS
    request.getfixturevalue("begun")


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_labs_job_ends_well(scheduler: str, lab: str, begun: Begun):
    ran: subprocess.CompletedProcess = begun.said[lab, scheduler].result()
    assert ran.returncode == 0, ran.stdout
    assert "ended with exit code 0" in ran.stdout
    assert re.search(SMALL.get(lab, Small()).shows, ran.stdout), ran.stdout
    if lab == "lab2_dataparallel":
        # The ranks found each other: of 12 pairs each had 6, so an epoch is two updates of 4.
        (path,) = begun.roots[scheduler].glob(f"runs/{lab}/*/result.json")
        result = json.loads(path.read_text())
        assert (result["ranks"], result["n_updates"]) == (2, 2)
