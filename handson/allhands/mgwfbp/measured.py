"""Traces and costs that were published with MG-WFBP, or made for the course; see data/README.md.

They let anybody repeat the paper's arithmetic without a cluster.
"""

import csv
from pathlib import Path

import numpy as np

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients, read_trace

DATA = Path(__file__).parent / "data"
RESNET50_PIECES = ("tensor", "module", "weights")


def k80_10gbe(n_workers: int) -> AffineCost:
    """The authors' model of an all-reduce on K80 nodes with 10 Gbit Ethernet, for any number.

    startup_s = 2n * 45.25 us; s_per_byte = 2(n-1)/n * 1.2 / B + (n-1)/n * 2.5 ns, B = 9 * 2^30 / 8
    bytes/s. Source: scripts/gmwfbp.py of the authors' B-Caffe. One worker sends nothing.
    """
    if n_workers < 2:
        return AffineCost(0.0, 0.0)
    share = (n_workers - 1) / n_workers
    bytes_per_s = 9 * 2**30 / 8
    return AffineCost(2 * n_workers * 45.25e-6, share * (2 * 1.2 / bytes_per_s + 2.5e-9))


def googlenet_k80() -> Gradients:
    """GoogLeNet, batch 64, on one K80: the authors' own trace, 64 layers."""
    return read_trace(DATA / "googlenet_k80_layers_arrival_order.csv")


def resnet50_k80(pieces: str = "tensor") -> Gradients:
    """ResNet-50, batch 32, on one K80. Its backward times are an assumption, not a trace.

    The backward pass is taken as 2/3 of the measured time of an iteration (32 / 76.85 images/s),
    and split over the layers by arithmetic (convolutions) and bytes (batch normalisation).
    `pieces` says what counts as one gradient: each `tensor` (161), each `module` (107), or the
    `weights` of convolutions and the last layer (54).
    """
    if pieces not in RESNET50_PIECES:
        raise ValueError(f"ResNet-50 comes in the pieces {RESNET50_PIECES}; saw {pieces!r}.")
    return read_trace(DATA / f"resnet50_k80_synthetic_{pieces}.csv")


def osu_allreduce_10gbe(n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes (bytes) and times (seconds) of `osu_allreduce` on 2, 4 or 8 of those nodes."""
    if n_nodes not in (2, 4, 8):
        raise ValueError(f"The table was measured on 2, 4 and 8 nodes; saw {n_nodes}.")
    with open(DATA / "osu_mpi_allreduce_10gbe_k80cluster.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sizes = np.array([float(row["bytes"]) for row in rows])
    return sizes, np.array([1e-6 * float(row[f"us_{n_nodes}nodes"]) for row in rows])
