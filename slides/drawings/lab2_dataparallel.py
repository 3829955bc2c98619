"""The figures of lab 2's talk."""

import json
import statistics
from pathlib import Path

import numpy as np

from allhands.mgwfbp import theory
from allhands.trace import diagrams_parallel, draw, scaling
from allhands.trace.talks import canvas, curves, ranks
from allhands.train.all_reduce_times import gather_broadcast_cost

RECORDED = Path(__file__).resolve().parents[1] / "recorded" / "lab2_dataparallel"
N_RANKS, LINK = 16, theory.Wire(latency_s=250e-6, s_per_byte=8e-9)  # 1 Gbit/s, 250 us


def lab2_dataparallel_talk_when() -> draw.Picture:
    """Synchronous and asynchronous ranks."""
    return diagrams_parallel.two_answers("When do ranks exchange?")


def lab2_dataparallel_talk_ring() -> draw.Picture:
    """Reduce-scatter, the first half of the ring all-reduce of four ranks."""
    picture = diagrams_parallel.ring_steps()
    for axes in picture.axes[4:]:
        axes.remove()
    picture.texts[0].remove()
    for number, axes in enumerate(picture.axes):
        axes.set_aspect("auto")
        axes.set_position((0.01 + 0.5 * (number % 2), 0.51 - 0.51 * (number // 2), 0.48, 0.42))
    picture.axes[3].set_title("after step 3: one whole sum each", loc="left")
    return canvas.for_slide(picture, least_pt=15)


def lab2_dataparallel_talk_doubling() -> draw.Picture:
    """Recursive doubling on eight ranks."""
    return ranks.doubling()


def lab2_dataparallel_talk_costs() -> draw.Picture:
    """Three all-reduces on 16 ranks over the size, from a link's two numbers."""
    sizes = np.geomspace(100, 1e8, 60)
    ways = {
        "gather and broadcast": gather_broadcast_cost,
        "ring": theory.ring,
        "recursive doubling": theory.recursive_doubling,
    }
    return curves.costs(sizes, {name: way(N_RANKS, LINK)(sizes) for name, way in ways.items()})


def lab2_dataparallel_talk_collective() -> draw.Picture:
    """Four ranks come to a collective one by one, and leave it together."""
    return ranks.collective()


def lab2_dataparallel_talk_shards() -> draw.Picture:
    """Two ranks' held-out sentences, right and wrong: the example of the exercise."""
    return ranks.two_shards([[True] * 10, [False] * 2])


def lab2_dataparallel_talk_cores() -> draw.Picture:
    """Which share of a core each rank had, in the recorded runs of weak scaling."""
    worlds = scaling.read(RECORDED / "weak.json")
    cores = json.loads((RECORDED / "about.json").read_text(encoding="utf-8"))["cores"]
    shares = {one.ranks: statistics.median(one.core_share) for one in worlds}
    return curves.core_shares(shares, cores)


def lab2_dataparallel_talk_updates() -> draw.Picture:
    """The same samples in larger batches, and the updates of the recorded trainings."""
    runs = json.loads((RECORDED / "trainings.json").read_text(encoding="utf-8"))
    words = {
        run["ranks"]: f"batch {run['ranks'] * run['batch_size']}: {run['n_updates']:,} updates"
        for run in runs
        if run["batch_size"] == 64
    }
    return ranks.larger_batches(words)


def lab2_dataparallel_talk_amdahl() -> draw.Picture:
    """Amdahl's law for some serial shares."""
    return curves.amdahl((0.0, 0.02, 0.05, 0.1, 0.25))


FIGURES = (
    lab2_dataparallel_talk_when,
    lab2_dataparallel_talk_ring,
    lab2_dataparallel_talk_doubling,
    lab2_dataparallel_talk_costs,
    lab2_dataparallel_talk_collective,
    lab2_dataparallel_talk_shards,
    lab2_dataparallel_talk_cores,
    lab2_dataparallel_talk_updates,
    lab2_dataparallel_talk_amdahl,
)
