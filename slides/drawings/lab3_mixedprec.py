"""The figures of lab 3's talk."""

import json
import math
from pathlib import Path

import numpy as np

from allhands.mgwfbp import measured
from allhands.precision.chips import chip
from allhands.precision.formats import Format
from allhands.precision.scaler import LossScaler
from allhands.trace import draw
from allhands.trace.talks import precision as pictures

RECORDED = Path(__file__).resolve().parents[1] / "recorded"
SMALL = Format("six bits", exponent_bits=3, fraction_bits=2)  # few numbers: a slide shows them all
LOSS_WEIGHT = 1e-5


def _numbers() -> tuple[list[float], int]:
    """All numbers of SMALL from 0 upwards, and how many of them are subnormal (0 too)."""
    n_subnormal = 2**SMALL.fraction_bits
    numbers = [SMALL.smallest * i for i in range(n_subnormal)]
    for exponent in range(SMALL.smallest_exponent, SMALL.largest_exponent + 1):
        numbers += [2.0**exponent * (1 + SMALL.epsilon * i) for i in range(n_subnormal)]
    return numbers, n_subnormal


def lab3_mixedprec_talk_ruler() -> draw.Picture:
    """All numbers of a format of six bits."""
    return pictures.ruler(*_numbers())


def lab3_mixedprec_talk_ills() -> draw.Picture:
    """What the six bits lose: a small gradient, and a small update."""
    return pictures.two_ills(*_numbers(), dies=0.02, unheard=SMALL.smallest)


def lab3_mixedprec_talk_hills() -> draw.Picture:
    """The gradients of lab 1's translator, and the same with a small loss weight."""
    found = json.loads((RECORDED / "lab3_gradients.json").read_text(encoding="utf-8"))
    edges = found["first_power"] + np.arange(len(found["counts"]) + 1)
    return pictures.hills(
        {
            "as they are": (edges, found["counts"]),
            "the loss times 0.00001": (edges + math.log2(LOSS_WEIGHT), found["counts"]),
        }
    )


def lab3_mixedprec_talk_loop() -> draw.Picture:
    """One step of mixed precision."""
    return pictures.mixed_loop()


def lab3_mixedprec_talk_scale() -> draw.Picture:
    """A dynamic loss scale follows a ceiling that moves; the ceiling is invented."""
    scaler, scales, ceilings = LossScaler(2.0**24, interval=100), [], []
    for step in range(2000):
        ceiling = 2.0 ** (19.5 - 4 * math.sin(2 * math.pi * step / 2000))
        ceilings.append(ceiling)
        scales.append(scaler.scale)
        scaler.update(found_inf=scaler.scale > ceiling)
    return pictures.scale_path(scales, ceilings)


def lab3_mixedprec_talk_orders() -> draw.Picture:
    """Two runs that differ in the order of three lines, without their names."""
    found = json.loads((RECORDED / "lab3_two_orders.json").read_text(encoding="utf-8"))["runs"]
    names = {"run A": "mended", "run B": "as the lab gives it"}
    return pictures.two_runs({a: found[b]["losses"] for a, b in names.items()}, math.log(10))


def lab3_mixedprec_talk_roofs() -> draw.Picture:
    """The two roofs of an A100, by its datasheet."""
    a100 = chip("A100")
    peaks = {dtype: a100.peak(dtype) for dtype in ("FP32", "FP16")}
    return pictures.roofs(a100.bytes_per_s, peaks)


def lab3_mixedprec_talk_half() -> draw.Picture:
    """What half of the bytes gain in an all-reduce of 64 workers, over the size."""
    sizes, link = np.geomspace(1e4, 1e9, 80), measured.k80_10gbe(64)
    return pictures.half_gain(sizes, link(sizes) / link.compressed(0.5)(sizes))


FIGURES = (
    lab3_mixedprec_talk_ruler,
    lab3_mixedprec_talk_ills,
    lab3_mixedprec_talk_hills,
    lab3_mixedprec_talk_loop,
    lab3_mixedprec_talk_scale,
    lab3_mixedprec_talk_orders,
    lab3_mixedprec_talk_roofs,
    lab3_mixedprec_talk_half,
)
