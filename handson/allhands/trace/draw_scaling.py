"""The speed-up as a picture: what was measured, what would be ideal, where the time goes."""

from collections.abc import Iterable, Mapping, Sequence

import matplotlib
import numpy as np

from allhands.trace import draw
from allhands.trace.events import Event
from allhands.trace.scaling import Fit, SpeedUp, split_waits

LAWS = {"amdahl": "Amdahl", "gustafson": "Gustafson"}


def speedup(
    points: Sequence[SpeedUp] | Mapping[str, Sequence[SpeedUp]],
    fit: Fit | None = None,
    title: str = "",
    *,
    fitted: str = "",
    cores: int | None = None,
) -> draw.Picture:
    """Draw speed-up over ranks: points with their range over rounds, the ideal line, a fitted law.

    points: of one measurement, or of several by name (`{"weak": ..., "strong": ...}`). fit: the law
    that is drawn as a dashed line; fitted: what it was fitted to, such as "strong, 2 ranks". cores:
    beyond that many ranks the ground is grey, because ranks then share cores.
    """
    series = points if isinstance(points, Mapping) else {"measured": points}
    most = max(point.ranks for its_points in series.values() for point in its_points)
    with matplotlib.rc_context(draw.STYLE):
        figure = draw.new_picture(5.6, 4.6)
        axes = figure.add_subplot()
        axes.plot([1, most], [1, most], color="#999999", lw=1, label="ideal")
        for number, (name, its_points) in enumerate(series.items()):
            medians = np.array([point.median for point in its_points])
            below = medians - [point.lowest for point in its_points]
            above = np.array([point.highest for point in its_points]) - medians
            apart = 0.04 * (number - (len(series) - 1) / 2)  # or one range hides the other
            axes.errorbar(
                [point.ranks + apart for point in its_points], medians, yerr=[below, above],
                fmt="os^D"[number % 4], ms=5, color=draw.OTHERS[number], capsize=3, label=name,
            )  # fmt: skip
        if fit is not None:
            ranks = np.linspace(1, most, 100)
            to = f" (fitted to {fitted})" if fitted else ""
            label = f"{LAWS[fit.law]}{to}, serial share {fit.serial:.1%}"
            axes.plot(
                ranks, [fit.speedup(n) for n in ranks], "--", color="black", lw=1, label=label
            )
        axes.set(xlabel="ranks", ylabel="speed-up", xticks=range(1, most + 1))
        axes.set_xlim(0.8, most + 0.2)
        axes.set_ylim(bottom=0)
        if cores is not None and most > cores:
            axes.axvspan(
                cores + 0.5, most + 0.2, color="#EEEEEE", zorder=0, label="ranks share cores"
            )
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
        axes.set_title(title)
    return figure


def side_by_side(
    events: Iterable[Event], title: str = "", *, unit: str = "ms", waits: bool = True
) -> draw.Picture:
    """Draw one row a rank: what it does when, all kinds of work in a row, with a legend.

    Time starts at the first event's start. With `waits` each `communicate` is cut where the last
    rank has entered (`scaling.split_waits`). Events that lie inside others hide them.
    """
    events = split_waits(events) if waits else sorted(events)
    if not events:
        raise ValueError("There is nothing to draw: expected at least one event.")
    scale = {"ms": 1e3, "s": 1.0}[unit]
    ranks = sorted({event.rank for event in events})
    kinds = list(dict.fromkeys(event.what for event in events))
    kinds.sort(key=list(draw.COLOURS).index)
    zero_s = events[0].start_s
    with matplotlib.rc_context(draw.STYLE):
        figure = draw.new_picture(9, 1.3 + 0.5 * len(ranks))
        axes = figure.add_subplot()
        for event in events:
            axes.barh(
                ranks.index(event.rank), event.duration_s * scale, height=0.7,
                left=(event.start_s - zero_s) * scale, color=draw.COLOURS[event.what], lw=0,
            )  # fmt: skip
        for kind in kinds:
            axes.barh(0, 0, color=draw.COLOURS[kind], label=kind)
        axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
        axes.invert_yaxis()
        axes.set_xlabel(f"time ({unit})")
        figure.legend(frameon=False, ncols=len(kinds), loc="outside upper right", fontsize=9)
        axes.set_title(title)
    return figure
