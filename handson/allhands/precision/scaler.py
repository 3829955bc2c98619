"""How large should the loss scale be? Grow while all goes well, halve when a gradient overflows.

The loss is multiplied by the scale before backward, so that small gradients survive in FP16, and
the gradients are divided by it before the update (Micikevicius et al. 2018, section 3.2).
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass
class LossScaler:
    """The scale, and the rule that changes it after each step: that of torch.amp.GradScaler.

    After a step with an infinite or nan gradient, which must be skipped, the scale is multiplied by
    `backoff`. After `interval` good steps in a row it is multiplied by `growth`, and the count
    begins anew. The scale is a float32; it does not grow when that would make it infinite.

    Raises ValueError for a scale that is not positive and finite, growth < 1, backoff outside 0 to
    1, or interval < 1.
    """

    scale: float = 2.0**16
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000
    good_steps: int = 0

    def __post_init__(self) -> None:
        given, self.scale = self.scale, _float32(self.scale)
        if not 0 < self.scale < math.inf:
            raise ValueError(
                f"A loss scale must be positive and finite in FP32: it is {given}. Take a power of "
                f"two, such as 65536."
            )
        if not (self.growth >= 1 and 0 < self.backoff <= 1 and self.interval >= 1):
            raise ValueError(
                f"A loss scaler needs growth of at least 1, backoff between 0 and 1 and an "
                f"interval of at least 1: it has growth={self.growth}, backoff={self.backoff}, "
                f"interval={self.interval}."
            )

    @classmethod
    def static(cls, scale: float) -> "LossScaler":
        """A scaler whose scale never changes. Steps that overflow are skipped all the same."""
        return cls(scale, growth=1.0, backoff=1.0)

    def update(self, found_inf: bool) -> None:
        """Call once a step, after it: `found_inf` says that the step was skipped."""
        if found_inf:
            self.scale = _float32(self.scale * self.backoff)
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps == self.interval:
            grown = _float32(self.scale * self.growth)
            self.scale = grown if math.isfinite(grown) else self.scale
            self.good_steps = 0


def _float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))
