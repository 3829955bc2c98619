"""Pictures of how things are built, drawn by the same rules as the measured figures.

Nothing in them was measured. Positions are in units of one box.
"""

import itertools
from collections.abc import Sequence

import matplotlib
from matplotlib.patches import FancyBboxPatch

from allhands.trace.draw import COLOURS, STYLE, Picture, new_picture

BOX_WIDTH, BOX_HEIGHT = 0.72, 0.5


def encoder_decoder(
    source: Sequence[str], target: Sequence[str], weights_s: Sequence[float], looking: int
) -> Picture:
    """Draw an encoder over `source`, a decoder that says `target`, and one look back.

    At decoder step `looking` (from 0) the attention over the source is `weights_s`, between 0 and
    1: a wider line for a larger weight.
    """
    given = ["BOS", *target[:-1]]
    first = len(source) + 0.6  # where the decoder begins
    with matplotlib.rc_context(STYLE):
        picture = new_picture(1.1 * (len(source) + len(target)) + 0.6, 3.1)
        axes = picture.add_subplot()
        for s, token in enumerate(source):
            _box(axes, s, "LSTM", COLOURS["forward"])
            _arrow(axes, (s, -0.75), (s, -BOX_HEIGHT / 2))
            axes.text(s, -0.95, token, ha="center", va="center")
        for t, (known, said) in enumerate(zip(given, target, strict=True)):
            x = first + t
            _box(axes, x, "LSTM", COLOURS["snapshot"])
            _arrow(axes, (x, -0.75), (x, -BOX_HEIGHT / 2))
            _arrow(axes, (x, BOX_HEIGHT / 2), (x, 1.25))
            axes.text(x, -0.95, known, ha="center", va="center", color="0.35")
            axes.text(x, 1.45, said, ha="center", va="center")
        steps = [*range(len(source)), *(first + t for t in range(len(target)))]
        for left, right in itertools.pairwise(steps):
            _arrow(axes, (left + BOX_WIDTH / 2, 0), (right - BOX_WIDTH / 2, 0))
        _attention(axes, weights_s, first + looking)
        axes.text((len(source) - 1) / 2, -1.4, "encoder: reads", ha="center", color="0.35")
        middle = first + (len(target) - 1) / 2
        axes.text(middle, -1.4, "decoder: is told (below), says (above)", ha="center", color="0.35")
        axes.set(xlim=(-0.6, steps[-1] + 0.6), ylim=(-1.6, 1.75), aspect="equal")
        axes.axis("off")
    return picture


def _box(axes, x: float, text: str, colour: str) -> None:
    corner = (x - BOX_WIDTH / 2, -BOX_HEIGHT / 2)
    style = "round,pad=0,rounding_size=0.08"
    axes.add_patch(
        FancyBboxPatch(corner, BOX_WIDTH, BOX_HEIGHT, boxstyle=style, fc=colour, ec="none")
    )
    axes.text(x, 0, text, ha="center", va="center", size=8)


def _arrow(axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    style = {"arrowstyle": "-|>", "color": "0.45", "lw": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)


def _attention(axes, weights_s: Sequence[float], x: float) -> None:
    """Curved lines from the top of each encoder step to the decoder step at `x`."""
    for s, weight in enumerate(weights_s):
        line = {
            "arrowstyle": "-",
            "color": COLOURS["communicate"],
            "lw": 0.5 + 4 * weight,
            "alpha": 0.25 + 0.7 * weight,
            "connectionstyle": "arc3,rad=-0.35",
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", (x - 0.12, BOX_HEIGHT / 2), (s, BOX_HEIGHT / 2), arrowprops=line)
    axes.text(x / 2 - 0.3, 1.45, "attention", color=COLOURS["communicate"], ha="center")
