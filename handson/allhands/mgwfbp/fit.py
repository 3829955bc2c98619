"""Which start-up time and time per byte does a measured all-reduce table show?

`fit` finds T(s) = startup_s + s_per_byte * s. It makes the *relative* error small, because a table
spans six orders of magnitude: in absolute terms the largest messages alone would decide, and the
start-up, which the planner lives on, would be noise. It resists outliers (Huber, Annals of
Mathematical Statistics 35, 1964): a point far off the line pulls with a bounded force. Single bad
points do not matter; several at one end of the table, where alone the start-up or the slope shows,
can still win. So look at `worst_n_bytes`.

A real link is not one straight line: MPI changes protocol with the size. So the window of sizes
that was fitted is part of the answer. Fit the sizes that the plan will send.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from allhands.mgwfbp.cost import AffineCost, _points

HUBER = 1.345  # standard deviations; 95 % efficient when the noise is normal
MAD_TO_DEVIATION = 1.4826
ROUNDING = 1e-9  # relative: a parameter this near to 0 is 0


@dataclass(frozen=True)
class Fit:
    """A fitted cost and how good it is. Errors are relative: (predicted - measured) / measured."""

    cost: AffineCost
    window_bytes: tuple[float, float]  # smallest and largest size that was fitted
    n_points: int
    relative_errors: tuple[float, ...]  # one a point, by size
    worst_n_bytes: float  # the size with the largest error

    @property
    def median_error(self) -> float:
        """The median of the absolute relative errors."""
        return float(np.median(np.abs(self.relative_errors)))

    @property
    def worst_error(self) -> float:
        """The largest absolute relative error."""
        return float(np.max(np.abs(self.relative_errors)))

    def __str__(self) -> str:
        low, high = self.window_bytes
        return (
            f"T(s) = {self.cost.startup_s:.3e} s + {self.cost.s_per_byte:.3e} s/byte * s, from "
            f"{self.n_points} points of {low:.0f} to {high:.0f} bytes; error "
            f"{self.median_error:.1%} (median), {self.worst_error:.1%} at worst, for "
            f"{self.worst_n_bytes:.0f} bytes"
        )


def fit(
    n_bytes: Sequence[float],
    time_s: Sequence[float],
    *,
    window_bytes: tuple[float, float] | None = None,
) -> Fit:
    """Fit T(s) = startup_s + s_per_byte * s to measured points, in any order.

    `window_bytes` keeps the sizes from its first to its second value, both included. Repeated sizes
    count as often as they were measured. Raises ValueError, with a sentence, for sizes and times of
    different number, non-finite or impossible values, fewer than two distinct sizes in the window,
    and for points whose best line has a negative start-up or falls with the size.
    """
    sizes, times_s = _points(n_bytes, time_s)
    low, high = window_bytes or (0.0, np.inf)
    inside = (sizes >= low) & (sizes <= high)
    order = np.argsort(sizes[inside], kind="stable")
    sizes, times_s = sizes[inside][order], times_s[inside][order]
    if len(np.unique(sizes)) < 2:
        raise ValueError(
            f"A line needs at least 2 distinct sizes; saw {len(np.unique(sizes))} between "
            f"{low:.0f} and {high:.0f} bytes. Measure more sizes, or widen window_bytes."
        )
    startup_s, s_per_byte = _robust_line(sizes, times_s)
    cost = _sensible(startup_s, s_per_byte, sizes, times_s)
    errors = cost(sizes) / times_s - 1.0
    return Fit(
        cost=cost,
        window_bytes=(float(sizes[0]), float(sizes[-1])),
        n_points=len(sizes),
        relative_errors=tuple(errors.tolist()),
        worst_n_bytes=float(sizes[np.argmax(np.abs(errors))]),
    )


def _robust_line(sizes: np.ndarray, times_s: np.ndarray) -> tuple[float, float]:
    """Huber's line for relative errors, by iteratively reweighted least squares."""
    unit = sizes.max()
    rows_nk = np.stack([1.0 / times_s, sizes / unit / times_s], axis=1)
    weights = np.ones(len(sizes))
    line = np.zeros(2)
    for _ in range(200):
        root = np.sqrt(weights)
        before, line = line, np.linalg.lstsq(rows_nk * root[:, None], root, rcond=None)[0]
        errors = np.abs(rows_nk @ line - 1.0)
        bend = HUBER * MAD_TO_DEVIATION * np.median(errors)
        weights = np.minimum(1.0, max(bend, 1e-13) / np.maximum(errors, 1e-13))
        if np.all(np.abs(line - before) <= 1e-13 * np.abs(line).max()):
            break
    return float(line[0]), float(line[1] / unit)


def _sensible(startup_s: float, s_per_byte: float, sizes, times_s) -> AffineCost:
    """Round a parameter that is 0 but for rounding; refuse one that is negative."""
    smallest_s = float(times_s.min())
    if abs(startup_s) < ROUNDING * smallest_s:
        startup_s = 0.0
    if abs(s_per_byte) * float(sizes.max()) < ROUNDING * smallest_s:
        s_per_byte = 0.0
    if s_per_byte < 0:
        raise ValueError(
            f"Larger messages were measured faster (slope {s_per_byte:.3g} s/byte between "
            f"{sizes[0]:.0f} and {sizes[-1]:.0f} bytes). That is noise, or a change of protocol: "
            "measure more often, or choose another window_bytes."
        )
    if startup_s < 0:
        raise ValueError(
            f"The best line has a negative start-up ({startup_s:.3g} s): between {sizes[0]:.0f} "
            f"and {sizes[-1]:.0f} bytes the times bend upwards. Choose a narrower "
            "window_bytes, or use a TabulatedCost."
        )
    return AffineCost(startup_s, s_per_byte)
