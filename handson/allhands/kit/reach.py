"""How is JupyterLab on a compute node reached by one person, and by nobody else?

A `Place` is where it listens: a Unix socket, or a port. The folders here are private (mode 0700),
and so is the file with the command (ssh, or `forward.py`) and the address with its token (0600).
"""

import contextlib
import getpass
import http.client
import ipaddress
import os
import shlex
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

WAYS = {
    "socket": "a Unix socket that only you can open; you can ssh to your own node",
    "loopback": "a port of 127.0.0.1; you can ssh to your own node, and nobody else is on it",
    "here": "a Unix socket too, where the nodes are parts of your own machine, without an sshd",
    "node": "a port of the node's own address; there is no ssh to nodes, the network is trusted",
}
LOCAL_MOST_BYTES = 50  # a socket's path has 107 bytes at most; a kernel's name takes 49 of them
HERE_PORT = 8888  # on the participant's own computer


class Refusal(Exception):
    """What was asked cannot work; the text says why, and what to do."""


@dataclass(frozen=True)
class Place:
    """Where JupyterLab listens: the path of a Unix socket, or an address and a port (0: any)."""

    socket: Path | None = None
    address: str = "127.0.0.1"
    port: int = 0

    def options(self) -> list[str]:
        if self.socket is not None:
            return [f"--ServerApp.sock={self.socket}", "--ServerApp.sock_mode=0600"]
        return [f"--ServerApp.ip={self.address}", f"--ServerApp.port={self.port}"]

    def __str__(self) -> str:
        """As `ssh -L` and `curl` know it."""
        return f"{self.socket or f'{self.address}:{self.port}'}"

    def status(self, token: str = "") -> int:
        """The code of the answer to a question that needs the token. Raises OSError."""
        with contextlib.closing(self._connection()) as connection:
            headers = {"Authorization": f"token {token}"} if token else {}
            connection.request("GET", "/api/status", headers=headers)
            return connection.getresponse().status

    def _connection(self) -> http.client.HTTPConnection:
        if self.socket is None:
            return http.client.HTTPConnection(self.address, self.port, timeout=30)
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(30)
        connection.sock.connect(str(self.socket))
        return connection


def private_folder(path: Path) -> Path:
    """Make a folder that only its owner can enter. Raises Refusal.

    A folder that an earlier, killed run of this program left is made anew; no other one.
    """
    ours = {"connect.txt", "config", "data"}
    if path.is_dir() and not path.is_symlink() and {each.name for each in path.iterdir()} <= ours:
        shutil.rmtree(path)
    try:
        path.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise Refusal(
            f"The private folder {path} could not be made ({error.strerror}). Give --run the "
            "path of a folder that is not there yet, where you can write."
        ) from error
    seen = path.stat()
    if seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) & 0o077:
        path.rmdir()
        raise Refusal(
            f"{path} was made private (0700) and is {stat.S_IMODE(seen.st_mode):04o}: this file "
            "system does not keep secrets. Give --run a folder in your home."
        )
    return path


def local_folder() -> Path:
    """Make a private folder with a short path on this node's own disk."""
    base = tempfile.gettempdir()
    short = len(os.fsencode(base)) + len("/allhands-lab-12345678") <= LOCAL_MOST_BYTES
    return Path(tempfile.mkdtemp(prefix="allhands-lab-", dir=base if short else "/tmp"))


def place_for(way: str, local: Path, names: Callable[[str], str] = socket.gethostbyname) -> Place:
    """Where to listen. `names` gives the address of a host's name. Raises Refusal."""
    if way not in WAYS:
        known = "; ".join(f"{each} ({means})" for each, means in WAYS.items())
        raise Refusal(f"ALLHANDS_JUPYTER is {way!r} in the site's file. It may be: {known}.")
    if way in ("socket", "here"):
        return Place(socket=local / "lab.sock")
    if way == "loopback":
        return Place()
    host = socket.gethostname()
    try:
        address = names(host)
    except OSError as error:
        raise Refusal(
            f"This node's name {host} has no address here ({error}), so --listen node cannot "
            "work. Set ALLHANDS_JUPYTER=socket in the site's file."
        ) from error
    if ipaddress.ip_address(address).is_unspecified:
        raise Refusal(
            f"This node's name {host} stands for {address}, which means all addresses: everybody "
            "could reach JupyterLab. Set ALLHANDS_JUPYTER=socket in the site's file."
        )
    return Place(address=address)


def connection_text(place: Place, page: str, token: str, login: str | None, ends: str) -> str:
    """What stands in connect.txt: how to reach this JupyterLab, for its owner's eyes.

    login: the login node; "": there is none; None: the node is a part of the reader's machine.
    """
    first = here_text(place) if login is None else ssh_text(place, login)
    return (
        f"JupyterLab on {socket.gethostname()}. {ends}\n\n"
        f"1. {first}\n"
        "2. In a browser there:\n\n"
        f"    http://127.0.0.1:{HERE_PORT}{page}?token={token}\n\n"
        f"Is {HERE_PORT} taken there? Write another number in both lines.\n"
        "Who has the token can do what you can do: keep this file to yourself.\n"
    )


def here_text(place: Place) -> str:
    words = [sys.executable, "-m", "allhands.kit.forward", str(place), "--port", str(HERE_PORT)]
    return (
        f"On this machine, outside the box, as {getpass.getuser()}; leave it running:\n\n"
        f"    {shlex.join(words)}\n\n"
        "   Is your browser on another computer? Then this, over there, instead:\n\n"
        f"    ssh -N -L 127.0.0.1:{HERE_PORT}:{place} {getpass.getuser()}@THIS_MACHINE\n"
    )


def ssh_text(place: Place, login: str) -> str:
    node, user = socket.gethostname(), getpass.getuser()
    login = login if "@" in login or not login else f"{user}@{login}"
    through_node = place.socket is not None or ipaddress.ip_address(place.address).is_loopback
    jump = f"-J {login} " if login and through_node else ""
    target = login if login and not through_node else f"{user}@{node}"
    return (
        "On your own computer; leave it running:\n\n"
        f"    ssh -N {jump}-L 127.0.0.1:{HERE_PORT}:{place} {target}\n"
    )


def write_private(path: Path, text: str) -> None:
    """A new file that only its owner can read, from its first byte on."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
