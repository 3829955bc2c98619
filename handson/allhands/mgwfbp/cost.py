"""What does one all-reduce cost?

Conventions: a message of s bytes takes T(s) seconds. Sizes are in bytes, times in seconds. A cost
is called with a number or an array of numbers and gives the same shape back. Two forms:

- `AffineCost`: T(s) = startup_s + s_per_byte * s, the model of all published merging methods.
  Two messages cost one start-up more than one: T(x) + T(y) - T(x + y) = startup_s.
- `TabulatedCost`: measured points with straight lines between them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class Cost(Protocol):
    """What planners and simulators ask of a cost."""

    startup_s: float  # the time of a message of (almost) no bytes

    def __call__(self, n_bytes):
        """Return the seconds of one message of `n_bytes` (a number, or an array of any shape)."""

    def compressed(self, bytes_factor: float, overhead_s: float = 0.0) -> "Cost":
        """Return the cost when each message is compressed before it is sent."""


def _check_compression(bytes_factor: float, overhead_s: float) -> None:
    if not (math.isfinite(bytes_factor) and bytes_factor > 0):
        raise ValueError(
            f"A compression must leave some bytes: expected a finite bytes_factor above 0 "
            f"(0.5 for FP16), saw {bytes_factor}."
        )
    if not (math.isfinite(overhead_s) and overhead_s >= 0):
        raise ValueError(
            f"The time to compress one message must be 0 s or more, saw overhead_s={overhead_s}."
        )


@dataclass(frozen=True)
class AffineCost:
    """T(s) = startup_s + s_per_byte * s. Raises ValueError for a negative or non-finite part."""

    startup_s: float
    s_per_byte: float

    def __post_init__(self) -> None:
        for name in ("startup_s", "s_per_byte"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"The cost of an all-reduce cannot be negative or unknown: expected {name} to "
                    f"be a finite number of 0 or more, saw {value}. Measure or fit it again."
                )

    def __call__(self, n_bytes):
        return self.startup_s + self.s_per_byte * n_bytes

    def compressed(self, bytes_factor: float, overhead_s: float = 0.0) -> "AffineCost":
        """Return the cost with `bytes_factor` of the bytes and `overhead_s` more a message.

        FP16 instead of FP32 is `compressed(0.5)`: it halves the time of the bytes, and leaves the
        start-up as it is.
        """
        _check_compression(bytes_factor, overhead_s)
        return AffineCost(self.startup_s + overhead_s, self.s_per_byte * bytes_factor)


@dataclass(frozen=True)
class TabulatedCost:
    """Measured times `time_s` of messages of `n_bytes`, with straight lines between the points.

    Below the first point the cost is the first point's; above the last one the last line goes on.
    Raises ValueError unless there are at least two points, all finite, sizes strictly increasing
    from 0 or more, and times that are positive and never fall.
    """

    n_bytes: tuple[float, ...]
    time_s: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes, times_s = _points(self.n_bytes, self.time_s)
        object.__setattr__(self, "n_bytes", tuple(sizes.tolist()))
        object.__setattr__(self, "time_s", tuple(times_s.tolist()))
        if len(sizes) < 2 or np.any(np.diff(sizes) <= 0):
            raise ValueError(
                "A cost table needs at least 2 sizes, each larger than the one before; saw "
                f"{_shown(sizes)}. Sort the points and keep one for each size."
            )
        falls = np.flatnonzero(np.diff(times_s) < 0)
        if falls.size:
            i = int(falls[0])
            raise ValueError(
                f"A larger message cannot cost less: {sizes[i]:.0f} bytes take {times_s[i]:.3g} s "
                f"and {sizes[i + 1]:.0f} bytes {times_s[i + 1]:.3g} s. Measure again, or use "
                "TabulatedCost.from_measured, which irons out noise."
            )

    @classmethod
    def from_measured(cls, n_bytes: Sequence[float], time_s: Sequence[float]) -> "TabulatedCost":
        """Make a table from noisy points in any order.

        Points of the same size become their median; where a larger message was measured faster
        than a smaller one, it gets the smaller one's time.
        """
        sizes, times_s = _points(n_bytes, time_s)
        distinct = np.unique(sizes)
        medians_s = np.array([np.median(times_s[sizes == size]) for size in distinct])
        return cls(tuple(distinct), tuple(np.maximum.accumulate(medians_s)))

    @property
    def startup_s(self) -> float:
        """The time of the smallest message of the table."""
        return self.time_s[0]

    def __call__(self, n_bytes):
        asked = np.asarray(n_bytes, dtype=float)
        time_s = np.interp(asked, self.n_bytes, self.time_s)
        slope = (self.time_s[-1] - self.time_s[-2]) / (self.n_bytes[-1] - self.n_bytes[-2])
        time_s = time_s + slope * np.maximum(asked - self.n_bytes[-1], 0.0)
        return float(time_s) if asked.ndim == 0 else time_s

    def compressed(self, bytes_factor: float, overhead_s: float = 0.0) -> "TabulatedCost":
        """Return the table of messages that shrink to `bytes_factor` and cost `overhead_s` more."""
        _check_compression(bytes_factor, overhead_s)
        return TabulatedCost(
            tuple(size / bytes_factor for size in self.n_bytes),
            tuple(time_s + overhead_s for time_s in self.time_s),
        )


def _points(n_bytes: Sequence[float], time_s: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return sizes and times as float arrays (n,), or say what is wrong with them."""
    sizes, times_s = np.asarray(n_bytes, dtype=float), np.asarray(time_s, dtype=float)
    if sizes.ndim != 1 or sizes.shape != times_s.shape:
        raise ValueError(
            f"Each size needs one time: saw {sizes.size} sizes and {times_s.size} times."
        )
    if not (np.all(np.isfinite(sizes)) and np.all(np.isfinite(times_s))):
        raise ValueError("Sizes and times must be finite numbers; saw a NaN or an infinity.")
    if np.any(sizes < 0) or np.any(times_s <= 0):
        raise ValueError(
            "A message has 0 bytes or more and takes more than 0 s; saw a smaller size or time "
            f"(smallest size {sizes.min():.3g} bytes, smallest time {times_s.min():.3g} s)."
        )
    return sizes, times_s


def _shown(values: np.ndarray, most: int = 6) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:most])
    return f"[{shown}{', ...' if len(values) > most else ''}]"
