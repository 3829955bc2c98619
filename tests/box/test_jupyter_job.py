"""The job that opens JupyterLab, on a real scheduler: its token opens it, cancelled it is gone."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allhands.kit import reach

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120
CANCEL = {"box": "scancel", "box-pbs": "qdel"}


def wait_for(what):
    """The first true value of `what()`."""
    end_s = time.monotonic() + LIMIT_S
    while not (found := what()):
        assert time.monotonic() < end_s
        time.sleep(0.2)
    return found


@pytest.mark.parametrize("site", CANCEL)
@pytest.mark.timeout(300)
def test_it_is_reached_with_its_token_only_and_cancelled_it_leaves_nothing(box, site, tmp_path):
    shutil.copytree(ROOT / "cluster_jobs", tmp_path / "cluster_jobs")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    programs = os.pathsep.join([str(Path(sys.executable).parent), box.environ()["PATH"]])

    def run(*words: str) -> str:
        told = box.run(
            ["env", f"PATH={programs}", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stdout + told.stderr
        return told.stdout

    told = run("cluster_jobs/submit", "jupyter", "--site", site)
    log = tmp_path / re.search(r"^log +(\S+)", told, re.MULTILINE)[1]
    job = re.search(r"^job +(\S+)", told, re.MULTILINE)[1]

    def connection() -> Path | None:
        found = log.exists() and re.search(r"only you can read: (\S+)", log.read_text())
        return Path(found[1]) if found else None

    connect = wait_for(connection)
    text = connect.read_text()
    token = re.search(r"token=(\S+)", text)[1]
    node, at = re.search(r"JupyterLab on (\S+)\. ", text)[1], re.search(r":8888:(\S+) ", text)[1]
    assert node in box.hosts
    place = reach.Place(socket=Path(at))  # the hosts of a box share their disk
    assert (place.status(), place.status(token)) == (403, 200)
    assert connect.stat().st_mode & 0o077 == 0
    command = re.search(r"^ +(\S+ -m allhands\.kit\.forward .*)$", text, re.MULTILINE)[1]
    with subprocess.Popen(
        [*shlex.split(command), "--port", "0"], stdout=subprocess.PIPE, text=True
    ) as forwarder:
        try:
            port = re.match(r"127\.0\.0\.1:(\d+) ", forwarder.stdout.readline())[1]
            here = reach.Place(port=int(port))
            assert (here.status(), here.status(token)) == (403, 200)
        finally:
            forwarder.kill()

    run(CANCEL[site], job)
    note = log.with_suffix(".job")
    wait_for(lambda: "ALLHANDS_ENDED=" in note.read_text())
    wait_for(lambda: not connect.parent.exists() and not place.socket.parent.exists())
    with pytest.raises(OSError, match="No such file"):
        place.status()
    assert "JupyterLab was ended" in log.read_text().splitlines()[-1]
    for path in log.parent.iterdir():
        assert token not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0
