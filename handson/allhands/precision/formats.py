"""Which numbers does a floating-point format hold, and where does any other number go?

A format has one sign bit, `exponent_bits` and `fraction_bits`; all of them follow IEEE 754: the
smallest exponent holds zero and the subnormal numbers, the largest one infinity and nan. Values are
kept as float64, which holds every number of every format here exactly.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: (-1)^sign x 1.fraction x 2^exponent."""

    name: str
    exponent_bits: int
    fraction_bits: int

    @property
    def bits(self) -> int:
        """Bits that carry the number: 19 for TF32, although it lies in 32 bits of memory."""
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def largest_exponent(self) -> int:
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def smallest_exponent(self) -> int:
        """Of the normal numbers; the subnormal numbers share it."""
        return 1 - self.largest_exponent

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return (2 - self.epsilon) * 2.0**self.largest_exponent

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with all its fraction bits."""
        return 2.0**self.smallest_exponent

    @property
    def smallest(self) -> float:
        """The smallest positive number: below it there is only 0."""
        return 2.0 ** (self.smallest_exponent - self.fraction_bits)

    @property
    def epsilon(self) -> float:
        """The step from 1 to the next larger number."""
        return 2.0**-self.fraction_bits


FP64 = Format("FP64", 11, 52)
FP32 = Format("FP32", 8, 23)
TF32 = Format("TF32", 8, 10)
BF16 = Format("BF16", 8, 7)
FP16 = Format("FP16", 5, 10)
FORMATS = (FP64, FP32, TF32, BF16, FP16)


def round_to(values: ArrayLike, format: Format) -> np.ndarray:
    """Round each value to the nearest number of `format`; return float64 of the same shape.

    As IEEE 754 rounds (section 4.3.1): halfway between two numbers, to the one whose last fraction
    bit is 0; from halfway above the largest number on, to infinity. Subnormal numbers are kept.
    The sign of a zero, infinities and nan stay.
    """
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        step_exponent = _step_exponent(values, format)
        rounded = np.ldexp(np.rint(np.ldexp(values, -step_exponent)), step_exponent)
    return np.where(np.abs(rounded) > format.largest, np.copysign(np.inf, values), rounded)


def neighbours(value: float, format: Format) -> tuple[float, float]:
    """Return the largest number of `format` below `value`, and the smallest one above it.

    `value` itself need not be a number of the format. Next to the largest finite number stands
    infinity; nan has the neighbours (nan, nan).
    """
    return -_next_above(-value, format), _next_above(value, format)


def _next_above(value: float, format: Format) -> float:
    if np.isnan(value) or value == np.inf:
        return value
    if value < -format.largest:
        return -format.largest
    step = 2.0 ** int(_step_exponent(np.asarray(value, np.float64), format))
    if value < 0 and np.frexp(value)[0] == -0.5 and -value > format.smallest_normal:
        step /= 2  # towards 0 from a power of two, the numbers lie closer
    above = (np.floor(value / step) + 1) * step
    return float(above) if above <= format.largest else np.inf


def _step_exponent(values: np.ndarray, format: Format) -> np.ndarray:
    """log2 of the distance between the numbers of `format` around each value."""
    exponent = np.frexp(values)[1] - 1  # 2^exponent <= |value| < 2^(exponent + 1)
    lowest, highest = format.smallest_exponent, format.largest_exponent
    exponent = np.where(values == 0, lowest, np.clip(exponent, lowest, highest))
    return exponent - format.fraction_bits
