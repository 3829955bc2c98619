"""Number formats drawn to scale, and what becomes of real gradients in them.

The formats come as arguments (`allhands.precision.formats`). Sizes stand on a log2 axis, on which
the numbers of a format with 2^k per doubling lie equally dense everywhere, subnormal ones apart.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import matplotlib
import numpy as np

from allhands.trace.draw import OTHERS, STYLE, Picture, new_picture

NORMAL, SUBNORMAL, ZERO, INFINITE = "#0072B2", "#E69F00", "#D55E00", "#000000"
NEAR_ONE = 2.0**-5  # the width of the magnified piece right of 1
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
MOST_TICKS = 64  # more numbers than that are drawn as a band


class FloatFormat(Protocol):
    """What this file asks of a format: see `allhands.precision.formats.Format`."""

    name: str
    largest: float
    smallest_normal: float
    smallest: float
    epsilon: float


def number_line(formats: Sequence[FloatFormat], title: str = "") -> Picture:
    """Draw which sizes each format holds (above), and its numbers just right of 1 (below)."""
    rows = range(len(formats))
    names = [one.name for one in formats]
    with matplotlib.rc_context(STYLE):
        picture = new_picture(9, 1.6 + 0.75 * len(formats))
        sizes, near = picture.subplots(2, 1)
        for row, one in enumerate(formats):
            _range_bar(sizes, row, one)
            _numbers_near_one(near, row, one)
        sizes.set_xlabel("size of the number (log2 axis)")
        sizes.set_xticks(
            range(-150, 151, 25), [f"$2^{{{power}}}$" for power in range(-150, 151, 25)]
        )
        sizes.set(xlim=(-195, 175), ylim=(-0.6, len(formats) - 0.2))
        sizes.legend(handles=_range_legend(), loc="lower left", frameon=False, ncols=2, fontsize=8,
                     bbox_to_anchor=(0.62, 1.0))  # fmt: skip
        near.set_xlabel("the numbers from 1 to 1 + 1/32 (linear axis)")
        near.set_xticks([1, 1 + NEAR_ONE / 2, 1 + NEAR_ONE], ["1", "1 + 1/64", "1 + 1/32"])
        near.set(xlim=(1 - NEAR_ONE / 50, 1 + 1.32 * NEAR_ONE), ylim=(-0.6, len(formats) - 0.4))
        for axes in (sizes, near):
            axes.set_yticks(rows, names)
            axes.invert_yaxis()
            axes.tick_params(axis="y", length=0)
            axes.spines["left"].set_visible(False)
        sizes.set_title(title)
    return picture


def _range_bar(axes, row: int, one: FloatFormat) -> None:
    """Subnormal and normal numbers of a format, with the values at the joints."""
    low, join, high = np.log2([one.smallest, one.smallest_normal, one.largest])
    axes.barh(row, join - low, left=low, height=0.34, color=SUBNORMAL)
    axes.barh(row, high - join, left=join, height=0.34, color=NORMAL)
    largest = f"{one.largest:,.0f}" if one.largest < 1e6 else f"{one.largest:.1e}"
    axes.text(low - 2, row, f"0 ← {one.smallest:.1e}", ha="right", va="center", size=8)
    axes.text(join, row - 0.2, f"{one.smallest_normal:.1e}", va="bottom", size=8)
    axes.text(high + 2, row, f"{largest} → inf", va="center", size=8)


def _range_legend() -> list:
    patch = matplotlib.patches.Patch
    return [
        patch(color=SUBNORMAL, label="subnormal: fewer bits"),
        patch(color=NORMAL, label="normal"),
    ]


def _numbers_near_one(axes, row: int, one: FloatFormat) -> None:
    count = round(NEAR_ONE / one.epsilon)
    if count <= MOST_TICKS:
        numbers = 1 + one.epsilon * np.arange(count + 1)
        axes.vlines(numbers, row - 0.28, row + 0.28, color=NORMAL, lw=1.2)
    else:
        axes.barh(row, NEAR_ONE, left=1, height=0.56, color=NORMAL)
    said = f"{count:,} steps of $2^{{{round(np.log2(one.epsilon))}}}$"
    axes.text(1 + 1.03 * NEAR_ONE, row, said, va="center", size=8)


def gradient_histogram(
    sizes_by_scale: Mapping[str, np.ndarray], format: FloatFormat, title: str = ""
) -> Picture:
    """Draw how many gradients have which size, and what `format` makes of them, a panel a key.

    sizes_by_scale: positive sizes, as they reach the format (so times the loss scale), by the name
    of the panel, such as {"scale 1": sizes, "scale 1024": 1024 * sizes}.
    """
    n_panels = len(sizes_by_scale)
    low, high = np.log2(format.smallest), np.log2(format.largest)
    zero_below = low - 1  # half the smallest number and less is rounded to 0
    everything = np.log2(np.concatenate(list(sizes_by_scale.values())))
    left = np.floor(min(everything.min(), zero_below - 2))
    right = np.ceil(max(everything.max(), high + 2))
    edges = np.arange(left, right + 0.5, 0.5)
    with matplotlib.rc_context(STYLE):
        picture = new_picture(9, 0.8 + 1.6 * n_panels)
        panels = picture.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, sizes) in zip(panels, sizes_by_scale.items(), strict=True):
            counts, _ = np.histogram(np.log2(sizes), edges)
            colours = [_becomes(edge, zero_below, format) for edge in edges[:-1]]
            axes.bar(edges[:-1], 100 * counts / len(sizes), 0.5, align="edge", color=colours)
            zero = np.mean(np.log2(sizes) <= zero_below)
            axes.axvline(zero_below, color=ZERO, lw=1)
            axes.axvline(high, color=INFINITE, lw=1)
            axes.set_ylabel("gradients (%)")
            axes.set_title(f"{name}: {zero:.1%} become 0", size=9)
        ticks = np.arange(np.ceil(left / 4) * 4, right + 1, 4).astype(int)
        panels[-1].set_xticks(ticks, [f"$2^{{{power}}}$" for power in ticks])
        panels[-1].set_xlabel(f"size of the gradient times the loss scale; {format.name} makes it")
        panels[-1].legend(handles=_becomes_legend(), frameon=False, ncols=4, loc="upper center",
                          bbox_to_anchor=(0.5, -0.32), fontsize=8)  # fmt: skip
        picture.suptitle(title, x=0.01, ha="left", size=11)
    return picture


def _becomes(edge: float, zero_below: float, format: FloatFormat) -> str:
    """The colour of sizes from 2^edge to 2^(edge + 0.5)."""
    if edge < zero_below:
        return ZERO
    if edge >= np.log2(format.largest):
        return INFINITE
    return SUBNORMAL if edge < np.log2(format.smallest_normal) else NORMAL


def _becomes_legend() -> list:
    patch = matplotlib.patches.Patch
    names = {"0": ZERO, "subnormal": SUBNORMAL, "normal": NORMAL, "infinite": INFINITE}
    return [patch(color=colour, label=name) for name, colour in names.items()]


def recipes(outcomes: Sequence[Mapping], titles: Mapping[str, str], title: str = "") -> Picture:
    """Draw what each recipe of training learns: the loss over the steps, and the test.

    outcomes: `allhands.train.mixed_table.Outcome`s as mappings, several seeds a recipe. titles:
    the recipes' names as text, in the order in which they are drawn.
    """
    shown = [name for name in titles if any(one["recipe"] == name for one in outcomes)]
    with matplotlib.rc_context(STYLE):
        picture = new_picture(9, 3.6)
        left, right = picture.subplots(1, 2, width_ratios=(3, 2))
        for row, name in enumerate(shown):
            mine = [one for one in outcomes if one["recipe"] == name]
            look = {"color": OTHERS[row % len(OTHERS)], "ls": LINES[row % len(LINES)]}
            for one in mine:
                label = titles[name] if one is mine[0] else None
                left.plot(one["steps"], one["losses"], lw=1.3, label=label, **look)
            exact = [one["test_exact"] for one in mine]
            right.plot(exact, [row] * len(mine), "o", color=look["color"], ms=5)
            died = [one["nan_step"] for one in mine if one["nan_step"] is not None]
            if died:
                right.text(3, row, f"nan after step {max(died)}", va="center", size=8)
        left.set(xlabel="step", ylabel="training loss per image")
        left.legend(frameon=False, fontsize=7.5)
        left.set_title(title)
        right.set(xlabel="digits recognised in the test (%)", xlim=(-3, 103))
        right.set_yticks(range(len(shown)), [titles[name] for name in shown], size=8)
        right.axvline(10, color="0.7", lw=1, ls=":")
        right.text(12, len(shown) - 0.75, "by chance", size=7.5, color="0.35")
        right.set_ylim(len(shown) - 0.5, -0.5)
    return picture
