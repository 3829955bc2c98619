"""Pictures that open lab 4: when gradients are ready, what a message costs, what a rule looks at.

What is shown comes as arguments, in seconds and bytes; type is that of a slide.
"""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.patches import FancyBboxPatch, Patch

from allhands.trace.draw import COLOURS, OTHERS, Picture, new_picture
from allhands.trace.talks.canvas import GREY, SIZE, SLIDE

COMPUTE, SEND, STARTUP = COLOURS["forward"], COLOURS["communicate"], "#F0E442"


def arrivals(
    ready_s: Sequence[float], n_bytes: Sequence[float], forward_s: float, s_per_byte: float
) -> Picture:
    """Draw the bytes that are ready over time, and those that a link without start-ups carried."""
    ready_ms, held_mb = 1e3 * np.asarray(ready_s), np.cumsum(n_bytes) / 1e6
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.axvspan(0, 1e3 * forward_s, color="0.93", lw=0)
        axes.axvline(ready_ms[-1], color=GREY, lw=1.5, ls="--")
        through_ms = ready_ms[0] + 1e3 * s_per_byte * held_mb[-1] * 1e6
        times_ms, all_mb = [*ready_ms, through_ms], [*held_mb, held_mb[-1]]
        axes.step(times_ms, all_mb, where="post", color=OTHERS[0], lw=2.8)
        axes.plot([ready_ms[0], through_ms], [0, held_mb[-1]], color=SEND, lw=2.8)
        middle_ms = (ready_ms[0] + through_ms) / 2
        half = {"size": 17, "va": "center"}
        axes.text(
            0.68 * middle_ms, 0.62 * held_mb[-1], "ready", color=OTHERS[0], ha="right", **half
        )
        words = "sent, if a message\nhad no start-up"
        axes.text(1.03 * middle_ms, 0.4 * held_mb[-1], words, color=SEND, **half)
        top = 1.12 * held_mb[-1]
        axes.text(500 * forward_s, 0.93 * top, "forward", ha="center", color=GREY)
        middle = (1e3 * forward_s + ready_ms[-1]) / 2
        axes.text(middle, 0.93 * top, "backward", ha="center", color=GREY)
        axes.set(
            xlabel="time (ms)", ylabel="gradients (MB)", xlim=(0, 1.04 * through_ms), ylim=(0, top)
        )
    return picture


def message_times(sizes_bytes: Sequence[float], times_s: Sequence[float]) -> Picture:
    """Draw measured times of an all-reduce over its size, both axes logarithmic."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.plot(sizes_bytes, 1e6 * np.asarray(times_s), "o", color=OTHERS[0], ms=7, alpha=0.7)
        axes.set(xscale="log", yscale="log", xlabel="size of the array", ylabel="time (µs)")
        axes.set_xticks([10, 100, 1e3, 1e4, 1e5, 1e6])
        axes.set_xticklabels(["10 B", "100 B", "1 kB", "10 kB", "100 kB", "1 MB"])
        axes.set_yticks([100, 1000], ["100", "1,000"])
        axes.set_ylim(40, 8000)
        axes.minorticks_off()
        axes.grid(color="0.9")
    return picture


def messages(
    ready_s: Sequence[float], starts_s: Sequence[float], ends_s: Sequence[float], startup_s: float
) -> Picture:
    """Draw a backward pass, and below it each message of a plan: its start-up and its bytes.

    One group for each gradient; the bars carry their numbers.
    """
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        begins_s = [0.0, *ready_s[:-1]]
        for i, (begin_s, end_s) in enumerate(zip(begins_s, ready_s, strict=True)):
            _bar(axes, 0, begin_s, end_s, COMPUTE)
            axes.plot([end_s] * 2, [-0.62, 0.42], color=OTHERS[0], lw=2)
            axes.text(end_s, -0.68, f"{i} is ready", ha="center", color=OTHERS[0], size=15)
        for i, (start_s, end_s) in enumerate(zip(starts_s, ends_s, strict=True)):
            _bar(axes, 1.3, start_s, start_s + startup_s, STARTUP)
            _bar(axes, 1.3, start_s + startup_s, end_s, SEND)
            axes.text(start_s + startup_s / 2, 1.3, f"{i}", ha="center", va="center", size=18)
        axes.set_yticks([0, 1.3], ["backward", "link"], size=17)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        axes.set(ylim=(1.95, -1.05), xlim=(-1.2, ends_s[-1] + 0.5), xlabel="time (s)")
        axes.set_xticks(range(0, int(ends_s[-1]) + 1, 3))
        handles = [Patch(color=STARTUP, label="start-up"), Patch(color=SEND, label="bytes")]
        picture.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return picture


def looks_ahead(startup_s: float = 3.0) -> Picture:
    """Draw the two answers of a rule that looks one gradient ahead, within one start-up."""
    cases = (
        (2.0, "within one start-up: wait for it, and merge"),
        (4.2, "later: send what is there"),
    )
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.set(xlim=(-2.4, 11.5), ylim=(4.6, -0.7))
        axes.axis("off")
        for row, (next_s, words) in enumerate(cases):
            y = 2.5 * row + 0.6
            axes.annotate(
                "",
                (9.0, y),
                (-2.2, y),
                zorder=0,
                arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.5},
            )
            axes.barh(y, startup_s, left=0, height=0.5, color=STARTUP)
            axes.text(0.15, y, "start-up", va="center", size=15)
            axes.plot([0, 0], [y - 0.5, y + 0.5], color=OTHERS[0], lw=3)
            axes.text(0, y - 0.62, "this one could start", ha="center", color=OTHERS[0], size=16)
            axes.plot([next_s] * 2, [y - 0.5, y + 0.5], color=SEND, lw=3)
            axes.text(
                next_s, y + 0.8, f"the next one is ready {words}", color=SEND, size=16, ha="left"
            )
        axes.text(9.1, 0.6, "time", color=GREY, va="center")
    return picture


def gaps(ready_s: Sequence[float], startups_s: dict[str, float], most_ms: float) -> Picture:
    """Draw how long after each gradient the next one is ready, and start-ups as lines.

    Bars above `most_ms` are cut off there, and carry an arrow.
    """
    gaps_ms = 1e3 * np.diff(ready_s)
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.bar(np.arange(len(gaps_ms)), gaps_ms, width=0.8, color=COLOURS["backward"])
        for i in np.flatnonzero(gaps_ms > most_ms):
            axes.text(i, 1.01 * most_ms, "↑", ha="center", size=17, color=COLOURS["backward"])
        for (name, startup_s), colour in zip(startups_s.items(), OTHERS[1:], strict=False):
            axes.axhline(1e3 * startup_s, color=colour, lw=2.4, label=name)
        axes.set(xlabel="gradient, in order of arrival", ylabel="until the next one (ms)")
        axes.set(ylim=(0, most_ms), xlim=(-1, len(gaps_ms)))
        axes.legend(frameon=False, loc="upper left", fontsize=17)
    return picture


def plans(cuts: Sequence[tuple[Sequence[Sequence[int]], str]]) -> Picture:
    """Draw plans below each other: a box for each message, with the gradients that are in it.

    cuts: for each plan its groups and some words, as ([[0, 1], [2]], "two messages").
    """
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.set(xlim=(-0.3, 10.2), ylim=(len(cuts) - 0.3, -0.7))
        axes.axis("off")
        for row, (groups, words) in enumerate(cuts):
            for group in groups:
                left, width = 1.8 * group[0], 1.8 * len(group) - 0.3
                style = "round,pad=0,rounding_size=0.12"
                box = ((left, row - 0.3), width, 0.6)
                axes.add_patch(FancyBboxPatch(*box, boxstyle=style, fc=SEND, ec="none"))
                for i in group:
                    axes.text(1.8 * i + 0.75, row, f"{i}", ha="center", va="center", color="white",
                              size=20)  # fmt: skip
            axes.text(5.7, row, words, va="center", size=18)
    return picture


def efficiency(
    workers: Sequence[int], shares: Mapping[str, Sequence[float]], bound: Sequence[float]
) -> Picture:
    """Draw the share of the ideal speed-up over the workers for some plans, and a bound for all."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.plot(workers, bound, color="black", lw=2.4, ls="--", label="no plan can be better")
        for (name, values), colour in zip(shares.items(), OTHERS, strict=False):
            axes.plot(workers, values, "o-", color=colour, lw=2.6, ms=8, label=name)
        axes.set_xscale("log")
        axes.set_xticks(workers, [f"{one:,}" for one in workers])
        axes.minorticks_off()
        axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
        axes.set(xlabel="workers", ylabel="share of the ideal speed-up", ylim=(-0.02, 1.04))
        axes.legend(frameon=False, loc="lower left", fontsize=17)
    return picture


def _bar(axes, y: float, start_s: float, end_s: float, colour: str) -> None:
    axes.barh(y, end_s - start_s, left=start_s, height=0.8, color=colour, edgecolor="white", lw=1)
