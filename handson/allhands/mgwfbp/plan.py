"""Which gradients travel together: the plan that a planner makes and a trainer or a simulator runs.

Conventions: gradients are numbered in order of arrival in the backward pass, from 0 (the gradient
of the last layer is ready first). A plan cuts 0 .. L-1 into groups of neighbours; each group is one
all-reduce. All share one link, in order, one at a time.
"""

from dataclasses import dataclass

from allhands.mgwfbp.cost import Cost
from allhands.mgwfbp.gradients import Gradients


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

    @property
    def n_groups(self) -> int:
        return len(self.groups)

    @classmethod
    def from_ends(cls, ends: list[int]) -> "Plan":
        """Make the plan whose groups end with these gradients: increasing, the last one L-1."""
        return cls(tuple(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True)))


def one_per_gradient(n_gradients: int) -> Plan:
    """Wait-free backpropagation (WFBP): each gradient is sent alone, as soon as it is ready."""
    return Plan(tuple((i, i) for i in range(n_gradients)))


def single_bucket(n_gradients: int) -> Plan:
    """All gradients in one all-reduce after the backward pass, as ChainerMN does."""
    return Plan(((0, n_gradients - 1),) if n_gradients else ())


def group_bytes(gradients: Gradients, plan: Plan) -> list[float]:
    """Return the bytes of each group. Raises ValueError if the plan is for another number."""
    if plan.n_gradients != len(gradients):
        raise ValueError(
            f"The plan is for {plan.n_gradients} gradients, but there are {len(gradients)}. "
            "Make the plan for these gradients."
        )
    before = gradients.bytes_before
    return [before[last + 1] - before[first] for first, last in plan.groups]


def finish_s(gradients: Gradients, plan: Plan, cost: Cost) -> float:
    """Return when the last all-reduce ends, in seconds from the start of the forward pass.

    Group k starts when its last gradient is ready and the group before is through:
    f_k = max(f_{k-1}, ready) + T(bytes). The update of the weights is left out.
    """
    free_s = 0.0
    for (_, last), n_bytes in zip(plan.groups, group_bytes(gradients, plan), strict=True):
        free_s = max(free_s, gradients.ready_s[last]) + cost(n_bytes)
    return free_s
