"""Boxes for the tests. Where a machine cannot make one they skip; with CI=true they fail."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allhands import box as boxes

ALLHANDS_BOX = (sys.executable, "-m", "allhands.cli", "box")
WAIT_LIMIT_S = 60


def demand(link: bool) -> None:
    """Skip with what is missing, or fail where the tests must not be skipped."""
    if missing := boxes.needs.missing(link):
        on_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
        (pytest.fail if on_ci else pytest.skip)(" ".join(missing))


@pytest.fixture(scope="session")
def can_box() -> None:
    """The test makes boxes."""
    demand(link=False)


@pytest.fixture(scope="session")
def can_link() -> None:
    """The test makes boxes with a shaped link."""
    demand(link=True)


@pytest.fixture(scope="session")
def box_name() -> str:
    """The beginning of a name that no other run of the tests uses."""
    return f"test-{os.getpid()}"


@pytest.fixture(scope="module")
def box(can_box: None, box_name: str) -> Iterator[boxes.Box]:
    """A box of 2 nodes with 4 GPUs each, for the tests of one file."""
    with boxes.up(f"{box_name}-shared", nodes=2, gpus=4) as started:
        yield started


@pytest.fixture
def ended(box_name: str) -> Iterator[str]:
    """A name; if a test fails while a box of that name is up, it ends nevertheless."""
    name = f"{box_name}-one"
    yield name
    if name in boxes.place.names():
        boxes.find(name).down()


@pytest.fixture(scope="session")
def allhands() -> Callable[..., subprocess.CompletedProcess]:
    """Run a command of `allhands box`; options as of subprocess.run."""

    def run(*words: str, **options) -> subprocess.CompletedProcess:
        options = {"capture_output": True, "text": True, "timeout": 120, **options}
        return subprocess.run([*ALLHANDS_BOX, *words], **options)

    return run


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], object]], None]:
    """Wait until something is so, or fail after a time that no test needs."""

    def wait(is_so: Callable[[], object]) -> None:
        end_s = time.monotonic() + WAIT_LIMIT_S
        while not is_so():
            assert time.monotonic() < end_s, f"not so after {WAIT_LIMIT_S} s"
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def pids_of() -> Callable[[Path], set[int]]:
    """The processes of the box in that folder: those that name it, and all in their namespaces."""

    def find(folder: Path) -> set[int]:
        words, namespaces = {}, {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words[int(process.name)] = (process / "cmdline").read_bytes()
                namespaces[int(process.name)] = os.readlink(process / "ns" / "pid")
            except OSError:  # it has ended, or is another's
                continue
        named = {pid for pid, text in words.items() if f'"{folder.name}"'.encode() in text}
        theirs = {namespaces.get(pid) for pid in named} - {os.readlink("/proc/self/ns/pid")}
        return named | {pid for pid, namespace in namespaces.items() if namespace in theirs}

    return find
