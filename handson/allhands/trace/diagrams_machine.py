"""A picture of what is under your hands: nodes, ranks with both their numbers, devices, the link.

Nothing in it was measured. Positions are in units of one device.
"""

from collections.abc import Sequence

import matplotlib
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from allhands.trace.draw import COLOURS, OTHERS, STYLE, Picture, new_picture

GREY = "0.35"
SEND = COLOURS["communicate"]
STEP = 1.75  # from one rank of a node to the next
APART = 1.9  # between two nodes
HEIGHT = 4.1  # of a node


def ranks_on_nodes(placements: dict[str, Sequence[Sequence[int]]]) -> Picture:
    """Draw several ways to place ranks on nodes, side by side.

    placements: {title: the ranks of each node, in the order of their local ranks}, such as
    {"by node": [[0, 1], [2, 3]]}. Each rank uses the device of its local rank.
    """
    with matplotlib.rc_context(STYLE):
        picture = new_picture(5.6 * len(placements), 3.6)
        panels = picture.subplots(1, len(placements), squeeze=False, gridspec_kw={"wspace": 0.12})[
            0
        ]
        for axes, (title, nodes) in zip(panels, placements.items(), strict=True):
            left = 0.0
            for number, ranks in enumerate(nodes, 1):
                width = STEP * len(ranks) + 0.25
                _node(axes, left, width, f"node n{number}", ranks)
                if number > 1:
                    _link(axes, left - APART, left)
                left += width + APART
            axes.set(xlim=(-0.1, left - APART + 0.1), ylim=(-0.2, HEIGHT + 0.75), aspect="equal")
            axes.set_title(title, size=11)
            axes.axis("off")
    return picture


def _node(axes, left: float, width: float, name: str, ranks: Sequence[int]) -> None:
    _card(axes, left, 0, width, HEIGHT, "0.95")
    axes.text(left + width / 2, HEIGHT + 0.3, name, ha="center", va="center", color=GREY)
    for local, rank in enumerate(ranks):
        x = left + 0.125 + STEP * (local + 0.5)
        colour = OTHERS[rank % len(OTHERS)]
        axes.add_patch(Circle((x, 3.25), 0.5, fc=colour, ec="none"))
        axes.text(x, 3.25, str(rank), ha="center", va="center", color="white", size=13)
        axes.text(x, 2.42, f"rank {rank}", ha="center", va="center", size=9)
        axes.text(x, 2.0, f"local rank {local}", ha="center", va="center", size=9, color=GREY)
        _arrow(axes, (x, 1.72), (x, 1.18), GREY)
        _card(axes, x - 0.75, 0.3, 1.5, 0.84, COLOURS["idle"])
        axes.text(x, 0.72, f"device {local}", ha="center", va="center", size=9)


def _link(axes, start: float, end: float) -> None:
    y = 3.25
    axes.plot([start, end], [y, y], color=SEND, lw=3, solid_capstyle="butt")
    middle = (start + end) / 2
    axes.text(middle, y + 0.3, "link", ha="center", va="center", size=9, color=SEND)
    axes.text(middle, y - 0.34, "$a + b\\,s$", ha="center", va="center", size=9, color=SEND)


def _card(axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    style = "round,pad=0,rounding_size=0.15"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, fc=colour, ec="none"))


def _arrow(axes, start, end, colour: str) -> None:
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color=colour, lw=1.2)
    )
