"""Set-ups that are broken on purpose: the doctor names each, and what it advises mends it.

Probes that start Chainer or MPI run only where they are what is broken.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sample_breakage import (
    ASK,
    CHEAP,
    CUPY_STUB,
    ENVIRONMENT,
    HOLDER,
    NAMESPACES,
    RANKS,
    SCRIPT,
    SLOW_CLOCK,
    Broken,
)

from allhands.doctor import probes
from allhands.doctor.machine import Machine


@pytest.fixture(scope="module")
def namespaces(required) -> None:
    unshare = shutil.which("unshare")
    command = [unshare or "unshare", "-m", "-u", "-n", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    able = unshare is not None and subprocess.run(command, capture_output=True).returncode == 0
    required(able, "needs root and namespaces: unshare -m -u -n does not work here")
    required(shutil.which("ip") is not None, "needs the command ip (Debian: iproute2)")


def environment(folder: Path, one: Broken) -> dict[str, str]:
    """This environment, without what belongs to a job or names an interface."""
    foreign = r"(ALLHANDS|SLURM|PBS|CUDA|GLOO|NCCL|FI|OMPI|PMI|MASTER)_"
    kept = {name: value for name, value in os.environ.items() if not re.match(foreign, name)}
    own = Path(sys.executable).parent
    texts = {"ASK": ASK, "CUPY_STUB": CUPY_STUB, "HOLDER": HOLDER}
    return {
        **{**kept, **texts, "OMP_NUM_THREADS": "1", "PATH": f"{own}:/usr/sbin:{kept['PATH']}"},
        **{"T": str(folder), "PYTHON": sys.executable, "BIN": str(own), "NAME": one.name},
        **{"LEVEL": one.level, "PROBES": " ".join(one.probes)},
    }


def not_good(folder: Path, which: str) -> dict[str, dict]:
    found = json.loads((folder / which).read_text().splitlines()[-1])
    return {one["name"]: one for one in found if one["status"] != "good"}


@pytest.fixture(scope="module")
def usual(tmp_path_factory) -> set[str]:
    """What the doctor would mend on this machine anyway."""
    folder = tmp_path_factory.mktemp("usual")
    one = Broken("", "", "", "", "")
    ran = subprocess.run(
        [sys.executable, "-c", ASK, "cpu", *CHEAP],
        env=environment(folder, one),
        capture_output=True,
        text=True,
        check=True,
    )
    (folder / "found").write_text(ran.stdout)
    return set(not_good(folder, "found"))


def mend(folder: Path, one: Broken, usual: set[str]) -> dict[str, dict]:
    """Break, look, follow the advice, look again. Returns what was not good before."""
    text = SCRIPT % (one.breaks, "'" + one.cure.replace("'", "'\\''") + "'", one.by_hand)
    command = ["bash", "-c", text]
    if one.namespaces:
        command = ["unshare", *one.namespaces.split(), *command]
    ran = subprocess.run(
        command, env=environment(folder, one), capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr + ran.stdout
    before, after = not_good(folder, "before"), not_good(folder, "after")
    assert before[one.name]["status"] == one.status
    assert one.seen in before[one.name]["seen"]
    assert set(after) <= usual - {one.name}, after
    return before


@pytest.mark.parametrize("one", ENVIRONMENT.values(), ids=ENVIRONMENT)
def test_what_is_broken_by_its_environment_is_named_and_mended(one, tmp_path, usual, required):
    if one.name == "threads":
        required(Machine().cores() > 1, "needs two cores: on one, threads cost nothing")
    before = mend(tmp_path, one, usual)
    assert set(before) - {one.name} <= usual


@pytest.mark.parametrize("one", NAMESPACES.values(), ids=NAMESPACES)
def test_what_is_broken_in_namespaces_is_named_and_mended(one, tmp_path, usual, namespaces):
    before = mend(tmp_path, one, usual)
    assert set(before) - {one.name} <= usual


@pytest.mark.parametrize("one", RANKS.values(), ids=RANKS)
def test_ranks_that_do_not_find_each_other_are_named_and_mended(one, tmp_path, request):
    if one.namespaces:
        request.getfixturevalue("namespaces")
    before = mend(tmp_path, one, set())
    assert set(before) - {one.name} <= {"MPI"}  # without room, MPI does not start


def test_a_slurm_whose_server_is_gone_is_named_within_its_time(tmp_path, usual, required):
    """The real client of Slurm; nothing listens on the port of its server."""
    required(shutil.which("sinfo") is not None, "needs Slurm's client (Debian: slurm-client)")
    lines = "ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nNodeName=n1\n"
    (tmp_path / "gone.conf").write_text(lines)
    one = Broken(
        "export SLURM_CONF=$T/gone.conf",
        "scheduler",
        "warn",
        "Slurm's server does not answer",
        "unset SLURM_CONF",
        probes=("scheduler",),
    )
    mend(tmp_path, one, usual)


def test_a_clock_that_is_slow_is_named(tmp_path):
    """The doctor's own look at the folder, by a Python whose time is 100 s behind."""
    slow = tmp_path / "slow-python"
    slow.write_text(f"#!{sys.executable}\n{SLOW_CLOCK}")
    slow.chmod(0o755)

    class Here(Machine):
        environ = property(lambda self: {"ALLHANDS_SCRATCH": str(tmp_path)})
        executable = slow

    (finding,) = probes.clock(Here())
    assert finding.status == "warn"
    assert re.search(r"(99|100)\.\d s ahead of this host's", finding.seen)
    Here.executable = Path(sys.executable)
    assert [one.status for one in probes.clock(Here())] == ["good"]
