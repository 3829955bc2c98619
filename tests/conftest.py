"""What holds in every test: one thread a process, fixed seeds, and skips that say why."""

import ctypes
import os
import random
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

# Before NumPy and PyTorch are imported, and inherited by every child process. Two threads a process
# are slower than one here: the models are small, and several ranks share the cores.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["MPLBACKEND"] = "Agg"  # draw into files: there may be no screen

# Started in the background (`&`, nohup, a CI), we and our children have these signals ignored,
# and a bash script can't undo that: a test that interrupts a program would wait for ever.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        interrupts = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if interrupts else signal.SIG_DFL)

import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from allhands.labs import COURSE  # noqa: E402

# The same examples in every run; no deadline, because a busy machine is not a wrong answer.
hypothesis.settings.register_profile("allhands", derandomize=True, deadline=None)
hypothesis.settings.load_profile("allhands")


@pytest.fixture(autouse=True)
def _same_random_numbers_in_every_run() -> None:
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def cuda_device_count() -> int:
    """How many CUDA devices the driver reports; 0 without a driver. Imports no framework."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # the labs take the longest: one begun last ends alone
        items.sort(key=lambda item: not shared_set_up(item.nodeid).endswith("]"))
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and cuda_device_count() == 0:
        skip = pytest.mark.skip(reason="needs a CUDA GPU, and the driver reports none here")
        for item in on_gpu:
            item.add_marker(skip)


def shared_set_up(nodeid: str) -> str:
    """What a test shares its set-up with: a lab's notebook, the box of jobs, or else its file."""
    file = nodeid.split("::")[0]
    if file.startswith("tests/box/jobs/"):
        return "tests/box/jobs"
    lab = re.search(r"test_(?:nbgrader|nbval)\.py::.*\[(\w+)(?:-.*)?\]$", nodeid)
    return f"{file}[{lab[1]}]" if lab and lab[1] in COURSE.labs() else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """With `--dist loadscope`, tests that share a set-up run on one worker."""
    from xdist.scheduler import LoadScopeScheduling

    class BySetUp(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return shared_set_up(nodeid)

    return BySetUp(config, log) if config.getvalue("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def required() -> Callable[[object, str], None]:
    """required(is_here, reason): skip where a need is missing; with CI=true, fail.

    So a CI cannot pass because half of its tests had nothing to run on.
    """

    def demand(is_here: object, reason: str) -> None:
        if not is_here:
            on_ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
            (pytest.fail if on_ci else pytest.skip)(reason)

    return demand


class Processes:
    """What a test wants to know of the processes that it started."""

    @staticmethod
    def is_running(pid: int) -> bool:
        """A process that has ended but was not collected yet does not run."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def end(self, pids: list[int]) -> list[int]:
        """End those that still run, so that a failed test leaves nothing; return them."""
        left = [pid for pid in pids if self.is_running(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return left


@pytest.fixture
def processes() -> Processes:
    return Processes()
