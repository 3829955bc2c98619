"""Pictures that open lab 3: a ruler of numbers, gradients, a loss scale, two roofs; large type.

What is shown comes as arguments; the ruler's format is small, so that each of its numbers can be
seen. Sizes of gradients and scales stand on log2 axes.
"""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from allhands.trace.draw import COLOURS, OTHERS, Picture, new_picture
from allhands.trace.talks.canvas import GREY, SIZE, SLIDE

NUMBER, SUBNORMAL, BACK = "#0072B2", "#E69F00", "#D55E00"
WIDE, HALF = "#CFE3F1", "#F6D9B8"  # boxes of FP32 and of FP16


def ruler(numbers: Sequence[float], n_subnormal: int) -> Picture:
    """Draw all numbers of a small format, and below those up to 2 again, enlarged.

    numbers: not negative, in increasing order; the first `n_subnormal` have fewer bits.
    """
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        whole, near = picture.subplots(2, 1)
        _marks(whole, numbers, n_subnormal)
        top = numbers[-1]
        whole.set(xlim=(-0.2, 1.16 * top), ylim=(0, 1.55))
        whole.set_xticks([0, 1, 2, 4, 8, top], ["0", "1", "2", "4", "8", f"{top:g}"])
        whole.text(1.02 * top, 0.5, "→ infinity", va="center", color=BACK, size=16)
        for low, high in ((4, 8), (8, 16)):
            end = min(high, top)
            step = _step(numbers, low)
            whole.text((low + end) / 2, 1.15, f"step {step:g}", ha="center", color=GREY)
        _marks(near, [one for one in numbers if one <= 2], n_subnormal)
        near.set(xlim=(-0.2 / 7, 2.02), ylim=(0, 1.55))
        near.set_xticks([0, 0.25, 0.5, 1, 2], ["0", "0.25", "0.5", "1", "2"])
        for low, high in ((0, 0.5), (0.5, 1), (1, 2)):
            step = _step(numbers, low)
            near.text((low + high) / 2, 1.15, f"step {step:g}", ha="center", color=GREY)
    return picture


def two_ills(numbers: Sequence[float], n_subnormal: int, dies: float, unheard: float) -> Picture:
    """Draw a small number that becomes 0, and 1 + `unheard`, which becomes 1 again."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        low, high = picture.subplots(2, 1)
        cases = (
            (low, 0.0, dies, 0.3, f"a gradient of {dies:g} becomes 0"),
            (high, 1.0, 1 + unheard, 2.02, f"a weight of 1, and an update of {unheard:g}: 1 again"),
        )
        for axes, left, value, right, words in cases:
            _marks(
                axes,
                [one for one in numbers if left <= one <= right],
                n_subnormal if not left else 0,
            )
            width = right - left
            axes.set(xlim=(left - 0.03 * width, right), ylim=(0, 2.6))
            axes.plot([value] * 2, [0, 1.35], color=BACK, lw=3)
            axes.add_patch(
                FancyArrowPatch(
                    (value, 1.35), (left, 1.05), arrowstyle="-|>", mutation_scale=20, color=BACK,
                    lw=2.5, shrinkA=0, shrinkB=0, connectionstyle="arc3,rad=0.35",
                )
            )  # fmt: skip
            axes.text(value + 0.015 * width, 1.5, words, color=BACK, size=18, va="bottom")
        for axes, ticks in (
            (low, [0, 0.0625, 0.125, 0.1875, 0.25]),
            (high, [1, 1.25, 1.5, 1.75, 2]),
        ):
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    return picture


def _marks(axes, numbers: Sequence[float], n_subnormal: int) -> None:
    colours = [SUBNORMAL if i < n_subnormal else NUMBER for i in range(len(numbers))]
    axes.vlines(numbers, 0, 1, color=colours, lw=3)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _step(numbers: Sequence[float], low: float) -> float:
    later = [one for one in numbers if one > low]
    return later[0] - low


def hills(hills: Mapping[str, tuple[Sequence[float], Sequence[int]]]) -> Picture:
    """Draw histograms of gradients: for each name the powers (n + 1 edges) and the counts (n)."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        for (name, (edges, counts)), colour in zip(hills.items(), OTHERS, strict=False):
            shares = 100 * np.asarray(counts) / np.sum(counts)
            axes.stairs(shares, edges, fill=True, color=colour, alpha=0.75, label=name)
        powers = range(-48, 9, 8)
        axes.set_xticks(powers, [f"$2^{{{power}}}$" for power in powers])
        axes.set_yticks([0, 5, 10, 15, 20])
        axes.set(xlabel="size of a gradient", ylabel="gradients (%)", xlim=(-48, 8))
        axes.legend(frameon=False, loc="upper right")
    return picture


def scale_path(scales: Sequence[float], ceilings: Sequence[float]) -> Picture:
    """Draw a loss scale over the steps, and the largest scale that would not overflow."""
    steps = np.arange(1, len(scales) + 1)
    skipped = steps[np.asarray(scales) > np.asarray(ceilings)]
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        top = np.log2(max(scales)) + 1
        axes.fill_between(steps, np.log2(ceilings), top, color="0.9", lw=0)
        axes.step(steps, np.log2(scales), where="post", color=OTHERS[0], lw=2.6, label="loss scale")
        crossed = np.log2(np.asarray(scales)[skipped - 1])
        axes.plot(skipped, crossed, "o", color=BACK, ms=9, label="overflow: this step is skipped")
        axes.text(0.5, 0.95, "here a gradient overflows", transform=axes.transAxes, ha="center",
                  va="top", color=GREY)  # fmt: skip
        low = int(np.floor(np.log2(min(scales)))) - 2
        ticks = range(low + low % 2, int(top) + 1, 2)
        axes.set_yticks(ticks, [f"$2^{{{power}}}$" for power in ticks])
        axes.set(xlabel="step", ylabel="loss scale", xlim=(0, len(scales)), ylim=(low, top))
        axes.legend(frameon=False, loc="lower right")
    return picture


def two_runs(losses: Mapping[str, Sequence[float]], chance: float) -> Picture:
    """Draw training losses over the steps, a line a name, and the loss of guessing."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        for (name, values), colour in zip(losses.items(), OTHERS, strict=False):
            axes.plot(range(1, len(values) + 1), values, "-", color=colour, lw=2.4, label=name)
        most = max(map(len, losses.values()))
        axes.axhline(chance, color=GREY, ls="--", lw=1.5)
        axes.text(most, 1.03 * chance, f"ln 10 = {chance:.2f}: guessing", ha="right", color=GREY)
        axes.set(xlabel="step", ylabel="training loss", xlim=(0, most), ylim=(0, 1.25 * chance))
        axes.legend(frameon=False, loc="lower left", fontsize=17)
    return picture


def half_gain(sizes_bytes: Sequence[float], gains: Sequence[float]) -> Picture:
    """Draw how many times as fast an all-reduce is with half of the bytes, over its size."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        places = (
            (1, sizes_bytes[-1], "right", "nothing gained "),
            (2, sizes_bytes[0], "left", " twice as fast"),
        )
        for level, x, side, words in places:
            axes.axhline(level, color=GREY, ls="--", lw=1.5)
            axes.text(x, level + 0.02, words, color=GREY, va="bottom", ha=side)
        axes.plot(sizes_bytes, gains, color=OTHERS[0], lw=3)
        axes.set(xscale="log", ylim=(0.95, 2.15), xlim=(sizes_bytes[0], sizes_bytes[-1]))
        axes.set_xticks([1e4, 1e5, 1e6, 1e7, 1e8, 1e9])
        axes.set_xticklabels(["10 kB", "100 kB", "1 MB", "10 MB", "100 MB", "1 GB"])
        axes.set_yticks([1, 1.5, 2])
        axes.minorticks_off()
        axes.set(xlabel="size of the gradient in FP32", ylabel="times as fast in FP16")
    return picture


def roofs(bytes_per_s: float, peaks: Mapping[str, float]) -> Picture:
    """Draw the roofs of a chip on log axes: its bandwidth, and a peak (FLOP/s) for each format."""
    left, right, unit = 0.5, 3000.0, 1e12
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        ridge = max(peaks.values()) / bytes_per_s
        ends = np.array([left, ridge])
        axes.plot(ends, bytes_per_s * ends / unit, color=GREY, lw=3)
        words = f"the memory: {bytes_per_s / 1e9:,.0f} GB/s"
        axes.text(5, 3, words, color=GREY, size=17)
        for (name, peak), colour in zip(peaks.items(), OTHERS, strict=False):
            axes.plot([peak / bytes_per_s, right], [peak / unit] * 2, color=colour, lw=3)
            words = f"{name}: {peak / unit:g} TFLOP/s"
            axes.text(right, 1.12 * peak / unit, words, color=colour, ha="right", size=17)
        axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(left, 1000))
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axes.minorticks_off()
        axes.set(xlabel="operations for each byte that is moved", ylabel="TFLOP/s")
    return picture


def mixed_loop() -> Picture:
    """Draw one step of mixed precision as a loop: what is FP32 in it, and what FP16."""
    todo = "the step, in FP32: unscale, clip,\nlook for inf, update. What first?"
    boxes = {
        "master": (0.0, 2.7, WIDE, "master weights\nFP32"),
        "copy": (4.3, 2.7, HALF, "copy of the weights\nFP16"),
        "loss": (8.6, 2.7, WIDE, "loss\nFP32"),
        "gradients": (8.6, 0.0, HALF, "gradients, times $S$\nFP16"),
        "step": (2.15, 0.0, WIDE, todo),
    }  # fmt: skip
    wide = {"step": 5.0}
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.set(xlim=(-0.2, 11.7), ylim=(-0.3, 4.3), aspect="equal")
        axes.axis("off")
        for name, (x, y, colour, words) in boxes.items():
            width = wide.get(name, 2.9)
            style = "round,pad=0,rounding_size=0.12"
            axes.add_patch(
                FancyBboxPatch((x, y), width, 1.15, boxstyle=style, fc=colour, ec="none")
            )
            axes.text(x + width / 2, y + 0.575, words, ha="center", va="center", size=15)
        arrows = (
            ((2.95, 3.27), (4.25, 3.27), "round", (3.6, 3.42)),
            ((7.25, 3.27), (8.55, 3.27), "forward", (7.9, 3.42)),
            ((10.05, 2.65), (10.05, 1.2), "times $S$, then backward", (9.9, 1.9)),
            ((8.55, 0.57), (7.2, 0.57), "to FP32", (7.88, 0.72)),
            ((2.1, 0.57), (1.45, 2.65), "new weights", (1.35, 1.45)),
        )
        for start, end, words, (x, y) in arrows:
            axes.add_patch(
                FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=20, lw=2.5,
                                color=COLOURS["backward"], shrinkA=0, shrinkB=0)
            )  # fmt: skip
            left = words.startswith(("times", "new"))
            axes.text(x, y, words, ha="right" if left else "center", color=GREY, size=15)
    return picture
