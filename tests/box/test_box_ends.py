"""Nothing of a box is left, however it ends: down, killed, given up midway, or never started."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from allhands import box as boxes
from allhands.box import place

CLI = (sys.executable, "-m", "allhands.cli", "box")


def outside() -> tuple:
    """What a box might leave on this machine, beside processes: mounts, interfaces, namespaces."""
    mounts = Path("/proc/self/mountinfo").read_text()
    named = sorted(os.listdir("/run/netns")) if Path("/run/netns").exists() else []
    return mounts, sorted(os.listdir("/sys/class/net")), named, os.uname().nodename


def words_of(pids: set[int]) -> bytes:
    """The command lines of these processes, one after the other."""
    lines = []
    for pid in pids:
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        except OSError:  # it has ended
            continue
    return b"\n".join(lines)


def test_ten_boxes_one_after_the_other_leave_nothing(can_link, ended, allhands, pids_of):
    """Two by the command, whose process has ended when the box goes down; eight from Python."""
    before = outside()
    for number in range(10):
        link = {"rate": "1gbit", "delay": "1ms"} if number % 2 else {}
        words = [word for name, value in link.items() for word in (f"--{name}", value)]
        if number < 2:
            ran = allhands("up", "--name", ended, "--nodes", "2", *words)
            assert ran.returncode == 0, ran.stderr
            started = boxes.find(ended)
        else:
            started = boxes.up(ended, nodes=2, **link)
        assert len(pids_of(started.folder)) >= 8  # keeper, ctl, 2 hosts, and 4 daemons
        assert outside() == before
        if number < 2:
            assert allhands("down", "--name", ended).returncode == 0
        else:
            started.down()
        assert pids_of(started.folder) == set()
        assert not started.folder.exists()
    assert outside() == before


@pytest.fixture
def doomed(can_box, ended):
    """A box that a test ends badly."""
    return boxes.up(ended, nodes=2, gpus=1)


def test_killing_the_first_process_ends_daemons_and_jobs(doomed, pids_of, until):
    job = ["sbatch", "-N2", "--output=/dev/null", "--wrap", "srun sleep 3600"]
    assert doomed.run(job, stdout=subprocess.DEVNULL).returncode == 0
    until(lambda: b"sleep\x003600" in words_of(pids_of(doomed.folder)))
    before = pids_of(doomed.folder)
    os.kill(doomed.init_pid, signal.SIGKILL)
    until(lambda: not doomed.folder.exists() and pids_of(doomed.folder) == set())
    assert len(before) > 8
    with pytest.raises(boxes.BoxError, match="No box named"):
        boxes.find(doomed.name)


def test_when_the_keeper_is_killed_the_box_ends_and_its_folder_is_swept(doomed, pids_of, until):
    outer = Path(f"/proc/{doomed.init_pid}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(outer), signal.SIGKILL)
    until(lambda: not place.lives(doomed.folder))
    assert doomed.name not in place.names()
    assert not doomed.folder.exists()
    until(lambda: pids_of(doomed.folder) == set())


@pytest.mark.parametrize(
    ("seen", "number"),
    [
        ("asked.json", signal.SIGINT),
        ("slurm.conf", signal.SIGKILL),
        ("munge.sock", signal.SIGINT),
        ("log/slurmctld.log", signal.SIGKILL),
    ],
)
def test_a_box_ends_if_up_is_ended_midway(can_box, ended, seen, number, pids_of, until):
    before, folder = outside(), place.folder_of(ended)
    starting = subprocess.Popen(
        [*CLI, "up", "--name", folder.name, "--nodes", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until((folder / seen).exists)
    starting.send_signal(number)
    starting.wait()
    until(lambda: not folder.exists() and pids_of(folder) == set())
    assert starting.returncode != 0
    assert outside() == before


def test_a_box_that_cannot_start_says_why_and_leaves_nothing(
    can_box, ended, monkeypatch, tmp_path, pids_of
):
    """A slurmctld that ends at once stands first on the daemons' PATH."""
    broken = tmp_path / "slurmctld"
    broken.write_text("#!/bin/sh\necho no controller today >&2\nexit 4\n")
    broken.chmod(0o755)
    monkeypatch.setattr(boxes.needs, "PATH", f"{tmp_path}:{boxes.needs.PATH}")
    with pytest.raises(boxes.BoxError, match="slurmctld ended at once, with exit code 4") as told:
        boxes.up(ended, nodes=1)
    assert "no controller today" in str(told.value)
    assert not place.folder_of(ended).exists()
    assert pids_of(place.folder_of(ended)) == set()


@pytest.mark.parametrize(
    ("options", "reason"), [("size=8k", "No space left on device"), ("ro", "Read-only file system")]
)
def test_a_place_that_takes_no_files_is_said_and_left_as_it_was(can_box, options, reason):
    up = f"mount -t tmpfs -o {options} a /run && {shlex.join(CLI)} up --nodes 1; ls -A /run"
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", up], capture_output=True, text=True)
    assert ran.stdout == "", "nothing is up, and the folder is empty"
    assert ran.stderr.startswith("allhands: ")
    assert reason in ran.stderr
    assert str(place.BASE) in ran.stderr
    assert "Traceback" not in ran.stderr
