"""Curves that open labs 0 to 2: measured runs and small models, in the type of a slide."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np

from allhands.trace.draw import OTHERS, Picture, new_picture
from allhands.trace.talks.canvas import GREY, SIZE, SLIDE


def from_afar(sizes_bytes: Sequence[float], times_s: Sequence[float], line: Callable) -> Picture:
    """Draw the time of a message over its size, both axes linear; line(bytes) is in seconds."""
    sizes = np.asarray(sizes_bytes, float)
    with matplotlib.rc_context(SLIDE):
        picture, axes = _axes()
        ends = np.array([0, sizes.max()])
        axes.plot(ends / 1e6, 1e3 * line(ends), "-", color=OTHERS[1], lw=2, label="$a + b\\,s$")
        times_ms = 1e3 * np.asarray(times_s)
        axes.plot(sizes / 1e6, times_ms, "o", color=OTHERS[0], ms=10, label="measured")
        axes.set(xlabel="size (MB)", ylabel="time of one message (ms)", xlim=(-0.08, None))
        axes.set_ylim(bottom=-1)
        axes.annotate(
            "eight of the sizes are here", (0.06, 0.6), (0.75, 1.2), color=GREY, va="center",
            arrowprops={"arrowstyle": "-|>", "color": GREY},
        )  # fmt: skip
        axes.legend(frameon=False, loc="upper left")
    return picture


def first_updates(losses: Mapping[str, Sequence[float]], n_target: int, most: int) -> Picture:
    """Draw the first `most` losses per token of some runs, and the level ln(n_target)."""
    with matplotlib.rc_context(SLIDE):
        picture, axes = _axes()
        for (name, values), colour in zip(losses.items(), OTHERS, strict=False):
            axes.plot(range(1, most + 1), values[:most], "-", color=colour, lw=2, label=name)
        level = float(np.log(n_target))
        axes.axhline(level, color=GREY, ls="--", lw=1.5)
        words = f"ln {n_target} = {level:.2f}: all tokens equally likely"
        axes.text(most, level + 0.06, words, ha="right", color=GREY)
        axes.set(xlabel="update", ylabel="training loss per token", xlim=(0, most), ylim=(0, 4))
        axes.legend(frameon=False, loc="lower left")
    return picture


def two_losses(losses: Mapping[str, Sequence[float]]) -> Picture:
    """Draw losses over updates, a line a name, on a logarithmic axis."""
    with matplotlib.rc_context(SLIDE):
        picture, axes = _axes()
        for (name, values), colour in zip(losses.items(), OTHERS, strict=False):
            axes.plot(range(1, len(values) + 1), values, "-", color=colour, lw=2.4, label=name)
        axes.set(xlabel="update", ylabel="training loss per token", yscale="log")
        axes.set(xlim=(0, max(map(len, losses.values()))), ylim=(5e-4, 5))
        axes.set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
        axes.minorticks_off()
        axes.legend(frameon=False, loc="upper right", fontsize=17)
    return picture


def costs(sizes_bytes: Sequence[float], lines_s: Mapping[str, Sequence[float]]) -> Picture:
    """Draw predicted times over the size of the array, both axes logarithmic."""
    with matplotlib.rc_context(SLIDE):
        picture, axes = _axes()
        for (name, values_s), colour in zip(lines_s.items(), OTHERS, strict=False):
            axes.plot(sizes_bytes, values_s, color=colour, lw=2.6, label=name)
        axes.set(xscale="log", yscale="log", xlabel="size of the array")
        axes.set_ylabel("time of one all-reduce")
        axes.set_xticks([1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8])
        axes.set_xticklabels(["100 B", "1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB"])
        axes.set_yticks([1e-3, 1e-2, 1e-1, 1], ["1 ms", "10 ms", "100 ms", "1 s"])
        axes.minorticks_off()
        axes.legend(frameon=False, loc="upper left")
    return picture


def amdahl(shares: Sequence[float], most: int = 64) -> Picture:
    """Draw Amdahl's law, 1 / (share + (1 - share) / N), for some serial shares."""
    ranks = np.geomspace(1, most, 60)
    ticks = [2**k for k in range(most.bit_length())]
    with matplotlib.rc_context(SLIDE):
        picture, axes = _axes()
        for share, colour in zip(shares, ("0.6", *OTHERS), strict=False):
            speedups = 1 / (share + (1 - share) / ranks)
            axes.plot(ranks, speedups, color=colour, lw=2.4)
            words = f"{100 * share:.0f} % serial: {speedups[-1]:.1f}" if share else "ideal"
            axes.text(1.06 * most, speedups[-1], words, color=colour, va="center")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(ticks, [str(one) for one in ticks])
        axes.set_yticks(ticks, [str(one) for one in ticks])
        axes.minorticks_off()
        axes.set(xlabel="ranks", ylabel="speed-up", xlim=(1, 3 * most), ylim=(1, 1.3 * most))
        axes.spines["bottom"].set_bounds(1, most)
    return picture


def core_shares(shares: Mapping[int, float], cores: int) -> Picture:
    """Draw which share of a core each rank had, a bar for each number of ranks."""
    with matplotlib.rc_context(SLIDE):
        picture, axes = _axes()
        names = [f"{ranks} rank{'s' if ranks > 1 else ''}" for ranks in shares]
        colours = [OTHERS[0] if ranks <= cores else OTHERS[1] for ranks in shares]
        bars = axes.barh(names, [100 * share for share in shares.values()], 0.6, color=colours)
        axes.bar_label(
            bars, [f"{100 * share:.0f} %" for share in shares.values()], padding=6, size=18
        )
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0, labelsize=17)
        axes.set(xlabel="share of a core that a rank had (%)", xlim=(0, 112))
        axes.set_xticks(range(0, 101, 25))
    return picture


def _axes() -> tuple[Picture, matplotlib.axes.Axes]:
    picture = new_picture(*SIZE)
    return picture, picture.add_subplot()
