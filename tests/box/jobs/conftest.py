"""A project whose jobs run for real: on a box's Slurm, and on PBS, a real one where it is at hand.

Without a real PBS (`qsub --version`) the box's stand-in takes its place: the headers are read by
the kit's own reader, and Slurm runs the jobs. The project is a copy of `cluster_jobs` beside this
`handson`, with a corpus of 12 sentence pairs, and with this environment in place of `.venv`.
"""

import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from allhands import box as boxes

JOBS = Path(__file__).parents[3] / "cluster_jobs"
# A translator that trains in a second: 12 pairs, 3 updates an epoch on one rank.
SETTINGS = {
    **dict.fromkeys(("train", "valid", "test"), "pairs.tsv"),
    **{"batch_size": 4, "n_embed": 4, "n_hidden": 4, "epochs": 1, "evaluate_pairs": 1},
}
TINY = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
PAIRS = "".join(f"no {number} two\tbango {number} ni\n" for number in range(12))
# A participant's own program: the course's sample, with little to do.
OWN = """
import os, runpy, sys
sys.argv[1:] = ["--samples", "512", "--out", os.environ["ALLHANDS_RUN"]]
runpy.run_path("handson/allhands/train/own_program.py", run_name="__main__")
"""
AT_A_TIME = 3  # jobs beside the tests: ranks spin while they wait for each other, the cores are few
LIMIT_S = 120.0  # of one command, on a busy machine


def reads_what_was_begun(item: pytest.Item) -> bool:
    return "begun" in inspect.signature(item.function).parameters


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What was begun by the first test of a file runs beside the others, and is read last."""
    here = [n for n, item in enumerate(items) if item.path.parent == Path(__file__).parent]
    late = sorted((items[n] for n in here), key=reads_what_was_begun)
    for n, item in zip(here, late, strict=True):
        items[n] = item


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """The trainer's arguments for a tiny translator."""
    return list(TINY)


@dataclass
class Cluster:
    """A project, and a scheduler that runs its jobs. box: None if it is the machine's own."""

    root: Path
    scheduler: str
    box: boxes.Box | None
    running: list[subprocess.Popen] = field(default_factory=list)

    @property
    def site(self) -> str:
        sites = {"slurm": "box", "pbs": "box-pbs" if self.box else "pbs-generic"}
        return os.environ.get("ALLHANDS_TEST_SITE", sites[self.scheduler])

    def environ(self, **more: str) -> dict[str, str]:
        own = dict(os.environ) if self.box is None else self.box.environ()
        return {**own, "ALLHANDS_SITE": self.site, "ALLHANDS_POLL_S": "1", **more}

    def run(self, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node, in the project's folder; `more`: variables."""
        words = [str(word) for word in words]
        command = words if self.box is None else self.box.command(words)
        options = {"cwd": self.root, "env": self.environ(**more), "text": True}
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, **options)
        self.running.append(process)
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            output += f"\nended by the test after {LIMIT_S:g} s"
        return subprocess.CompletedProcess(words, process.returncode, output)

    def submit(self, lab: str, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
        """`cluster_jobs/submit LAB --wait`: its output holds the job's log."""
        command = [sys.executable, self.root / "cluster_jobs/submit", lab]
        return self.run(*command, "--site", self.site, "--wait", *arguments, **more)

    def script(self, name: str, text: str) -> Path:
        """A small job script of this test's own."""
        path = self.root / name
        path.write_text(text, encoding="utf-8")
        return path

    def log(self, lab: str) -> str:
        (log,) = self.root.glob(f"runs/jobs/{lab}.*.log")
        return log.read_text()

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()


def copy_project(root: Path) -> None:
    shutil.copytree(JOBS, root / "cluster_jobs", ignore=shutil.ignore_patterns("default", "my_*"))
    (root / "handson").symlink_to(JOBS.parent / "handson")  # programs that a job names by path
    (root / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    (root / "own.py").write_text(OWN, encoding="utf-8")
    (root / ".venv/bin").mkdir(parents=True)
    programs = Path(sys.executable).parent
    (root / ".venv/bin/activate").write_text(f'PATH="{root}/.venv/bin:{programs}:$PATH"\n')


def real_pbs() -> bool:
    """Is there a PBS that is not the box's stand-in?"""
    if shutil.which("qsub") is None:
        return False
    asked = subprocess.run(["qsub", "--version"], capture_output=True, text=True)
    return "stand-in" not in asked.stdout and "pbs" in asked.stdout.lower()


# The real trainer, with a clock that goes on by one second whenever it is asked: once an update.
TICKING = """
import itertools
from allhands import cli
from allhands.train import stop

begin, seconds = stop.StopTrigger.__init__, itertools.count()


def begin_with_ticks(trigger, epochs, stop_after_s=None, clock=None, comm=stop.ALONE):
    begin(trigger, epochs, stop_after_s, lambda: next(seconds), comm)


stop.StopTrigger.__init__ = begin_with_ticks
cli.main()
"""


@pytest.fixture(scope="session")
def ticking() -> Callable[[Cluster], Cluster]:
    """A project on the same scheduler in which `--stop-after S` ends a part after S - 1 updates."""

    def make(cluster: Cluster) -> Cluster:
        root = cluster.root.with_name("a ticking project")
        copy_project(root)
        (root / "ticking.py").write_text(TICKING)
        command = shlex.join([sys.executable, str(root / "ticking.py")])
        (root / ".venv/bin/allhands").write_text(f'#!/bin/bash\nexec {command} "$@"\n')
        (root / ".venv/bin/allhands").chmod(0o755)
        return Cluster(root, cluster.scheduler, cluster.box, cluster.running)

    return make


@pytest.fixture(scope="session")
def box(can_box: None, box_name: str) -> Iterator[boxes.Box]:
    """One box for all tests of this folder: 2 nodes with 4 GPUs each."""
    with boxes.up(f"{box_name}-jobs", nodes=2, gpus=4) as started:
        yield started


@pytest.fixture(scope="session")
def project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Cluster]]:
    """A function that makes a project for "slurm" or "pbs".

    PBS: a real one, with the project in the home folder, which its nodes see; else the box's.
    """
    made = []

    def make(scheduler: str) -> Cluster:
        real = scheduler == "pbs" and real_pbs()
        if real:
            folder = Path(tempfile.mkdtemp(prefix="allhands-pbs-", dir=Path.home()))
        else:
            folder = tmp_path_factory.mktemp(scheduler)
        root = folder / "a project"  # a space: paths must be quoted
        copy_project(root)
        made.append(Cluster(root, scheduler, None if real else request.getfixturevalue("box")))
        return made[-1]

    yield make
    for cluster in made:
        cluster.end()
        if cluster.box is None:
            shutil.rmtree(cluster.root.parent)


@pytest.fixture(scope="session")
def begin(
    project: Callable[[str], Cluster], request: pytest.FixtureRequest
) -> Iterator[Callable[..., Future | None]]:
    """A function that begins what a test waits for, so that it runs beside other tests.

    begin(file, test, call, *arguments): `call(*arguments)` in a thread, if that test was chosen.
    """
    chosen = {(str(item.path), item.name) for item in request.session.items}
    pool = ThreadPoolExecutor(AT_A_TIME)

    def start(file: str, test: str, call: Callable, *arguments: object) -> Future | None:
        return pool.submit(call, *arguments) if (file, test) in chosen else None

    yield start
    pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture(scope="session")
def slurm(project: Callable[[str], Cluster]) -> Cluster:
    return project("slurm")


@pytest.fixture(scope="session")
def pbs(project: Callable[[str], Cluster]) -> Cluster:
    return project("pbs")


@pytest.fixture
def until() -> Callable[[Callable[[], object], str], object]:
    """Wait until a question has a true answer, and return it; `what` is said if it never has."""
    patience = threading.Event()

    def ask(question: Callable[[], object], what: str, limit_s: float = 60.0) -> object:
        end_s = time.monotonic() + limit_s
        while not (answer := question()):
            assert time.monotonic() < end_s, f"after {limit_s:g} s there was still no {what}"
            patience.wait(0.1)
        return answer

    return ask


def processes_with(words: str) -> list[int]:
    """Processes of this machine, in boxes or not, whose command line holds these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:  # it ended meanwhile
            continue
        if words in line:
            found.append(int(re.search(r"/(\d+)/", str(path))[1]))
    return found


@pytest.fixture(name="processes_with")
def _processes_with() -> Callable[[str], list[int]]:
    return processes_with
