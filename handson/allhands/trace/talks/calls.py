"""Pictures of what ranks call together: the ladder of ranks, calls in order, arrays by position.

Nothing in them was measured. Type is large: these figures fill a slide.
"""

from collections.abc import Sequence

import matplotlib
from matplotlib.patches import FancyBboxPatch

from allhands.trace.draw import COLOURS, OTHERS, Picture
from allhands.trace.talks.canvas import GREY, LARGE, LARGE_PT, LOW, arrow, card, plain

SEND = COLOURS["communicate"]
RANK = COLOURS["forward"]
# From the lowest rung: its name, (nodes, ranks of a node), what it adds, what fails first there.
RUNGS = (
    ("one process", (1, 1), "the program,\nthe data", "the program\nitself"),
    ("two ranks", (1, 2), "messages,\nshares", "what ranks do\ndifferently"),
    ("more ranks", (1, 4), "shares that\nare not equal", "steps, memory,\ncores, GPUs"),
    ("two nodes", (2, 2), "a network,\na launcher", "network, launcher,\nenvironment"),
)
STEP = 2.9


def rungs() -> Picture:
    """Draw the ladder from one process to two nodes as stairs: what each adds, what fails there."""
    with matplotlib.rc_context(LARGE):
        picture, axes = plain((-1.75, STEP * 4 - 0.2), (-0.5, 4.9), equal=False, size=LOW)
        for number, (name, (nodes, ranks), adds, fault) in enumerate(RUNGS):
            x, y = STEP * number, 0.34 * number
            axes.plot([x, x + STEP - 0.35], [y + 2.1] * 2, color="0.75", lw=6)
            axes.text(x, y + 3.15, name, fontsize=LARGE_PT + 2)
            _machines(axes, x, y + 2.28, nodes, ranks)
            axes.text(x, 1.6, adds, va="top", color=GREY)
            axes.text(x, 0.45, fault, va="top", color=SEND)
            if number:
                arrow(axes, (x - 0.7, y + 3.3), (x - 0.1, y + 3.5), COLOURS["update"], 2.4, head=18)
        for y, words, colour in ((1.6, "it adds", GREY), (0.45, "if it fails\nfirst here", SEND)):
            axes.text(-1.75, y, words, va="top", color=colour)
        axes.text(STEP - 0.85, 4.15, "passes", color=COLOURS["update"], ha="center")
    return picture


def calls_in_order(
    columns: Sequence[tuple[str, Sequence[tuple[str, str]]]], same: Sequence[bool]
) -> Picture:
    """Draw the calls of some ranks, paired by their order: (who, ((call, colour), ...)).

    same: for each row, whether the calls of that row belong together.
    """
    with matplotlib.rc_context(LARGE):
        picture, axes = plain((-1.6, 10.0), (len(same) - 0.1, -0.75), equal=False, size=LOW)
        for column, (who, calls) in enumerate(columns):
            x = 5.6 * column
            axes.text(x + 2.1, -0.35, who, ha="center")
            for row, (call, colour) in enumerate(calls):
                card(axes, x, row + 0.1, 4.2, 0.7, colour)
                axes.text(x + 2.1, row + 0.46, call, ha="center", va="center")
        for row, fits in enumerate(same):
            axes.text(-1.6, row + 0.46, f"call {row + 1}", va="center", color=GREY)
            colour = COLOURS["update"] if fits else SEND
            reaches = all(len(calls) > row for _, calls in columns)
            if reaches:
                arrow(axes, (4.28, row + 0.46), (5.52, row + 0.46), colour, 2.4, both=True, head=18)
    return picture


def by_position(ranks: Sequence[tuple[str, Sequence[tuple[str, int]]]]) -> Picture:
    """Draw arrays with a meaning for each place, and their sum place by place."""
    rows = [*ranks]
    totals = [sum(row[place][1] for _, row in rows) for place in range(len(rows[0][1]))]
    with matplotlib.rc_context(LARGE):
        x_limits = (-1.7, 1.75 * len(totals) + 0.1)
        picture, axes = plain(x_limits, (3.75, -0.3), equal=False, size=LOW)
        for number, (who, row) in enumerate(rows):
            y = 1.2 * number
            axes.text(-0.25, y + 0.45, who, ha="right", va="center")
            for place, (word, count) in enumerate(row):
                card(axes, 1.75 * place, y, 1.6, 0.9, RANK)
                axes.text(1.75 * place + 0.8, y + 0.3, word, ha="center", va="center")
                axes.text(1.75 * place + 0.8, y + 0.64, str(count), ha="center", va="center",
                          fontsize=LARGE_PT + 3)  # fmt: skip
        y = 1.2 * len(rows) + 0.25
        axes.text(-0.25, y + 0.35, "the sum", ha="right", va="center", color=SEND)
        for place, total in enumerate(totals):
            card(axes, 1.75 * place, y, 1.6, 0.75, "#F7D9C4")
            axes.text(1.75 * place + 0.8, y + 0.38, f"{total} of what?", ha="center", va="center")
    return picture


def _machines(axes, x: float, y: float, nodes: int, ranks: int) -> None:
    """A frame for each node with a circle for each of its ranks; a line joins the nodes."""
    for node in range(nodes):
        width = 0.36 * ranks + 0.2
        left = x + node * (width + 0.35)
        style = "round,pad=0,rounding_size=0.08"
        frame = FancyBboxPatch((left, y), width, 0.62, boxstyle=style, fc="white", ec=GREY, lw=1.4)
        axes.add_patch(frame)
        for rank in range(ranks):
            axes.plot(left + 0.28 + 0.36 * rank, y + 0.31, "o", color=OTHERS[0], ms=14)
        if node:
            axes.plot([left - 0.35, left], [y + 0.31] * 2, color=SEND, lw=3)
