"""A link as a picture: measured times over the size of a message, and the line that was fitted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import matplotlib
import numpy as np

from allhands.trace import draw


class Line(Protocol):
    """T(s) = startup_s + s_per_byte * s, such as mgwfbp's AffineCost."""

    startup_s: float
    s_per_byte: float


@dataclass(frozen=True)
class Measured:
    """sizes in bytes and times in seconds, (n,) each; line: what was fitted, None for no line."""

    sizes_bytes: Sequence[float]
    times_s: Sequence[float]
    line: Line | None = None


def link(links: Mapping[str, Measured], title: str = "") -> draw.Picture:
    """Draw each link by its name: points, its line, and a tick where the bytes take half the time.

    Both axes are logarithmic. Left of the tick the start-up a takes most of the time, right of it
    the bytes do: it stands at a/b bytes, if that size is within the measured ones.
    """
    with matplotlib.rc_context(draw.STYLE):
        picture = draw.new_picture(8, 4.0)
        axes = picture.add_subplot()
        for (name, one), colour in zip(links.items(), draw._cycle(len(links)), strict=True):
            sizes = np.asarray(one.sizes_bytes, float)
            axes.plot(sizes, 1e6 * np.asarray(one.times_s), "o", color=colour, ms=5, label=name)
            if one.line is None:
                continue
            fine = np.geomspace(sizes.min(), sizes.max(), 200)
            a_s, b_s = one.line.startup_s, one.line.s_per_byte
            axes.plot(fine, 1e6 * (a_s + b_s * fine), "-", color=colour, lw=1.2)
            if b_s > 0 and sizes.min() < a_s / b_s < sizes.max():
                half = a_s / b_s
                axes.plot([half] * 2, [1e6 * a_s, 2e6 * a_s], ":", color=colour, lw=1.5)
                about = f"a/b = {float(f'{half:.2g}'):,.0f} bytes"
                axes.text(1.2 * half, a_s * 1e6, about, va="center", size=9, color=colour)
        axes.set(xscale="log", yscale="log", xlabel="size (bytes)", ylabel="time (us)")
        axes.set_title(title)
        axes.legend(frameon=False, loc="upper left")
    return picture
