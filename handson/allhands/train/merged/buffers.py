"""Where do the gradients of a group lie? One flat buffer a group, one slot a gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from allhands.mgwfbp.plan import Plan
from allhands.train.merged.exchange import Pending


@dataclass
class Group:
    """Gradients first..last, their flat buffer, and how far this step is with them."""

    first: int
    last: int
    buffer: torch.Tensor
    missing: int = 0
    pending: Pending | None = None

    @property
    def name(self) -> str:
        return f"{self.first}-{self.last}"

    @property
    def n_gradients(self) -> int:
        return self.last - self.first + 1

    @property
    def n_bytes(self) -> int:
        return self.buffer.numel() * self.buffer.element_size()


def make_groups(
    plan: Plan, parameters: Sequence[torch.Tensor], n_extra: int = 0
) -> tuple[list[Group], list[torch.Tensor], torch.Tensor]:
    """Return the groups, a slot for each gradient in the shape of its parameter, and extra numbers.

    parameters: (L,) in the order of the plan, those of a group of one type and device. Slots are
    views of the buffers. The (n_extra,) extra numbers are the end of the last buffer.
    """
    groups, slots, extra = [], [], torch.zeros(0)
    for first, last in plan.groups:
        members = parameters[first : last + 1]
        sizes = [p.numel() for p in members]
        n_more = n_extra if last + 1 == len(parameters) else 0
        buffer = members[0].new_zeros(sum(sizes) + n_more, requires_grad=False)
        *pieces, extra = buffer.split([*sizes, n_more])
        slots += [piece.view(p.shape) for piece, p in zip(pieces, members, strict=True)]
        groups.append(Group(first, last, buffer))
    return groups, slots, extra


def cut_by_kind(plan: Plan, kinds: Sequence[object]) -> Plan:
    """Cut the groups of a plan where neighbours are of different kinds; kinds: (L,)."""
    ends = [last for _, last in plan.groups]
    ends += [i for i in range(len(kinds) - 1) if kinds[i] != kinds[i + 1]]
    return Plan.from_ends(sorted(set(ends))) if ends else plan
