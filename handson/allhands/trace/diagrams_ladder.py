"""A picture of the decision ladder: on how many ranks does a program fail first, and what of it?

Nothing in it was measured. Positions are in units of a tenth of the width.
"""

import matplotlib
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from allhands.trace.draw import COLOURS, STYLE, Picture, new_picture

GREY = "0.35"
RAIL = "0.75"
RANK = "#56B4E9"
SEND = COLOURS["communicate"]
# From the lowest rung: its name, (nodes, ranks of a node), and what is at fault if it fails first.
RUNGS = (
    (
        "one process",
        (1, 1),
        "the program itself: no communication",
        "debug here: a traceback, print, pdb",
    ),
    (
        "two ranks, one node",
        (1, 2),
        "what ranks do differently: calls, sizes, data, start",
        "last call of each rank; same_everywhere",
    ),
    (
        "more ranks, one node",
        (1, 4),
        "shares that are not equal; memory, cores, GPUs",
        "count the steps of each rank",
    ),
    (
        "two nodes",
        (2, 2),
        "network, launcher, environment, files of one node",
        "run a program that is known to be right",
    ),
)
STEP = 1.75


def ladder() -> Picture:
    """Draw the rungs from one process to two nodes, what fails on each, and what to do there."""
    with matplotlib.rc_context(STYLE):
        picture = new_picture(11.0, 7.6)
        axes = picture.add_subplot()
        top = STEP * len(RUNGS)
        for x in (0.15, 3.05):
            axes.plot([x, x], [-0.35, top - 0.2], color=RAIL, lw=5, solid_capstyle="round")
        for number, (name, (nodes, ranks), fault, advice) in enumerate(RUNGS):
            y = STEP * number
            axes.plot([0.15, 3.05], [y, y], color=RAIL, lw=5)
            axes.text(0.4, y + 0.98, name, size=11, va="center")
            _machines(axes, 0.45, y + 0.14, nodes, ranks)
            _arrow(axes, (3.2, y + 0.6), (4.15, y + 0.6), SEND)
            axes.text(3.66, y + 0.8, "fails", ha="center", size=9, color=SEND)
            _card(axes, 4.25, y + 0.05, fault, advice)
            if number + 1 < len(RUNGS):
                _arrow(axes, (-0.2, y + 0.3), (-0.2, y + STEP - 0.1), COLOURS["update"])
                axes.text(-0.3, y + 0.95, "passes", ha="right", size=9, color=COLOURS["update"])
        axes.text(
            4.25,
            top,
            "The first rung that fails says where to look:",
            size=9,
            color=GREY,
            va="center",
        )
        axes.set(xlim=(-1.1, 10.1), ylim=(-0.6, top + 0.3), aspect="equal")
        axes.axis("off")
    return picture


def _machines(axes, x: float, y: float, nodes: int, ranks: int) -> None:
    """Each node is a frame with a circle for each of its ranks; a line joins the nodes."""
    for node in range(nodes):
        left = x + 1.3 * node
        width = 0.3 * ranks + 0.2
        _frame(axes, left, y, width)
        for rank in range(ranks):
            axes.add_patch(Circle((left + 0.25 + 0.3 * rank, y + 0.27), 0.11, fc=RANK, ec="none"))
        if node:
            axes.plot([left - 1.3 + width, left], [y + 0.27] * 2, color=SEND, lw=2)


def _frame(axes, x: float, y: float, width: float) -> None:
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((x, y), width, 0.54, boxstyle=style, fc="white", ec=GREY))


def _card(axes, x: float, y: float, fault: str, advice: str) -> None:
    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch((x, y), 5.7, 1.15, boxstyle=style, fc="0.95", ec="none"))
    axes.text(x + 0.2, y + 0.79, fault, size=10.5, va="center")
    axes.text(x + 0.2, y + 0.35, advice, size=9, va="center", color=GREY)


def _arrow(axes, start, end, colour) -> None:
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=colour, lw=1.6)
    )
