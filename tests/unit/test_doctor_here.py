"""The doctor on the machine at hand: real ranks, a hanging launcher, and nothing left running."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from allhands.doctor import probes
from allhands.doctor.machine import Machine


def test_importing_the_doctor_imports_no_heavy_library():
    heavy = {"chainer", "chainermn", "cupy", "mpi4py", "numpy", "torch"}
    code = f"import sys, allhands.doctor.probes; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == "set()", ran.stdout + ran.stderr


def test_here_chainer_computes_and_two_ranks_are_one_world():
    """The environment that runs the tests is one in which the labs run."""
    for probe in (probes.python, probes.packages, probes.intruder, probes.chainer, probes.mpi):
        for finding in probe(Machine()):
            assert finding.status == "good", finding


def test_a_launcher_of_another_mpi_makes_two_worlds_of_size_1(tmp_path):
    """A launcher that mpi4py's library does not know: here, a loop that starts two processes."""
    launcher = tmp_path / "mpiexec"
    launcher.write_text('#!/bin/bash\nshift 2; "$@"; "$@"\n')
    launcher.chmod(0o755)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/bash\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)

    class Here(Machine):
        executable = python

    (finding,) = probes.mpi(Here())
    assert finding.status == "bad"
    assert "two worlds of size 1" in finding.seen


STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdout.write(f"\\npid {os.getpid()}\\n")
sys.stdout.flush()
while True:
    signal.pause()
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to look for processes")
def test_when_mpiexec_takes_too_long_no_rank_is_left(processes):
    """Even ranks that ignore SIGTERM, in sessions of their own, are gone."""
    launcher = str(Path(sys.executable).parent / "mpiexec")
    command = [launcher, "-n", "2", sys.executable, "-c", STUBBORN]
    ran = Machine().run(command, time_limit_s=2)
    pids = [int(line.split()[1]) for line in ran.output.splitlines() if line.startswith("pid ")]
    assert processes.end(pids) == []
    assert ran.code is None
    assert len(pids) == 2, ran.output


def test_a_program_that_is_not_there_is_a_result():
    assert Machine().run(["no-such-program"], 1).code == 127


def test_what_is_seen_of_this_machine_is_plausible(tmp_path):
    machine = Machine()
    assert 1 <= machine.cores() <= os.cpu_count()
    assert machine.memory_bytes() > 0
    assert machine.disk_bytes(tmp_path) > 0
    assert machine.can_write(tmp_path)
    assert not machine.can_write(tmp_path / "not there")
