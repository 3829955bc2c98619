"""What happens in a box? Its first process makes hosts, network and Slurm, and stays.

Runs as process 1 of new namespaces, which `keeper` made. It is the login node `ctl`. It writes one
line of JSON to standard output: {"hosts": {"n1": pid, ...}}, process ids as the box numbers them;
or {"error": "...", "logs": "..."}, and ends: then all that it has started ends too.
"""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path

from allhands.box import hosts, kernel, place, slurm
from allhands.box.asked import Asked

LOG_LINES = 8


def main(asked: Asked, folder: Path) -> None:
    """Never returns."""
    try:
        report = {"hosts": build(asked, folder)}
    except BaseException as error:
        with contextlib.suppress(OSError):  # the disk may be full
            traceback.print_exc()
        report = {"error": str(error) or type(error).__name__, "logs": logs(folder)}
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            report = {"error": place.unwritten(error)}
    with contextlib.suppress(OSError):  # `up` may be gone
        os.write(1, json.dumps(report).encode() + b"\n")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    if "error" in report:
        os._exit(1)
    hosts.stay()


def logs(folder: Path) -> str:
    """The ends of all logs."""
    ends = []
    for path in sorted(folder.rglob("*.log")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_LINES:]
        ends.append("\n".join([f"{path.name}:", *(f"  {line}" for line in lines)]))
    return "\n".join(ends)


def build(asked: Asked, folder: Path) -> dict[str, int]:
    """Set up everything; return the process that keeps each node's namespaces."""
    slurm.write(asked, folder)
    login_node(asked, folder)
    munge = slurm.start_munge(folder)
    nodes = [
        hosts.Host(number, asked, folder, slurm.start_node) for number in range(1, asked.nodes + 1)
    ]
    for node in nodes:
        node.done()
    hosts.bridge([node.pid for node in nodes])
    for node in nodes:
        node.tell(b"n")
    slurm.wait_for("munged", (folder / "munge.sock").exists, munge)
    controller = slurm.start_controller(folder)
    for node in nodes:
        node.done()
    wire = start_wire(asked, folder, [node.pid for node in nodes]) if asked.shaped else None
    slurm.wait_for("slurmctld", slurm.controller_listens, controller)
    for node in nodes:
        node.tell(b"d")
    for node in nodes:
        node.done()
    if wire is not None:
        slurm.wait_for("the switch of net0", (folder / "wire.json").exists, wire)
    slurm.wait_for("Slurm", lambda: slurm.all_idle(asked, folder), controller)
    return {node.name: node.pid for node in nodes}


def login_node(asked: Asked, folder: Path) -> None:
    """Make this process the login node: its names, mounts and network."""
    kernel.mount("none", "/", flags=kernel.SLAVE | kernel.RECURSIVE)  # nothing shows outside
    kernel.mount("proc", "/proc", "proc")
    socket.sethostname(hosts.LOGIN)
    names = folder / "hosts"
    names.write_text(hosts.names_file(asked), encoding="utf-8")
    kernel.mount(str(names), "/etc/hosts", flags=kernel.BIND)
    hosts.own_folders(folder)
    hosts.own_network()


def start_wire(asked: Asked, folder: Path, pids: list[int]) -> subprocess.Popen:
    """Start the switch that carries net0 between the nodes' network namespaces."""
    words = [sys.executable, "-m", "allhands.box.wire", str(folder / "wire.json")]
    words += [f"--rate={asked.rate_bit_s or 0}", f"--delay={asked.delay_s or 0}"]
    with (folder / "log" / "wire.log").open("ab") as log:
        return subprocess.Popen(
            [*words, *map(str, pids)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
