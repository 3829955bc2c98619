"""The checks of lab 3: one function for each exercise, named by its id.

Here are those about numbers. The parts of a step have their checks in lab3_mixedprec_steps.py,
whole steps in lab3_mixedprec_update.py, Tensor Cores and speed in lab3_mixedprec_speed.py. The
oracles are NumPy's own FP16, PyTorch's own GradScaler, steps worked out by hand, and names of
kernels that were sorted by hand.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from allhands.grade.check import Marker, likely, show
from allhands.grade.checks.lab3_mixedprec_speed import (
    intensity,
    near,
    need_keys,
    off,
    on_tensor_cores,
)
from allhands.grade.checks.lab3_mixedprec_steps import (
    half_copy,
    master_step,
    next_scale,
)
from allhands.grade.checks.lab3_mixedprec_update import amp_step, clipped_step

__all__ = [
    "amp_step",
    "average",
    "clipped_step",
    "half_copy",
    "intensity",
    "limits",
    "lost",
    "master_step",
    "next_scale",
    "off",
    "on_tensor_cores",
]

LIMITS = {"smallest": 2.0**-24, "largest": 65504.0, "unheard": 2.0**-11}


def limits(mark: Marker, limits: Mapping[str, float]) -> None:
    need_keys(mark, limits, *LIMITS)
    smallest, largest, unheard = (float(limits[key]) for key in LIMITS)
    mark.require(
        near(smallest, 2.0**-24),
        1,
        "the smallest FP16 number above 0",
        show(smallest),
        likely(
            (near(smallest, 2.0**-14), "that is the smallest normal number; halve on"),
            (near(smallest, 2.0**-25), "that one is 0 already; the one before it is the answer"),
            (smallest < 1e-30, "that is a Python float or FP32: cast with np.float16(...)"),
            (near(smallest, 2.0**-10), "that is the step at 1, not the smallest number"),
            otherwise="start from 1 and halve, until np.float16(x / 2) is 0",
        ),
    )
    mark.require(
        largest == 65504,
        1,
        "the largest FP16 number that is finite",
        show(largest),
        likely(
            (largest == math.inf, "that is infinity; look for the last one before it"),
            (
                65504 < largest < 65520,
                "this is rounded down when it becomes FP16: give the FP16 number, as a float",
            ),
            (largest in (65520, 65536), "np.float16 of that is inf"),
            (largest == 65500, "NumPy prints four digits only: float(np.float16(65500)) says more"),
            otherwise="cast np.arange(60000, 66000), and take the largest finite one",
        ),
    )
    mark.require(
        near(unheard, 2.0**-11),
        1,
        "the largest power of two that changes nothing when it is added to 1",
        show(unheard),
        likely(
            (near(unheard, 2.0**-10), "that one does change 1; halve once more"),
            (near(unheard, 2.0**-12), "that one is lost too, but a larger one is lost already"),
            (unheard < 2.0**-20, "the sum was not FP16: cast both, np.float16(1) + np.float16(u)"),
            otherwise="is np.float16(1) + np.float16(u) equal to 1? Try u = 1, 1/2, 1/4 ...",
        ),
    )


def lost(mark: Marker, lost: Mapping[str, float], gradients: np.ndarray) -> None:
    need_keys(mark, lost, "share", "scale")
    gradients = np.asarray(gradients, np.float32)
    alive = gradients[gradients != 0]

    def share_of(values: np.ndarray, scale: float = 1.0) -> float:
        with np.errstate(over="ignore", under="ignore"):
            return float(np.mean(np.float16(np.float32(scale) * values) == 0))

    right, got = share_of(alive), float(lost["share"])
    mark.require(
        abs(got - right) < 1e-3,
        1,
        "the share of gradients that are 0 in FP16 and not in FP32",
        show(got),
        likely(
            (abs(got - 100 * right) < 0.1, "give a share between 0 and 1, not percent"),
            (
                abs(got - share_of(gradients)) < 1e-3,
                "some are 0 in FP32 already: leave them out, above and below the line",
            ),
            (abs(got - (1 - right)) < 1e-3, "that is the share that survives"),
            (
                abs(got - float(np.mean(np.abs(alive) < 2.0**-24))) < 1e-3,
                "half of the smallest number and more is rounded up: cast, and count the zeros",
            ),
            (
                abs(got - float(np.mean(np.abs(alive) < 2.0**-14))) < 1e-3,
                "subnormal numbers are not 0: cast, and count the zeros",
            ),
            otherwise="left = small[small != 0]; np.mean(np.float16(left) == 0)",
        ),
    )
    scale = float(lost["scale"])
    best = next(2.0**k for k in range(200) if share_of(alive, 2.0**k) < 0.01)
    mark.require(
        scale == best,
        1,
        "the smallest power of two that leaves less than 1 % of them at 0",
        f"{show(scale)}, with {share_of(alive, scale):.1%} at 0",
        likely(
            (
                scale == math.log2(best),
                f"that is the exponent: the scale is 2 to the power of {scale:g}",
            ),
            (scale > best, "it works, and a smaller one works too"),
            (scale < best, "too many are still 0: go on doubling"),
            otherwise="try 2^0, 2^1, 2^2 ... and multiply before you cast",
        ),
    )


# A row is a rank's gradient. Of each column the mean and the median differ.
FOUR_RANKS = ((60000, 30000, -50000), (50000, 40000, -60000), (40000, 20000, 600), (2000, 1000, 90))
THREE_RANKS, EIGHT_RANKS = FOUR_RANKS[:3], (*FOUR_RANKS, *FOUR_RANKS[:3], (65000, 9, 8))


def average(mark: Marker, average: Callable) -> None:
    for ranks in (FOUR_RANKS, THREE_RANKS, EIGHT_RANKS):
        grads = [np.array(values, np.float16) for values in ranks]
        kept = [grad.copy() for grad in grads]
        got = np.asarray(mark.run(average, grads))
        mark.need(
            got.shape == (3,) and got.dtype == np.float16,
            "an FP16 array of the shape of one gradient, here (3,)",
            f"dtype {got.dtype}, shape {got.shape}",
            likely(
                (got.dtype != np.float16, "FP32 would be right, but twice the bytes on the link"),
                otherwise="add up over the ranks, not over the numbers of a gradient",
            ),
        )
        mark.need(
            all(map(np.array_equal, grads, kept)),
            "the gradients of the ranks unchanged",
            show(grads[0]),
            "do not divide in place: grad / n makes a new array",
        )
        right, values = np.mean(np.float64(kept), axis=0), got.astype(np.float64)

        def is_(factor: float, values=values, right=right) -> bool:
            return np.allclose(values, factor * right, rtol=4e-3)

        if not is_(1):
            break
    mark.require(
        is_(1),
        1,
        f"the mean of {len(ranks)} ranks is {show(right.round())}",
        show(got),
        likely(
            (not np.isfinite(got).all(), "the sum is above 65504 on the way: divide first"),
            (is_(1 / len(ranks)), "divided twice"),
            (is_(len(ranks) / 4), "divide by the number of ranks, len(grads_n), and not by 4"),
            (
                np.allclose(values, np.median(np.float64(kept), axis=0), rtol=4e-3),
                "that is the median",
            ),
            otherwise="each gradient divided by the number of ranks, and then the sum",
        ),
    )
