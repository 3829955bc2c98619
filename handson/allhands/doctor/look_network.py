"""Which interfaces, which names, and which ports has this host?

    python -I -S look_network.py [LOW HIGH]     # one line of JSON; LOW HIGH: also try this range

A program of its own, because looking up a name may take as long as a name server likes. Standard
library only; Linux says more than other systems.
"""

import contextlib
import errno
import json
import socket
import struct
import sys

UP, LOOPBACK = 0x1, 0x8  # of the flags of an interface (netdevice(7))
GET_FLAGS, GET_ADDRESS = 0x8913, 0x8915
INFINIBAND = "32"  # of /sys/class/net/NAME/type (ARPHRD_INFINIBAND)


def look(low: int | None = None, high: int | None = None) -> dict:
    """What `allhands.doctor.machine.Network` says, as a dictionary."""
    interfaces = [interface(name) for _, name in socket.if_nameindex()]
    seen: dict = {"name": socket.gethostname(), "interfaces": interfaces}
    try:
        found = socket.getaddrinfo(seen["name"], None, type=socket.SOCK_STREAM)
        seen["addresses"] = sorted({address[4][0] for address in found})
    except OSError as error:
        seen["addresses"], seen["name_error"] = [], str(error.strerror or error)
    seen["bindable"] = [one for one in seen["addresses"] if is_own(one)]
    seen["loopback_error"] = to_itself()
    seen["ports_error"] = bound("127.0.0.1", [0, 0])
    if low is not None and high is not None:
        seen["range_free"] = sum(
            bound("127.0.0.1", [port]) is None for port in range(low, min(high, low + 99) + 1)
        )
    return seen


def interface(name: str) -> dict:
    """One interface: is it up, its IPv4 address, its speed in Mbit/s (-1: it does not say)."""
    seen: dict = {"name": name, "up": True, "loopback": name == "lo", "address": "", "mbit_s": -1}
    with contextlib.suppress(ImportError, OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        import fcntl  # not on Windows

        asked = struct.pack("256s", name.encode()[:15])
        flags = struct.unpack("H", fcntl.ioctl(probe, GET_FLAGS, asked)[16:18])[0]
        seen |= {"up": bool(flags & UP), "loopback": bool(flags & LOOPBACK)}
        seen["address"] = socket.inet_ntoa(fcntl.ioctl(probe, GET_ADDRESS, asked)[20:24])
    folder = f"/sys/class/net/{name}/"
    seen["infiniband"] = text(folder + "type") == INFINIBAND
    with contextlib.suppress(ValueError):
        seen["mbit_s"] = int(text(folder + "speed"))
    return seen


def text(path: str) -> str:
    with contextlib.suppress(OSError), open(path) as file:
        return file.read().strip()
    return ""


def is_own(address: str) -> bool:
    """Whether an address is one of this host's. Asked with UDP, whose ports few programs take."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def bound(address: str, ports: list[int]) -> str | None:
    """None if these ports can be bound at the same time; else why not. 0 is any free port."""
    with contextlib.ExitStack() as open_ones:
        try:
            for port in ports:
                probe = open_ones.enter_context(socket.socket())
                probe.bind((address, port))
                probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return None


def to_itself() -> str | None:
    """None if a connection from this host to itself works; else why not. No free port: `bound`."""
    with socket.socket() as server, socket.socket() as client:
        client.settimeout(2)
        try:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
        except OSError as error:
            return None if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        try:
            client.connect(server.getsockname())
        except OSError as error:
            return None if error.errno == errno.EADDRNOTAVAIL else error.strerror or str(error)
    return None


if __name__ == "__main__":
    print(json.dumps(look(*map(int, sys.argv[1:3]))))
