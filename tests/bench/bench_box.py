"""How long does a box take to come up, and does its link keep to T(s) = a + b s?

    python tests/bench/bench_box.py [--nodes 1 2 4 8] [--rounds 5]        # root, about two minutes
    python tests/bench/bench_box.py --links 100mbit:500us --rounds 0      # links alone

First table: seconds for up and down, medians and the slowest, of boxes with and without a link.
Second table: for each link, what two and four ranks on as many hosts measure over net0, started by
Slurm: MPICH's ping-pong between two hosts (one way), MPICH's and gloo's all-reduce. Times are the
smallest of the repeats; a and b are from allhands.mgwfbp.fit. "b / wire" is b against that of a
perfect wire, on which 1538 bytes carry 1448 of the message: 8.50 ns a byte at 1 Gbit/s for a
ping-pong, and 2 (p - 1) / p of that for an all-reduce of p ranks on a ring. "late" is by how much
the switch, a program, handed frames over too late. Asserts nothing.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

from allhands import box as boxes
from allhands.mgwfbp.fit import fit

LINKS = ("1gbit:50us", "1gbit:250us", "100mbit:500us", "100mbit:2ms")
SIZES_BYTES = (1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
MPI_RANKS = Path(__file__).resolve().parents[1] / "box" / "link_ranks.py"
WIRE_PER_BYTE = 1538 / 1448 * 8
WARM_UP, REPEATS, LIMIT_S = 2, 10, 300
NAME = f"bench-{os.getpid()}"


def seconds(nodes: int, rounds: int, **link) -> tuple[list[float], list[float]]:
    ups_s, downs_s = [], []
    for _ in range(rounds):
        start_s = time.perf_counter()
        cluster = boxes.up(NAME, nodes=nodes, **link)
        up_s = time.perf_counter()
        cluster.down()
        ups_s.append(up_s - start_s)
        downs_s.append(time.perf_counter() - up_s)
    return ups_s, downs_s


def show_times(nodes: list[int], rounds: int) -> None:
    print(f"{'box':22} {'up, median':>12} {'slowest':>9} {'down, median':>14} {'slowest':>9}  s")
    for number in nodes:
        for link in ({}, {"rate": "1gbit", "delay": "250us"}):
            ups_s, downs_s = seconds(number, rounds, **link)
            name = f"{number} nodes{', link' if link else ''}"
            print(
                f"{name:22} {statistics.median(ups_s):12.2f} {max(ups_s):9.2f} "
                f"{statistics.median(downs_s):14.2f} {max(downs_s):9.2f}",
                flush=True,
            )


def told(cluster: boxes.Box, ranks: int, launcher: list[str], *words: str) -> dict[str, list]:
    """What a program of `ranks` ranks, one on each host, prints as JSON."""
    network = {"UCX_NET_DEVICES": "net0", "GLOO_SOCKET_IFNAME": "net0", "OMP_NUM_THREADS": "1"}
    start = ["salloc", "--quiet", f"--nodes={ranks}", f"--ntasks={ranks}", *launcher]
    ran = cluster.run(
        [*start, sys.executable, *words, *map(str, SIZES_BYTES)],
        env=cluster.environ() | network | {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    if ran.returncode:
        raise SystemExit(ran.stderr)
    return json.loads(ran.stdout)


def show_link(rate: str, delay: str) -> None:
    with boxes.up(NAME, nodes=4, gpus=0, rate=rate, delay=delay) as cluster:
        wire_s_per_byte = WIRE_PER_BYTE / cluster.rate_bit_s
        for ranks in (2, 4):
            ring = 2 * (ranks - 1) / ranks
            mpiexec = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks)]
            mpi = told(cluster, ranks, mpiexec, str(MPI_RANKS))
            gloo = told(cluster, ranks, ["srun"], __file__, "--gloo")
            cases = {"MPICH ping-pong": (mpi["ping-pong"], 1.0)} if ranks == 2 else {}
            cases["MPICH all-reduce"] = (mpi["all-reduce"], ring)
            cases["gloo all-reduce"] = (gloo["all-reduce"], ring)
            for name, (points, share) in cases.items():
                show_fit(f"{rate} {delay}", f"{name}, {ranks}", points, share * wire_s_per_byte)
        counts = json.loads((cluster.folder / "wire.json").read_text())
    print(
        f"{'':18} {counts['frames']} frames, {counts['dropped']} dropped, late: "
        f"{1e6 * counts['late_s'] / counts['frames']:.0f} us on average, "
        f"{1e3 * counts['late_max_s']:.1f} ms at most",
        flush=True,
    )


def show_fit(link: str, name: str, points: list, wire_s_per_byte: float) -> None:
    try:
        found = fit(*zip(*points, strict=True))
    except ValueError as error:
        print(f"{link:18} {name:22} {error}")
        return
    a_s, b_s = found.cost.startup_s, found.cost.s_per_byte
    print(
        f"{link:18} {name:22} {1e3 * a_s:8.3f} {1e9 * b_s:9.2f} {b_s / wire_s_per_byte:9.2f} "
        f"{found.median_error:8.1%} {found.worst_error:7.1%} at {found.worst_n_bytes:.0f}",
        flush=True,
    )


def gloo_ranks(sizes: list[int]) -> None:
    """A rank of gloo under srun; rank 0 prints the smallest times as JSON."""
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    points = []
    for size in sizes:
        array, times_s = torch.ones(size // 4), torch.empty(WARM_UP + REPEATS, dtype=torch.float64)
        for number in range(len(times_s)):
            dist.barrier()
            start_s = time.perf_counter()
            dist.all_reduce(array)
            times_s[number] = time.perf_counter() - start_s
            array.fill_(1.0)
        dist.all_reduce(times_s, op=dist.ReduceOp.MAX)
        points.append([size, float(times_s[WARM_UP:].min())])
    if rank == 0:
        print(json.dumps({"all-reduce": points}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--links", nargs="*", default=LINKS, metavar="RATE:DELAY")
    parser.add_argument("--gloo", type=int, nargs="+", help=argparse.SUPPRESS)  # a rank: the sizes
    asked = parser.parse_args()
    if asked.gloo:
        gloo_ranks(asked.gloo)
        return
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}")
    if asked.rounds:
        show_times(asked.nodes, asked.rounds)
    head = ("a (ms)", "b (ns/B)", "b / wire", "median", "worst error")
    print(
        f"\n{'link':18} {'measured by, ranks':22} {head[0]:>8} {head[1]:>9} {head[2]:>9}", end=" "
    )
    print(f"{head[3]:>8} {head[4]:>11}")
    for link in asked.links:
        show_link(*link.split(":"))


if __name__ == "__main__":
    main()
