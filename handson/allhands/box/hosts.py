"""What makes a process into a host? A name, a network, memory of its own to share, and GPUs.

A host is four new namespaces (mounts, host name, IPC, network) and one process that keeps them. All
hosts of a box share its process ids and its files, but for /dev/shm, /sys and the folder `own`.

Addresses: 10.77.0.N is node nN on `eth0`, the management network, a bridge without any limit;
10.78.0.N is the same node on `net0`, if the box has that link. The login node is 10.77.0.254.
"""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

from allhands.box import kernel
from allhands.box.asked import Asked

LOGIN = "ctl"
ETHERNET, LINK = "10.77.0", "10.78.0"
LINK_NAME = "net0"
LOGIN_ADDRESS = f"{ETHERNET}.254"
SHARED_MEMORY = "size=2g,mode=1777"
CGROUPS = "/sys/fs/cgroup"


def names_file(asked: Asked) -> str:
    """The text of /etc/hosts. A node's name is its address on eth0; nN-net0 is that on net0."""
    lines = ["127.0.0.1 localhost", f"{LOGIN_ADDRESS} {LOGIN}"]
    for number, host in enumerate(asked.hosts, 1):
        lines.append(f"{ETHERNET}.{number} {host}")
        if asked.shaped:
            lines.append(f"{LINK}.{number} {host}-{LINK_NAME}")
    return "\n".join(lines) + "\n"


def ip(commands: Iterable[str]) -> None:
    """Run commands of `ip`, in one process."""
    subprocess.run(["ip", "-batch", "-"], input="\n".join(commands) + "\n", text=True, check=True)


def bridge(pids: list[int]) -> None:
    """In the login node: the bridge, and a cable from it to each host's eth0."""
    commands = [
        "link add br0 type bridge",
        f"addr add {LOGIN_ADDRESS}/24 dev br0",
        "link set br0 up",
    ]
    for number, pid in enumerate(pids, 1):
        commands.append(f"link add cable{number} type veth peer name eth0 netns {pid}")
        commands.append(f"link set cable{number} master br0 up")
    ip(commands)


def own_network() -> None:
    """Begin a new network namespace: no IPv6 on what comes (hosts have one address a network)."""
    with open("/proc/sys/net/ipv6/conf/default/disable_ipv6", "w") as setting:
        setting.write("1")
    ip(["link set lo up"])


def own_folders(folder: Path) -> None:
    """Mount what each host has for itself: /dev/shm, FOLDER/own, and a /sys of its network.

    slurmd wants the control groups, which a new /sys does not show: they are mounted there again.
    UCX lists a host's network interfaces by its /sys.
    """
    kernel.mount("shm", "/dev/shm", "tmpfs", options=SHARED_MEMORY)
    own = folder / "own"
    kernel.mount("own", str(own), "tmpfs", options="size=64m,mode=755")
    (own / "pmix").mkdir()
    groups = own / "cgroup"
    groups.mkdir()
    kernel.mount(CGROUPS, str(groups), flags=kernel.BIND | kernel.RECURSIVE)
    kernel.mount("sysfs", "/sys", "sysfs")
    kernel.mount(str(groups), CGROUPS, flags=kernel.BIND | kernel.RECURSIVE)
    kernel.unmount(str(groups))


def stay() -> NoReturn:
    """Collect the processes that end: this one is the heir of all that it has started."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            signal.pause()


def gpu_paths(folder: Path, gpus: int) -> list[Path]:
    return [folder / "gpu" / f"nvidia{number}" for number in range(gpus)]


class Host:
    """A host, as the first process sees it: a child that does what it is told, step by step."""

    def __init__(
        self,
        number: int,
        asked: Asked,
        folder: Path,
        start_daemon: Callable[[Path, str], object],
    ) -> None:
        self.start_daemon = start_daemon
        self.name, self.number = asked.hosts[number - 1], number
        self.asked, self.folder = asked, folder
        self.orders_read, self.orders = os.pipe()
        self.answers, self.answers_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.orders)
            os.close(self.answers)
            self._live()
        os.close(self.orders_read)
        os.close(self.answers_write)

    def tell(self, order: bytes) -> None:
        """Let the host do its next step: n (network), d (daemon)."""
        os.write(self.orders, order)

    def done(self) -> None:
        """Wait until the host has done the step before."""
        if os.read(self.answers, 1) != b".":
            raise RuntimeError(f"host {self.name} could not be set up")

    def _live(self) -> None:
        try:
            self._set_up()
        except BaseException as error:
            os.write(2, f"host {self.name}: {error}\n".encode())
            os._exit(1)
        stay()

    def _set_up(self) -> None:
        kernel.unshare(kernel.NEW_MOUNTS | kernel.NEW_NAMES | kernel.NEW_IPC | kernel.NEW_NETWORK)
        os.write(self.answers_write, b".")
        socket.sethostname(self.name)
        own_folders(self.folder)
        for path in gpu_paths(self.folder, self.asked.gpus):
            kernel.mount("/dev/null", str(path), flags=kernel.BIND)  # a device file, as Slurm wants
        own_network()
        os.read(self.orders_read, 1)
        ip([f"addr add {ETHERNET}.{self.number}/24 dev eth0", "link set eth0 up"])
        os.write(self.answers_write, b".")
        os.read(self.orders_read, 1)
        self.start_daemon(self.folder, self.name)
        os.write(self.answers_write, b".")
