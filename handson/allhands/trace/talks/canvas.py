"""What the pictures of all talks share: the shape and the type of a slide, boxes, cards, arrows.

A picture of SIZE fills what a title and a caption leave of a slide. No type on it is smaller than
LEAST_PT: `for_slide` sees to that in a picture that was drawn for a notebook.
"""

import matplotlib
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.text import Text

from allhands.trace.draw import STYLE, Picture, new_picture

SLIDE = {**STYLE, "font.size": 14, "axes.titlesize": 15}
SIZE = (11.5, 5.0)  # inches
GREY = "0.35"
LEAST_PT = 14.0
LOW = (11.5, 4.9)  # inches; LOW and LARGE are those of the decks on errors and bugs
LARGE_PT = 15.0
LARGE = {**SLIDE, "font.size": LARGE_PT}


def for_slide(
    picture: Picture, size: tuple[float, float] = SIZE, least_pt: float = LEAST_PT
) -> Picture:
    """Give a picture the shape of a slide (inches), and all its type this size at least."""
    picture.set_size_inches(*size)
    for text in picture.findobj(Text):
        text.set_fontsize(max(least_pt, text.get_fontsize()))
    return picture


def plain(
    x_limits, y_limits, equal: bool = True, size: tuple[float, float] = SIZE
) -> tuple[Picture, matplotlib.axes.Axes]:
    """A picture of `size` inches with one panel, without axes; `equal`: one unit for x and y."""
    picture = new_picture(*size)
    axes = picture.add_subplot()
    axes.set(xlim=x_limits, ylim=y_limits)
    if equal:
        axes.set_aspect("equal")
    axes.axis("off")
    return picture, axes


def card(axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    """Draw a filled box with round corners, from its lower left corner."""
    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, fc=colour, ec="none"))


def box(axes, x, y, width, height, colour, words, shade="black") -> None:
    """Draw a card with words in its middle."""
    card(axes, x, y, width, height, colour)
    axes.text(x + width / 2, y + height / 2, words, ha="center", va="center", color=shade)


def arrow(
    axes, start, end, colour: str, width: float, both=False, bend=0.0, head: float | None = None
) -> None:
    """Draw an arrow of `width` points; `bend` is its curvature, `head` the size of its head."""
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="<|-|>" if both else "-|>",
            mutation_scale=head or 12 + 2 * width, color=colour, lw=width,
            shrinkA=0, shrinkB=0, connectionstyle=f"arc3,rad={bend}",
        )
    )  # fmt: skip
