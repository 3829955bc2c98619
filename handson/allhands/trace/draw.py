"""Every figure of the course, drawn from what runs wrote; the same call serves notebook and slide.

Each function returns a new figure, which a notebook shows by itself. `save_svg` writes the same
bytes for the same figure. Colours are Okabe and Ito's, which people with colour blindness can tell
apart.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.figure import Figure

from allhands.trace.events import Event
from allhands.trace.summary import Metrics, Spent

COLOURS = {
    "batch": "#999999",
    "forward": "#56B4E9",
    "backward": "#0072B2",
    "update": "#009E73",
    "communicate": "#D55E00",
    "wait": "#F0E442",
    "evaluate": "#CC79A7",
    "snapshot": "#E69F00",
    "idle": "#DDDDDD",
}
OTHERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLE = {
    "font.family": ["DejaVu Sans", "IPAexGothic"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "svg.fonttype": "path",
    "svg.hashsalt": "allhands",
}


def _japanese_font() -> None:
    """Make a Japanese font known to matplotlib, without the package's change of the defaults."""
    if "IPAexGothic" not in font_manager.fontManager.get_font_names():
        from importlib.util import find_spec

        package = Path(find_spec("matplotlib_fontja").origin).parent
        font_manager.fontManager.addfont(str(package / "fonts" / "ipaexg.ttf"))


class Picture(Figure):
    """A matplotlib figure that a notebook shows without any setting of matplotlib's."""

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(png, format="png", dpi=110)
        return png.getvalue()


def new_picture(width: float, height: float) -> Picture:
    """Return an empty picture of that size in inches, whose text may be Japanese."""
    _japanese_font()
    return Picture(figsize=(width, height), layout="constrained")


def gantt(events: Iterable[Event], title: str = "", *, unit: str = "ms") -> Picture:
    """Draw events as bars over time: one row a rank and kind of work, in order of first start.

    Time starts at the first event's start; `unit` is `ms` or `s`. The name of a named event is
    written in its bar where there is room.
    """
    events = sorted(events)
    if not events:
        raise ValueError("There is nothing to draw: expected at least one event.")
    scale = {"ms": 1e3, "s": 1.0}[unit]
    ranks = sorted({event.rank for event in events})
    rows = {}
    for event in events:
        rows.setdefault((event.rank, event.what), None)
    order = sorted(rows, key=lambda row: row[0])  # stable: within a rank, by first start
    zero_s, end_s = events[0].start_s, max(event.end_s for event in events)
    with matplotlib.rc_context(STYLE):
        figure = new_picture(9, 0.9 + 0.32 * len(order))
        axes = figure.add_subplot()
        for event in events:
            row = order.index((event.rank, event.what))
            left, width = (event.start_s - zero_s) * scale, event.duration_s * scale
            colour = COLOURS.get(event.what, OTHERS[-1])
            axes.barh(row, width, left=left, height=0.8, color=colour, edgecolor="white", lw=0.4)
            if event.name and event.duration_s > 0.012 * len(event.name) * (end_s - zero_s):
                axes.text(left + width / 2, row, event.name, ha="center", va="center", size=7)
        labels = [what if len(ranks) == 1 else f"rank {rank} {what}" for rank, what in order]
        axes.set_yticks(range(len(order)), labels)
        axes.invert_yaxis()
        axes.set_xlabel(f"time ({unit})")
        axes.set_title(title)
    return figure


def time_shares(spent: Sequence[Spent], title: str = "", *, most: int = 10) -> Picture:
    """Draw where the time went: a bar for each kind of work, the longest on top."""
    shown = list(spent)[:most]
    with matplotlib.rc_context(STYLE):
        figure = new_picture(7, 0.9 + 0.3 * len(shown))
        axes = figure.add_subplot()
        colours = [COLOURS.get(one.label.split()[0], OTHERS[-1]) for one in shown]
        bars = axes.barh(
            [one.label for one in shown], [one.total_s for one in shown], color=colours
        )
        axes.bar_label(bars, [f"{one.share:.0%} ({one.count}×)" for one in shown], padding=3)
        axes.invert_yaxis()
        axes.set_xlabel("time (s)")
        axes.margins(x=0.15)
        axes.set_title(title)
    return figure


def learning_curve(runs: Mapping[str, Metrics], title: str = "") -> Picture:
    """Draw loss per token (left) and exact match (right) over updates, a line a run."""
    with matplotlib.rc_context(STYLE):
        figure = new_picture(9, 3.2)
        left, right = figure.subplots(1, 2)
        for (name, metrics), colour in zip(runs.items(), _cycle(len(runs)), strict=True):
            updates = [line["update"] for line in metrics.updates]
            left.plot(updates, metrics.losses, color=colour, lw=0.8, label=name)
            right.plot(
                [line["update"] for line in metrics.evaluations],
                [line["valid_exact_match"] for line in metrics.evaluations],
                "o-", color=colour, ms=4, label=name,
            )  # fmt: skip
        left.set(xlabel="update", ylabel="training loss per token", yscale="log")
        right.set(xlabel="update", ylabel="exact match on validation (%)", ylim=(-3, 103))
        left.legend(frameon=False)
        left.set_title(title)
    return figure


def alignment(matrix_ts: np.ndarray, source: Sequence[str], target: Sequence[str]) -> Picture:
    """Draw the attention of each target token (row) over the source tokens (columns), 0 to 1."""
    with matplotlib.rc_context(STYLE):
        figure = new_picture(1.5 + 0.45 * len(source), 1.2 + 0.3 * len(target))
        axes = figure.add_subplot()
        axes.imshow(matrix_ts, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor")
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(target)), target)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def _cycle(n: int) -> list[str]:
    return [OTHERS[i % len(OTHERS)] for i in range(n)]


def save_svg(figure: Figure, path: Path) -> None:
    """Write a figure as SVG; the same figure gives the same bytes."""
    with matplotlib.rc_context(STYLE):
        figure.savefig(path, format="svg", metadata={"Date": None})


def curves(
    x_values: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    title: str = "",
    *,
    x: str,
    y: str,
    y_max: float | None = None,
    markers: bool = False,
) -> Picture:
    """Draw lines by their names over a logarithmic x axis; `x` and `y` name the axes."""
    with matplotlib.rc_context(STYLE):
        figure = new_picture(8, 3.4)
        axes = figure.add_subplot()
        for (name, values), colour in zip(lines.items(), _cycle(len(lines)), strict=True):
            axes.plot(x_values, values, "o-" if markers else "-", color=colour, ms=4, label=name)
        axes.set(xscale="log", xlabel=x, ylabel=y)
        axes.set_ylim(top=y_max)
        axes.set_title(title)
        axes.legend(frameon=False)
    return figure


def points(clouds: Mapping[str, np.ndarray], title: str = "") -> Picture:
    """Draw clouds of points, each of shape (n, 2), side by side on the same axes."""
    with matplotlib.rc_context(STYLE):
        figure = new_picture(2.6 * len(clouds), 3.0)
        row = figure.subplots(1, len(clouds), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, cloud) in zip(row, clouds.items(), strict=True):
            axes.plot(*np.asarray(cloud).T, ".", color=OTHERS[0], ms=1.5, alpha=0.5)
            axes.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal", title=name)
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def timelines(
    plans: Mapping[str, Sequence[Event]], title: str = "", *, unit: str = "ms"
) -> Picture:
    """Draw plans below each other on one time axis: for each, what is computed and what is sent."""
    scale = {"ms": 1e3, "s": 1.0}[unit]
    with matplotlib.rc_context(STYLE):
        figure = new_picture(9, 0.9 + 0.75 * len(plans))
        axes = figure.add_subplot()
        for number, events in enumerate(plans.values()):
            for event in events:
                row = {"forward": 0.0, "backward": 0.0, "communicate": 0.4}.get(event.what)
                if row is None:
                    continue
                axes.barh(
                    number + row, event.duration_s * scale, left=event.start_s * scale, height=0.36,
                    color=COLOURS[event.what], edgecolor="white", lw=0.4,
                )  # fmt: skip
            end = max(event.end_s for event in events) * scale
            axes.text(end, number + 0.4, f" {end:.4g} {unit}", va="center", size=8)
        axes.set_yticks([number + 0.2 for number in range(len(plans))], list(plans))
        for what in ("forward", "backward", "communicate"):
            axes.barh(0, 0, color=COLOURS[what], label=what)
        axes.legend(frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, 1.16))
        axes.invert_yaxis()
        axes.margins(x=0.08)
        axes.set_xlabel(f"time ({unit})")
        axes.set_title(title, loc="right")
    return figure
