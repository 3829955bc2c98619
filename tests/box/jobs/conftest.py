"""A project whose jobs run for real: on a box's Slurm, and on PBS, a real one where it is at hand.

Without a real PBS (`qsub --version`) the box's stand-in takes its place: the headers are read by
the kit's own reader, and Slurm runs the jobs. The project is a copy of `cluster_jobs` beside this
`handson`, with a corpus of 12 sentence pairs, and with this environment in place of `.venv`.
"""

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
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from allhands.box import Box

JOBS = Path(__file__).parents[3] / "cluster_jobs"
# A translator that trains in a second: 12 pairs, 3 updates an epoch on one rank.
SETTINGS = {
    **dict.fromkeys(("train", "valid", "test"), "pairs.tsv"),
    **{"batch_size": 4, "n_embed": 4, "n_hidden": 4, "epochs": 1, "evaluate_pairs": 1},
}
TINY = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
PAIRS = "".join(f"no {number} two\tbango {number} ni\n" for number in range(12))
LIMIT_S = 120.0  # of one command, on a busy machine


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """The trainer's arguments for a tiny translator."""
    return list(TINY)


@dataclass
class Cluster:
    """A project, and a scheduler that runs its jobs. box: None if it is the machine's own."""

    root: Path
    scheduler: str
    box: Box | None
    running: list[subprocess.Popen] = field(default_factory=list)

    @property
    def site(self) -> str:
        sites = {"slurm": "box", "pbs": "box-pbs" if self.box else "pbs-generic"}
        return os.environ.get("ALLHANDS_TEST_SITE", sites[self.scheduler])

    def environ(self, **more: str) -> dict[str, str]:
        own = dict(os.environ) if self.box is None else self.box.environ()
        return {**own, "ALLHANDS_SITE": self.site, "ALLHANDS_POLL_S": "0.3", **more}

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


@pytest.fixture
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


@pytest.fixture(scope="module")
def slurm(box: Box, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root = tmp_path_factory.mktemp("slurm") / "a project"  # a space: paths must be quoted
    copy_project(root)
    cluster = Cluster(root, "slurm", box)
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def pbs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A real PBS, with the project in the home folder, which its nodes see; else the box's."""
    if real_pbs():
        with tempfile.TemporaryDirectory(prefix="allhands-pbs-", dir=Path.home()) as folder:
            copy_project(Path(folder) / "a project")
            cluster = Cluster(Path(folder) / "a project", "pbs", None)
            yield cluster
            cluster.end()
        return
    root = tmp_path_factory.mktemp("pbs") / "a project"
    copy_project(root)
    cluster = Cluster(root, "pbs", request.getfixturevalue("box"))
    yield cluster
    cluster.end()


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
