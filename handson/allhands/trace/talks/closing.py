"""Pictures of the closing talk: what runs of the labs have shown, in the type of a slide."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import matplotlib

from allhands.trace.draw import OTHERS, Picture, new_picture
from allhands.trace.talks.canvas import GREY, SIZE, SLIDE


class Speedup(Protocol):
    """What this file asks of a measured speed-up: see `allhands.trace.scaling`."""

    ranks: int
    median: float


def speedups(points: Mapping[str, Sequence[Speedup]], cores: int) -> Picture:
    """Draw measured speed-ups as bars, a colour a kind of scaling, and the ideal as short lines."""
    ranks = [point.ranks for point in next(iter(points.values()))]
    width = 0.8 / len(points)
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        for place, one in enumerate(ranks):
            words = "ideal" if place == len(ranks) - 1 else ""
            axes.plot([place - 0.45, place + 0.45], [one, one], color=GREY, lw=2.5)
            axes.text(place + 0.45, one + 0.06, words, color=GREY, ha="right", size=17)
        for kind, ((name, measured), colour) in enumerate(
            zip(points.items(), OTHERS, strict=False)
        ):
            for place, point in enumerate(measured):
                x = place + (kind - (len(points) - 1) / 2) * width
                label = name if place == 0 else None
                axes.bar(x, point.median, 0.9 * width, color=colour, label=label)
                words = f"{point.median:.2f}"
                axes.text(x, point.median - 0.3, words, ha="center", color="white", size=17)
        names = [f"{one} rank{'s' * (one > 1)}" + ", shared cores" * (one > cores) for one in ranks]
        axes.set_xticks(range(len(ranks)), names, size=17)
        axes.tick_params(axis="x", length=0)
        axes.set(ylabel="speed-up", ylim=(0, 1.12 * max(ranks)))
        axes.legend(frameon=False, loc="upper left", fontsize=17)
    return picture


def recognised(percent: Mapping[str, Sequence[float]]) -> Picture:
    """Draw what each way of training recognises in the test (%), a row a way and a mark a seed."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        marks = ("o", "s", "^", "D")
        for row, values in enumerate(percent.values()):
            for seed, (value, mark) in enumerate(zip(values, marks, strict=False)):
                label = f"seed {seed}" if row == 0 else None
                axes.plot(value, row, mark, ms=15, color=OTHERS[seed], label=label)
        axes.set_yticks(range(len(percent)), list(percent), size=17)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="0.9")
        axes.set(ylim=(len(percent) - 0.5, -0.5), xlim=(80, 100))
        axes.set_xticks([80, 85, 90, 95, 100])
        axes.set_xlabel("digits recognised in the test (%)")
        axes.legend(frameon=False, loc="upper right", fontsize=17)
    return picture
