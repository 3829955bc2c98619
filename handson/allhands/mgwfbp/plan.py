"""Which gradients travel together: the plan that a planner makes and a trainer or a simulator runs.

Conventions: gradients are numbered in order of arrival in the backward pass, from 0 (the gradient
of the last layer is ready first). A plan cuts 0 .. L-1 into groups of neighbours; each group is one
all-reduce.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """Groups of neighbouring gradients, as (first, last) pairs, both included."""

    groups: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        expected = 0
        for first, last in self.groups:
            if first != expected or last < first:
                raise ValueError(
                    f"The groups of a plan must follow each other without gap or overlap: "
                    f"expected a group that starts at gradient {expected}, saw ({first}, {last})."
                )
            expected = last + 1

    @property
    def n_gradients(self) -> int:
        return self.groups[-1][1] + 1 if self.groups else 0


def one_per_gradient(n_gradients: int) -> Plan:
    """Wait-free backpropagation (WFBP): each gradient is sent alone, as soon as it is ready."""
    return Plan(tuple((i, i) for i in range(n_gradients)))


def single_bucket(n_gradients: int) -> Plan:
    """All gradients in one all-reduce after the backward pass, as ChainerMN does."""
    return Plan(((0, n_gradients - 1),) if n_gradients else ())
