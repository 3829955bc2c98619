"""What limits a matrix product? Its place under the roof of a chip, on two logarithmic axes.

The slope is the memory's bandwidth, the flat parts are the peaks of the number formats. A point is
a product: its intensity to the right, its rate upwards. How far it lies below the roof is what
launches (predicted) or everything else (measured) cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib

from allhands.trace.draw import OTHERS, STYLE, Picture, new_picture

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
SCALES = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"))


@dataclass(frozen=True)
class Point:
    """A product under a roof. measured: None where only the prediction is known."""

    name: str
    roof: str
    intensity: float  # FLOP/byte
    predicted: float | None = None  # FLOP/s
    measured: float | None = None


@dataclass(frozen=True)
class Panel:
    """One chip: its bandwidth, the peaks by format, and products."""

    title: str
    bytes_per_s: float
    peaks: Mapping[str, float]
    points: Sequence[Point]


def rooflines(panels: Sequence[Panel], title: str = "") -> Picture:
    """Draw chips side by side. An open marker is predicted, a full one measured.

    Raises ValueError if a point names a roof that its chip does not have.
    """
    for panel in panels:
        for point in panel.points:
            if point.roof not in panel.peaks:
                raise ValueError(
                    f"{panel.title}: {point.name} is under the roof {point.roof!r}, but the chip "
                    f"has {', '.join(panel.peaks)}."
                )
    with matplotlib.rc_context(STYLE):
        figure = new_picture(5.6 * len(panels), 4.4)
        for axes, panel in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            _draw(axes, panel)
        if title:
            figure.suptitle(title, x=0.01, ha="left")
    return figure


def roofline(panel: Panel) -> Picture:
    """Draw one chip."""
    return rooflines([panel])


def _draw(axes, panel: Panel) -> None:
    highest = max(panel.peaks.values())
    scale, unit = next((s for s in SCALES if highest >= s[0]), SCALES[-1])
    colours = {roof: OTHERS[index % len(OTHERS)] for index, roof in enumerate(panel.peaks)}
    intensities = [point.intensity for point in panel.points]
    ridge = highest / panel.bytes_per_s
    left = min([0.3, *(0.5 * one for one in intensities)])
    right = 6 * max([ridge, *intensities])  # room for the names of the roofs
    slope = [panel.bytes_per_s * x / scale for x in (left, ridge)]
    axes.plot([left, ridge], slope, color="#777777", lw=1.6)
    axes.annotate(
        f"{panel.bytes_per_s / 1e9:.4g} GB/s",
        (left, slope[0]),
        xytext=(14, 2),
        textcoords="offset points",
        color="#555555",
        size=8,
    )
    for roof, peak in panel.peaks.items():
        flat = [peak / panel.bytes_per_s, right]
        axes.plot(flat, [peak / scale] * 2, color=colours[roof], lw=1.6)
        axes.annotate(
            f"{roof} {peak / scale:.3g}",
            (right, peak / scale),
            xytext=(-2, 3),
            textcoords="offset points",
            ha="right",
            color=colours[roof],
            size=8,
        )
    names = list(dict.fromkeys(point.name for point in panel.points))
    for point in panel.points:
        marker, colour = MARKERS[names.index(point.name) % len(MARKERS)], colours[point.roof]
        both = point.predicted is not None and point.measured is not None
        if both:
            ys = [point.predicted / scale, point.measured / scale]
            axes.plot([point.intensity] * 2, ys, color=colour, lw=0.7, zorder=2)
        for value, filled in ((point.predicted, False), (point.measured, True)):
            if value is not None:
                face = colour if filled else "white"
                style = {"marker": marker, "mec": colour, "mfc": face, "ls": "", "zorder": 3}
                axes.plot(point.intensity, value / scale, ms=6, **style)
    for index, name in enumerate(names):
        axes.plot([], [], MARKERS[index % len(MARKERS)], mec="#444444", mfc="white", label=name)
    axes.set(xscale="log", yscale="log", xlabel="intensity (FLOP/byte)", ylabel=unit)
    axes.set_title(panel.title, size=10)
    if names:
        axes.legend(frameon=False, fontsize=7.5, loc="lower right", labelspacing=0.25)
