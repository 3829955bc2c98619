"""Pictures of what the translator of lab 1 reads and says. Nothing in them was measured.

Type is large: these pictures fill a slide.
"""

from collections.abc import Sequence

import matplotlib
from matplotlib.patches import Rectangle

from allhands.trace.draw import COLOURS, Picture
from allhands.trace.talks.canvas import GREY, SLIDE, arrow, box, plain

READ, SAY = COLOURS["forward"], COLOURS["snapshot"]


def token_ids(text: str, ids: Sequence[tuple[str, int]], special: Sequence[str]) -> Picture:
    """Draw a sentence, its tokens with their ids, and the special tokens, whose ids begin at 0."""
    n = len(ids)
    with matplotlib.rc_context(SLIDE):
        picture, axes = plain((-1.6, n + 0.2), (-2.55, 3.6), equal=False)
        axes.text(n / 2, 3.2, text, ha="center", va="center", size=24)
        for row, y in (("tokens", 2.2), ("ids", 0.5), ("special", -1.45)):
            axes.text(-0.3, y, row, ha="right", va="center", color=GREY, size=17)
        for t, (token, number) in enumerate(ids):
            box(axes, t + 0.06, 1.8, 0.88, 0.8, READ, "")
            axes.text(t + 0.5, 2.2, token, ha="center", va="center", size=20)
            arrow(axes, (t + 0.5, 1.7), (t + 0.5, 1.0), GREY, 1.5)
            axes.text(t + 0.5, 0.5, f"{number}", ha="center", va="center", size=22)
        for t, name in enumerate(special):
            box(axes, t + 0.06, -1.85, 0.88, 0.8, "0.9", "")
            axes.text(t + 0.5, -1.45, name, ha="center", va="center", size=16)
            axes.text(t + 0.5, -2.25, f"{t}", ha="center", va="center", size=20, color=GREY)
    return picture


def padded_rows(rows: Sequence[Sequence[str]]) -> Picture:
    """Draw rows of tokens as one rectangle: a cell a token, and grey cells where a row has ended.

    Room for about 13 columns and 7 rows.
    """
    longest = max(map(len, rows))
    with matplotlib.rc_context(SLIDE):
        picture, axes = plain((-0.1, longest + 0.1), (len(rows) + 0.05, -0.1), equal=False)
        for b, row in enumerate(rows):
            for t in range(longest):
                token = row[t] if t < len(row) else ""
                cell = (t + 0.04, b + 0.06)
                colour, shade = (READ, "black") if token else ("0.9", "0.45")
                axes.add_patch(Rectangle(cell, 0.92, 0.88, fc=colour, ec="none"))
                size = 20 if len(token) == 1 else 15
                words = {"ha": "center", "va": "center", "color": shade, "size": size}
                axes.text(t + 0.5, b + 0.5, token or "PAD", **words)
    return picture


def own_words(said: Sequence[str]) -> Picture:
    """Draw a decoder that is given what it has said: from BOS to the last of `said`."""
    apart = 2.6
    with matplotlib.rc_context(SLIDE):
        picture, axes = plain((-2.2, apart * (len(said) - 1) + 1.3), (-2.2, 2.3))
        for t, token in enumerate(said):
            x = apart * t
            box(axes, x - 0.7, -0.45, 1.4, 0.9, SAY, "")
            axes.text(x, 0, "step", ha="center", va="center", size=18)
            arrow(axes, (x, 0.5), (x, 1.25), GREY, 1.5)
            axes.text(x, 1.65, token, ha="center", va="center", size=24)
            arrow(axes, (x, -1.25), (x, -0.5), GREY, 1.5)
            given = said[t - 1] if t else "BOS"
            axes.text(x, -1.65, given, ha="center", va="center", size=24, color=GREY)
            if t:
                before = x - apart
                arrow(axes, (before + 0.75, 0), (x - 0.75, 0), GREY, 1.5)
                start, end = (before + 0.45, 1.55), (x - 0.4, -1.45)
                arrow(axes, start, end, COLOURS["communicate"], 2.2)
        axes.text(-1.3, 0, "state", ha="right", va="center", color=GREY, size=16)
        arrow(axes, (-1.22, 0), (-0.74, 0), GREY, 1.5)
    return picture
