"""The switch of net0: its model of a link by hand and by properties, and real ranks on the link."""

import json
import math
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands import box as boxes
from allhands.box.wire import Switch, wire_bytes
from allhands.mgwfbp.fit import fit

RATE_BIT_S, DELAY_S = 1e9, 250e-6
SEGMENT_BYTES, HEADERS_BYTES, FRAMING_BYTES = 1448, 66, 24
FULL_FRAME_BYTES = SEGMENT_BYTES + HEADERS_BYTES + FRAMING_BYTES  # 1538
RANKS = Path(__file__).with_name("link_ranks.py")
SIZES_BYTES = (1024, 65_536, 262_144)


def address(port: int) -> bytes:
    return bytes([2, 0, 0, 0, 0, port])


def packet(source: int, to: int, frame_bytes: int = 1514, mark: int = 0) -> bytes:
    """What a TAP device hands over for a frame that is one segment. `mark` tells it from others."""
    frame = address(to) + address(source) + b"\x08\x00" + mark.to_bytes(2, "big")
    return bytes(10) + frame.ljust(frame_bytes, b"\0")


def large_packet(payload_bytes: int) -> bytes:
    """Several segments of TCP in one packet. Headers: Ethernet 14, IPv4 20, TCP 32 bytes."""
    header = struct.pack("<BBHHHH", 1, 1, HEADERS_BYTES, SEGMENT_BYTES, 14 + 20, 16)
    tcp = bytes(12) + bytes([8 << 4]) + bytes(19)
    return header + bytes(14 + 20) + tcp + bytes(payload_bytes)


def run(switch: Switch, sends, on_time: bool = True) -> list[tuple[float, int, bytes]]:
    """Send (time, packet) in the order of time; return all arrivals: (time, port, packet)."""
    arrived = []
    for at_s, sent in sends:
        if on_time:
            arrived += switch.arrivals(at_s)
        switch.send(sent[21], sent, at_s)
    return [*arrived, *switch.arrivals(math.inf)]


def knowing(ports: int, **options) -> Switch:
    """A switch that has seen a frame of each port, long ago."""
    switch = Switch(ports, **{"rate_bit_s": RATE_BIT_S, "delay_s": DELAY_S, **options})
    run(switch, [(-1e3 + port, packet(port, 255)) for port in range(ports)])
    return switch


@pytest.mark.parametrize(("frame_bytes", "on_the_wire"), [(1514, 1538), (60, 84), (42, 84)])
def test_a_wire_carries_preamble_checksum_gap_and_filled_up_short_frames(frame_bytes, on_the_wire):
    assert wire_bytes(packet(0, 1, frame_bytes)) == on_the_wire


@given(st.integers(1, 60_000))
def test_a_packet_of_several_segments_costs_what_its_segments_cost(payload_bytes):
    full, rest = divmod(payload_bytes, SEGMENT_BYTES)
    alone = [SEGMENT_BYTES] * full + [rest] * (rest > 0)
    expected = sum(HEADERS_BYTES + segment + FRAMING_BYTES for segment in alone)
    assert wire_bytes(large_packet(payload_bytes)) == expected


def test_a_frame_arrives_after_its_bytes_and_the_delay():
    [(at_s, port, _)] = run(knowing(2), [(0.0, packet(0, 1))])
    assert port == 1
    assert at_s == pytest.approx(FULL_FRAME_BYTES * 8 / RATE_BIT_S + DELAY_S)


def test_without_a_rate_there_is_the_delay_alone():
    sends = [(0.0, packet(0, 1)), (0.0, packet(0, 1))]
    assert [at_s for at_s, _, _ in run(knowing(2, rate_bit_s=None), sends)] == [DELAY_S] * 2


def test_an_unknown_address_is_sent_to_all_others():
    arrived = run(Switch(4), [(0.0, packet(2, 9))])
    assert sorted(port for _, port, _ in arrived) == [0, 1, 3]


def test_many_senders_share_the_cable_of_one_receiver():
    """Incast: k frames that start at once come in one after the other, at the receiver's rate."""
    frame_s = FULL_FRAME_BYTES * 8 / RATE_BIT_S
    arrived = run(knowing(4), [(0.0, packet(source, 3)) for source in range(3)])
    expected = [DELAY_S + k * frame_s for k in (1, 2, 3)]
    assert [at_s for at_s, _, _ in arrived] == pytest.approx(expected)


def test_pairs_of_their_own_do_not_disturb_each_other():
    arrived = run(knowing(4), [(0.0, packet(0, 1)), (0.0, packet(2, 3)), (0.0, packet(3, 2))])
    assert len({at_s for at_s, _, _ in arrived}) == 1


def test_a_cable_carries_both_directions_at_once():
    arrived = run(knowing(2), [(0.0, packet(0, 1)), (0.0, packet(1, 0))])
    assert len({at_s for at_s, _, _ in arrived}) == 1


def test_a_long_queue_of_one_sender_does_not_hold_up_another():
    """Ten frames of port 0 wait at its own cable, not at the receiver's: port 1 comes second."""
    sends = [(0.0, packet(0, 2)) for _ in range(10)] + [(0.0, packet(1, 2))]
    sources = [packet[21] for _, _, packet in run(knowing(3), sends)]
    assert sources.index(1) == 1


def test_what_no_longer_fits_into_the_queue_is_dropped_and_counted():
    switch = knowing(2, waiting_max_bytes=5 * FULL_FRAME_BYTES)
    arrived = run(switch, [(0.0, packet(0, 1)) for _ in range(10)])
    assert 5 <= len(arrived) < 10
    assert len(arrived) + switch.stats.dropped == 10


@st.composite
def traffic(draw):
    """Sends among 4 ports, in the order of time, each with a mark of its own."""
    many = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
    gaps_us = draw(st.lists(st.integers(0, 40), min_size=len(many), max_size=len(many)))
    sends, at_s = [], 0.0
    for mark, ((source, to), gap_us) in enumerate(zip(many, gaps_us, strict=True)):
        at_s += gap_us * 1e-6
        if source != to:
            frame_bytes = draw(st.integers(60, 1514))
            sends.append((at_s, packet(source, to, frame_bytes, mark)))
    return sends


@given(traffic())
def test_no_frame_is_lost_or_early_and_each_pair_keeps_its_order(sends):
    arrived = run(knowing(4), sends)
    sent_s = {sent: at_s for at_s, sent in sends}
    assert {got for _, _, got in arrived} == set(sent_s)
    for at_s, port, got in arrived:
        assert port == got[15]
        assert at_s >= sent_s[got] + 8 * wire_bytes(got) / RATE_BIT_S + DELAY_S - 1e-12
    for pair in {sent[10:22] for _, sent in sends}:
        in_order = [sent for _, sent in sends if sent[10:22] == pair]
        assert [got for _, _, got in arrived if got[10:22] == pair] == in_order


@given(traffic())
def test_no_receiver_gets_more_than_its_rate(sends):
    last_s = [-math.inf] * 4
    for at_s, port, got in run(knowing(4), sends):
        assert at_s - last_s[port] >= 8 * wire_bytes(got) / RATE_BIT_S - 1e-12
        last_s[port] = at_s


@given(traffic())
def test_the_times_do_not_depend_on_when_the_switch_is_asked(sends):
    """A busy machine wakes the switch late: frames are late then, but the queues are right."""
    assert run(knowing(4), sends, on_time=True) == run(knowing(4), sends, on_time=False)


def measured(name: str, delay: str) -> dict:
    """What two ranks of MPI on two hosts measure over net0 of 100 Mbit/s."""
    with boxes.up(name, nodes=2, gpus=0, rate="100mbit", delay=delay) as cluster:
        mpiexec = Path(sys.executable).with_name("mpiexec")
        words = ["salloc", "--quiet", "-N2", "-n2", mpiexec, "-n", "2", sys.executable, RANKS]
        environ = cluster.environ() | {"UCX_NET_DEVICES": "net0"}
        ran = cluster.run(
            [*words, *map(str, SIZES_BYTES)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        frames = json.loads((cluster.folder / "wire.json").read_text())["frames"]
    return {**json.loads(ran.stdout), "frames": frames}


WIRE_S_PER_BYTE = FULL_FRAME_BYTES / SEGMENT_BYTES * 8 / 100e6  # 1538 bytes carry 1448


@pytest.fixture(scope="module")
def short(can_link, box_name) -> dict:
    """Measured with a delay of 500 us."""
    return measured(f"{box_name}-short", "500us")


def test_real_ranks_measure_the_rate_and_the_delay_that_were_set(short, box_name):
    """T(s) = a + b s, one way of a ping-pong. b is the wire's. a is the delay, and what MPI and the
    switch's program cost here, whatever that is. So a second delay tells how a grows with it."""
    long = measured(f"{box_name}-long", "2ms")
    startups_s = []
    for told in (short, long):
        assert told["hosts"] == ["n1", "n2"]
        assert told["frames"] > 0  # they did not go over eth0
        line = fit(*zip(*told["ping-pong"], strict=True))
        assert line.cost.s_per_byte == pytest.approx(WIRE_S_PER_BYTE, rel=0.1)
        assert line.worst_error < 0.15
        startups_s.append(line.cost.startup_s)
    assert startups_s[0] > 500e-6
    assert startups_s[1] - startups_s[0] == pytest.approx(1500e-6, rel=0.1)


def test_an_all_reduce_of_two_ranks_sends_each_byte_once(short):
    """2 (p - 1) / p of the bytes each way, and both ways at once: b is the wire's."""
    line = fit(*zip(*short["all-reduce"], strict=True))
    assert line.cost.s_per_byte == pytest.approx(WIRE_S_PER_BYTE, rel=0.1)
