"""JupyterLab on a compute node: who can reach it, where its secret is, and what it leaves."""

import contextlib
import getpass
import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from allhands.kit import forward, reach, serve

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which Linux has")
LIMIT_S = 120


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@dataclass(frozen=True)
class Served:
    """A JupyterLab that was started as a job starts it."""

    process: subprocess.Popen
    log: Path
    run: Path
    local: Path

    @property
    def text(self) -> str:
        return (self.run / "connect.txt").read_text()

    @property
    def token(self) -> str:
        return re.search(r"token=(\S+)", self.text)[1]

    @property
    def place(self) -> reach.Place:
        where = re.search(r"127\.0\.0\.1:8888:(\S+) ", self.text)[1]
        if where.startswith("/"):
            return reach.Place(socket=Path(where))
        return reach.Place(address=where.rpartition(":")[0], port=int(where.rpartition(":")[2]))

    def server(self) -> int:
        """JupyterLab's process id."""
        (path,) = self.local.glob("*/jpserver-*.json")
        return json.loads(path.read_text())["pid"]


@pytest.fixture
def served(tmp_path):
    """A function that starts one; in the end it and its folder are gone."""
    local = Path(tempfile.mkdtemp(prefix="ah", dir="/tmp"))  # a socket needs a short path
    begun = []

    def start(*options: str) -> Served:
        log, run = tmp_path / "log", tmp_path / "jobs" / "run"
        with open(log, "w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "allhands.kit.serve", "--run", str(run), *options],
                env={
                    **os.environ,
                    "TMPDIR": str(local),
                    "JUPYTER_PORT": "1",
                    "JUPYTER_TOKEN": "own",
                },
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        begun.append(process)
        end_s = time.monotonic() + LIMIT_S
        while "stands in" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end_s, log.read_text()
            time.sleep(0.1)
        return Served(process, log, run, local)

    yield start
    for process in begun:
        process.kill()
        process.wait()
    shutil.rmtree(local)


@contextlib.contextmanager
def forwarded(command: list[str]) -> Iterator[tuple[int, subprocess.Popen]]:
    """The port of a forwarder while it runs, and its process."""
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield int(re.match(r"127\.0\.0\.1:(\d+) ", process.stdout.readline())[1]), process
        finally:
            process.kill()


def only_the_token_opens(served: Served) -> None:
    token, place = served.token, served.place
    assert place.status() == 403
    assert place.status("wrong") == place.status("own") == 403
    assert place.status(token) == 200
    secrets = [served.run, *served.run.rglob("*"), *served.local.rglob("*")]
    assert [path for path in secrets if mode(path) & 0o077] == []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            process = Path("/proc", pid)
            seen = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:  # it has ended meanwhile, or is another's
            continue
        assert token.encode() not in seen
    assert str(served.run / "connect.txt") in served.log.read_text()


@ON_LINUX
def test_on_a_socket_only_the_token_opens_it_and_told_to_end_it_leaves_nothing(served):
    found = served("--listen", "socket", "--login", "login1")
    only_the_token_opens(found)
    assert stat.S_ISSOCK(found.place.socket.stat().st_mode)
    token, server = found.token, found.server()
    command = [sys.executable, "-m", "allhands.kit.forward", str(found.place)]
    with (
        forwarded(command) as (port, process),
        socket.create_connection(("127.0.0.1", port)),  # a browser keeps some open
    ):
        here = reach.Place(port=port)
        assert (here.status(), here.status("wrong"), here.status(token)) == (403, 403, 200)
        found.process.send_signal(signal.SIGTERM)
        assert found.process.wait(LIMIT_S) == 0
        with pytest.raises((OSError, http.client.HTTPException)):
            here.status()
        assert process.wait(LIMIT_S) == 1
        assert process.stdout.read() == "JupyterLab has ended, and so does this.\n"
    assert "JupyterLab was ended: it was told to (SIGTERM)" in found.log.read_text()
    assert not Path(f"/proc/{server}").exists()
    assert not found.run.exists()
    assert list(found.local.iterdir()) == []
    assert token not in found.log.read_text()


@ON_LINUX
def test_on_a_port_too_and_killed_by_signal_9_it_takes_jupyterlab_with_it(served, processes):
    found = served("--listen", "loopback", "--login", "")
    only_the_token_opens(found)
    token, server = found.token, found.server()
    found.process.kill()
    found.process.wait()
    end_s = time.monotonic() + LIMIT_S
    while processes.is_running(server):
        assert time.monotonic() < end_s
        time.sleep(0.1)
    assert token not in found.log.read_text()
    # The next job with the same folder clears away what the killed one left.
    assert mode(reach.private_folder(found.run)) == 0o700
    assert list(found.run.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "login", "ssh"),
    [
        (reach.Place(socket=Path("/tmp/a/s")), "login1", "-J me@login1 .* me@here"),
        (reach.Place(port=7), "you@login1", "-J you@login1 .*:127.0.0.1:7 me@here"),
        (reach.Place(address="10.0.0.5", port=7), "login1", "-N -L .*:10.0.0.5:7 me@login1"),
        (reach.Place(address="10.0.0.5", port=7), "", "-N -L .*:10.0.0.5:7 me@here"),
        (reach.Place(socket=Path("/tmp/a/s")), "", "-N -L .*:/tmp/a/s me@here"),
    ],
)
def test_the_ssh_line_goes_through_the_login_node_where_there_is_one(
    place, login, ssh, monkeypatch
):
    monkeypatch.setattr(reach.getpass, "getuser", lambda: "me")
    monkeypatch.setattr(reach.socket, "gethostname", lambda: "here")
    told = reach.connection_text(place, "/lab", "secret", login, "It ends at 12:00.")
    assert re.search(f"    ssh .*{ssh}\n", told)
    assert "http://127.0.0.1:8888/lab?token=secret\n" in told


def test_on_ones_own_machine_the_file_names_a_forwarder_and_no_host_that_ssh_cannot_reach():
    told = reach.connection_text(reach.Place(socket=Path("/tmp/a/s")), "/lab", "secret", None, "")
    assert f"    {sys.executable} -m allhands.kit.forward /tmp/a/s --port 8888\n" in told
    assert [line.split()[-1] for line in told.splitlines() if " ssh " in line] == [
        f"{getpass.getuser()}@THIS_MACHINE"
    ]
    assert "http://127.0.0.1:8888/lab?token=secret\n" in told


def test_a_forwarder_says_in_a_sentence_that_there_is_no_socket_or_no_port(tmp_path, capsys):
    assert forward.main([str(tmp_path / "gone.sock")]) == 2
    assert "If the job has ended, submit it again" in capsys.readouterr().err
    short = Path(tempfile.mkdtemp(prefix="ah", dir="/tmp"))
    try:
        with socket.socket(socket.AF_UNIX) as there, socket.socket() as taken:
            there.bind(str(short / "s"))
            there.listen()
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            assert forward.main([str(short / "s"), "--port", str(port)]) == 2
    finally:
        shutil.rmtree(short)
    assert f"Port {port} cannot be used here" in capsys.readouterr().err


def test_its_last_words_reach_the_log_when_what_wrote_the_log_has_ended(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-c", "from allhands.kit import serve; serve.say('It was ended.')"],
        env={**os.environ, "ALLHANDS_LOG": str(tmp_path / "log")},
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert (tmp_path / "log").read_text() == "It was ended.\n"


def test_it_never_listens_on_all_addresses(tmp_path):
    for way in reach.WAYS:
        place = reach.place_for(way, tmp_path, names=lambda _: "10.0.0.5")
        assert place.address not in ("", "*", "0.0.0.0", "::")
    with pytest.raises(reach.Refusal, match="all addresses"):
        reach.place_for("node", tmp_path, names=lambda _: "0.0.0.0")

    with pytest.raises(reach.Refusal, match=r"socket .*loopback .*node"):
        reach.place_for("everywhere", tmp_path)

    def unknown(name: str) -> str:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(reach.Refusal, match="ALLHANDS_JUPYTER=socket"):
        reach.place_for("node", tmp_path, names=unknown)


def test_a_folder_that_is_somebody_s_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(reach.Refusal, match="not there yet"):
        reach.private_folder(tmp_path)
    assert (tmp_path / "mine.txt").exists()


def test_a_socket_s_path_is_short_even_where_temporary_files_are_far_away(tmp_path, monkeypatch):
    deep = tmp_path / ("a" * 60)
    deep.mkdir()
    monkeypatch.setattr(reach.tempfile, "tempdir", str(deep))
    folder = reach.local_folder()
    kernel = "kernel-" + "0" * 36 + "-ipc-5"
    assert len(str(folder / kernel)) <= 107
    assert mode(folder) == 0o700
    folder.rmdir()


def test_a_server_that_answers_to_anybody_is_refused(tmp_path, monkeypatch):
    (tmp_path / "jpserver-7.json").write_text('{"pid": 7, "port": 1}')
    monkeypatch.setattr(reach.Place, "status", lambda self, token="": 200)
    with pytest.raises(reach.Refusal, match="403 and 200"):
        serve.ready(reach.Place(), tmp_path, type("Server", (), {"pid": 7}), "secret")


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(reach.tempfile, "tempdir", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    monkeypatch.setattr(serve, "write_private", full)
    handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    umask = os.umask(0o022)
    try:
        assert serve.main(["--run", str(tmp_path / "run")]) == 1
    finally:
        os.umask(umask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert "No space left on device" in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
