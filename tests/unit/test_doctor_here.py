"""The doctor on the machine at hand: real ranks, a hanging launcher, and nothing left running."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from allhands.doctor import look_folder, probes, show
from allhands.doctor import machine as machine_module
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
    folder = machine.folder(tmp_path)
    assert 0 < folder.free_bytes <= folder.total_bytes
    assert folder.error == ""
    assert folder.ahead_s == pytest.approx(0, abs=2)
    assert list(tmp_path.iterdir()) == []
    assert machine.folder(tmp_path / "not there").error
    network = machine.network(30000, 30002)
    assert "lo" in {one.name for one in network.interfaces} or sys.platform != "linux"
    assert network.loopback_error is None
    assert 0 <= network.range_free <= 3


def test_a_file_system_that_does_not_answer_is_a_finding_and_not_a_wait(tmp_path, monkeypatch):
    """Whoever touches it waits for ever; here, the looking program does."""
    waits = tmp_path / "python"
    waits.write_text("#!/bin/sh\nexec sleep 600\n")
    waits.chmod(0o755)
    monkeypatch.setattr(machine_module, "LOOK_S", 0.2)

    class Here(Machine):
        executable = waits

    (finding,) = probes.scratch(Here())
    assert (finding.name, finding.status) == ("scratch", "bad")
    assert "no answer" in finding.seen
    assert probes.clock(Here()) == []
    assert [one.status for one in probes.network(Here())] == ["warn"]


def test_a_folder_that_was_removed_is_told_with_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.delenv("ALLHANDS_SCRATCH", raising=False)
    (tmp_path / "gone").rmdir()
    (finding,) = probes.scratch(Machine())
    assert (finding.status, finding.blocks) == ("bad", "simulated")
    assert "is gone" in finding.seen
    assert "cd ..." in finding.advice
    assert probes.clock(Machine()) == []
    assert "folder: removed" in show.as_text([finding], Machine())


# ---- memory, as other machines tell it ----

GIB = 2**30


class Told(Machine):
    """A machine whose files in /proc and /sys are these."""

    def __init__(self, files):
        self.files = {"/proc/meminfo": f"MemAvailable: {16 * GIB // 1024} kB\n", **files}

    def text(self, path):
        return self.files.get(str(path), "")


def group_2(folder, limit, used, cache):
    files = {"memory.max": limit, "memory.current": used, "memory.stat": f"inactive_file {cache}"}
    return {f"/sys/fs/cgroup/{folder}{name}": f"{text}\n" for name, text in files.items()}


def group_1(folder, limit, used, cache):
    files = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": used}
    files["memory.stat"] = f"inactive_file 1\ntotal_inactive_file {cache}"
    return {f"/sys/fs/cgroup/memory{folder}/{name}": f"{text}\n" for name, text in files.items()}


@pytest.mark.parametrize(
    ("files", "free_gib"),
    [
        ({}, 16),
        (group_2("", "max", 9 * GIB, 0), 16),
        (group_2("", 4 * GIB, 3 * GIB, 0), 1),
        # The page cache of read files counts as used, and goes when memory is asked for.
        (group_2("", 4 * GIB, 4 * GIB, 3 * GIB), 3),
        (group_2("", 4 * GIB, 5 * GIB, 0), 0),
        # A job's own group, and the smaller one around it.
        (
            {
                "/proc/self/cgroup": "0::/slurm/job_7/step_0\n",
                **group_2("slurm/job_7/step_0/", "max", GIB, 0),
                **group_2("slurm/job_7/", 8 * GIB, 2 * GIB, GIB),
            },
            7,
        ),
        (group_1("", 2**63 - 4096, 9 * GIB, 0), 16),
        (
            {
                "/proc/self/cgroup": "9:cpu:/else\n4:memory:/docker/a\n0::/\n",
                **group_1("/docker/a", 6 * GIB, 5 * GIB, 2 * GIB),
            },
            3,
        ),
    ],
)
def test_free_memory_is_the_least_of_host_and_groups_and_cache_is_not_used(files, free_gib):
    assert Told(files).memory_bytes() == free_gib * GIB


def test_files_that_no_process_maps_are_left_over(tmp_path):
    (tmp_path / "mpich_shm_old").write_bytes(b"0" * 5000)
    (tmp_path / "notes.txt").write_bytes(b"mine")
    with open(tmp_path / "sm_segment.live", "w+b") as file:
        file.truncate(4096)
        with mmap.mmap(file.fileno(), 4096):
            found = {one.name: one for one in Machine().segments(str(tmp_path))}
    assert set(found) == {"mpich_shm_old", "sm_segment.live"}
    assert (found["mpich_shm_old"].n_bytes, found["mpich_shm_old"].mapped) == (5000, False)
    assert found["sm_segment.live"].mapped


def test_a_clock_is_off_only_outside_the_time_that_the_write_took():
    assert look_folder.outside(5.0, 4.0, 6.0) == 0
    assert look_folder.outside(9.0, 4.0, 6.0) == 3
    assert look_folder.outside(1.0, 4.0, 6.0) == -3
