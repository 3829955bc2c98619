"""What must stay in FP32? Sums, norms, softmax and Adam, with every step rounded to a format.

Each function rounds after each operation, as a processor that only knows `format` would, where its
docstring does not say otherwise. Tensor Cores multiply in FP16, and add up in FP32.
"""

import numpy as np
from numpy.typing import ArrayLike

from allhands.precision.formats import Format, round_to


def running_sum(values: ArrayLike, format: Format) -> float:
    """Add the values one after the other; each number and each partial sum is rounded."""
    total = 0.0
    for value in round_to(np.ravel(values), format):
        total = float(round_to(total + value, format))
    return total


def norm(values: ArrayLike, format: Format) -> float:
    """The square root of the sum of squares: large values overflow, small ones underflow.

    The squares are numbers of `format`, and so is their sum; it is added up exactly, and rounded
    once, as libraries do. So what is lost is lost to the range of the format alone.
    """
    squares = round_to(round_to(np.ravel(values), format) ** 2, format)
    return float(round_to(np.sqrt(round_to(squares.sum(), format)), format))


def softmax(scores: ArrayLike, format: Format, *, shifted: bool) -> np.ndarray:
    """exp(scores) / sum of exp(scores), for one vector of scores.

    `shifted` takes the largest score off first, as libraries do: the same in exact arithmetic, but
    no exponential is larger than 1. Without it scores above ln(largest) give inf / inf = nan.
    """
    scores = round_to(scores, format)
    if shifted:
        scores = round_to(scores - scores.max(), format)
    with np.errstate(over="ignore", invalid="ignore"):
        exponentials = round_to(np.exp(scores), format)
        return round_to(exponentials / running_sum(exponentials, format), format)


def adam_step(gradient: float, format: Format, *, epsilon: float = 1e-8) -> float:
    """Adam's first update of a weight, in learning rates: m / (sqrt(v) + epsilon) (Kingma and Ba).

    In exact arithmetic it is the sign of the gradient. In FP16 epsilon itself is 0, and so is the
    square of a small gradient: the answer is inf, and for a gradient of 0 nan.
    """
    beta1, beta2 = 0.9, 0.999
    gradient = round_to(gradient, format)
    m = round_to((1 - beta1) * gradient, format)
    v = round_to((1 - beta2) * round_to(gradient**2, format), format)
    m, v = round_to(m / (1 - beta1), format), round_to(v / (1 - beta2), format)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = round_to(round_to(np.sqrt(v), format) + round_to(epsilon, format), format)
        return float(round_to(m / below, format))
