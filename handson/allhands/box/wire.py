"""How long does a message take on a link of a given rate and delay? A switch that keeps to both.

    python -m allhands.box.wire STATS.json --rate 1e9 --delay 250e-6 PID...   # root, /dev/net/tun

gives the network namespace of each process PID an interface `net0` (10.78.0.1, .2, ... in that
order), and carries the frames between them. It runs until it is killed. Once it is ready, and then
at most once a second while frames pass, it writes STATS.json.

The model is a switch with one cable to each port. Each cable carries `rate_bit_s` in each direction
at the same time. A frame of n bytes on the wire

1. waits until the frames sent before it from the same port have left;
2. takes n * 8 / rate_bit_s to leave;
3. waits until its receiver's cable is free: what comes from several ports leaves one after the
   other, in the order in which it came in. A frame that does not wait is not delayed a second time;
4. arrives delay_s later.

The interface says 10 Gbit/s of itself, whatever the rate (/sys/class/net/net0/speed). UCX plans by
that. Where it was told 100 Mbit/s, a ping-pong with 2 ms of delay was up to 7 % off T(s) = a + b s;
as it is, 0.4 %.

n counts what a real wire carries: the kernel hands over up to 64 KiB at once, which a network card
would cut into segments, each with headers of its own, preamble, checksum and gap.

Times are in seconds of one clock that never goes back; sizes are in bytes.
"""

import argparse
import contextlib
import fcntl
import heapq
import json
import math
import os
import select
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from allhands.box import kernel
from allhands.box.hosts import LINK, LINK_NAME, ip

VNET_HEADER_BYTES = 10  # struct virtio_net_hdr: flags, gso_type, and four numbers of 16 bits
FRAMING_BYTES = 24  # of a frame: preamble 8, checksum 4, gap 12
FRAME_MIN_BYTES = 60  # without the checksum; shorter ones are filled up
WAITING_MAX_BYTES = 64_000_000  # at one port; what comes after that is dropped

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
TAP_FLAGS = 0x0002 | 0x1000 | 0x4000  # IFF_TAP, IFF_NO_PI, IFF_VNET_HDR
OFFLOADS = 1 | 2 | 4  # checksums, and large segments of TCP over IPv4 and IPv6: up to 64 KiB
QUEUE_FRAMES = 10_000
READ_BYTES = 70_000
READS_AT_ONCE = 16
PRIORITY = 10  # of SCHED_FIFO: a switch must not wait for the ranks that it serves
STATS_EVERY_S = 1.0


def wire_bytes(packet: bytes) -> int:
    """How many bytes a real wire carries for a packet of the TAP device: vnet header, then frame.

    A packet that stands for several segments (its header says so) costs the headers of each, which
    end where TCP's do, and the framing of each.
    """
    frame_bytes = len(packet) - VNET_HEADER_BYTES
    _, kind, _, segment_bytes, tcp_at, _ = struct.unpack_from("<BBHHHH", packet)
    if not kind or not segment_bytes:
        return max(frame_bytes, FRAME_MIN_BYTES) + FRAMING_BYTES
    tcp_words = packet[VNET_HEADER_BYTES + tcp_at + 12] >> 4
    headers_bytes = tcp_at + 4 * tcp_words
    segments = max(1, math.ceil((frame_bytes - headers_bytes) / segment_bytes))
    return frame_bytes + (segments - 1) * headers_bytes + segments * FRAMING_BYTES


@dataclass
class Stats:
    """What the switch has done. late: how long after its time a frame was handed over."""

    frames: int = 0
    bytes: int = 0
    dropped: int = 0
    late_s: float = 0.0
    late_max_s: float = 0.0


class Switch:
    """The model alone: no device, no clock. Who calls says which frame came when.

    ports: how many; rate_bit_s: of each cable, None for no limit; delay_s: of each frame.
    """

    def __init__(
        self,
        ports: int,
        rate_bit_s: float | None = None,
        delay_s: float = 0.0,
        waiting_max_bytes: int = WAITING_MAX_BYTES,
    ) -> None:
        self.s_per_byte = 8 / rate_bit_s if rate_bit_s else 0.0
        self.delay_s = delay_s
        self.backlog_max_s = waiting_max_bytes * self.s_per_byte
        self.sent_s = [-math.inf] * ports  # when each port has sent all that it was given
        self.received_s = [-math.inf] * ports
        self.port_of: dict[bytes, int] = {}  # by hardware address
        self.steps: list[tuple] = []  # a heap: (time, number, port, bytes, packet)
        self.number = 0  # equal times keep their order
        self.stats = Stats()

    def send(self, port: int, packet: bytes, now_s: float) -> None:
        """A packet (vnet header and frame) comes from `port` at `now_s`; times never go back."""
        n_bytes = wire_bytes(packet)
        self.stats.frames += 1
        self.stats.bytes += n_bytes
        if self.sent_s[port] - now_s > self.backlog_max_s:
            self.stats.dropped += 1
            return
        self.port_of[packet[16:22]] = port
        left_s = max(now_s, self.sent_s[port]) + n_bytes * self.s_per_byte
        self.sent_s[port] = left_s
        to = self.port_of.get(packet[10:16])
        receivers = range(len(self.sent_s)) if to is None else (to,)
        for receiver in receivers:
            if receiver != port:
                self._later(left_s, receiver, n_bytes, packet)

    def next_s(self) -> float | None:
        """When something happens next, if nothing is sent; None: nothing."""
        return self.steps[0][0] if self.steps else None

    def arrivals(self, now_s: float) -> Iterator[tuple[float, int, bytes]]:
        """What has arrived until `now_s`: (when, port, packet), in that order."""
        while self.steps and self.steps[0][0] <= now_s:
            at_s, _, port, n_bytes, packet = heapq.heappop(self.steps)
            if n_bytes is None:
                yield at_s, port, packet
                continue
            through_s = max(at_s, self.received_s[port] + n_bytes * self.s_per_byte)
            if through_s - at_s > self.backlog_max_s:
                self.stats.dropped += 1
                continue
            self.received_s[port] = through_s
            self._later(through_s + self.delay_s, port, None, packet)

    def _later(self, at_s: float, port: int, n_bytes: int | None, packet: bytes) -> None:
        self.number += 1
        heapq.heappush(self.steps, (at_s, self.number, port, n_bytes, packet))


def open_taps(pids: list[int]) -> list[int]:
    """Make and open `net0` in the network namespace of each process; return the open files."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    taps = []
    for number, pid in enumerate(pids, 1):
        kernel.join(f"/proc/{pid}/ns/net")
        tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", LINK_NAME.encode(), TAP_FLAGS))
        fcntl.ioctl(tap, TUNSETOFFLOAD, OFFLOADS)
        address = f"addr add {LINK}.{number}/24 dev {LINK_NAME}"
        ip([address, f"link set {LINK_NAME} txqueuelen {QUEUE_FRAMES} up"])
        taps.append(tap)
    kernel.join(home)
    os.close(home)
    return taps


def carry(switch: Switch, taps: list[int], stats_path: Path) -> None:
    """Read frames, and hand them over when their time has come. Does not return."""
    clock, stats, told_s = time.monotonic, switch.stats, -math.inf
    port_of = {tap: port for port, tap in enumerate(taps)}
    frames_told = -1
    while True:
        for at_s, port, packet in switch.arrivals(clock()):
            late_s = clock() - at_s
            stats.late_s += late_s
            stats.late_max_s = max(stats.late_max_s, late_s)
            try:
                os.write(taps[port], packet)
            except OSError:  # the host's interface is down or full, as a cable may be cut
                stats.dropped += 1
        now_s = clock()
        if stats.frames != frames_told and now_s - told_s >= STATS_EVERY_S:
            write_stats(stats, stats_path)
            frames_told, told_s = stats.frames, now_s
        next_s = switch.next_s()
        wait_s = STATS_EVERY_S if next_s is None else max(0.0, next_s - clock())
        for tap in select.select(taps, [], [], wait_s)[0]:
            with contextlib.suppress(BlockingIOError):
                for _ in range(READS_AT_ONCE):
                    switch.send(port_of[tap], os.read(tap, READ_BYTES), clock())


def write_stats(stats: Stats, path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(stats)) + "\n", encoding="utf-8")
    new.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stats", type=Path)
    parser.add_argument("--rate", type=float, default=0.0, help="bit/s; 0 is no limit")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds")
    parser.add_argument("pids", type=int, nargs="+")
    asked = parser.parse_args()
    taps = open_taps(asked.pids)
    kernel.wake_on_time()
    with contextlib.suppress(OSError):  # more exact under load, where it is allowed
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    switch = Switch(len(taps), asked.rate or None, asked.delay)
    carry(switch, taps, asked.stats)


if __name__ == "__main__":
    main()
