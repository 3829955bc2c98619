"""A picture of the abort race: which ranks still print their error when the first one ends the job?

Nothing in it was measured: it is drawn from three numbers (the time between two ranks, the time
that a traceback takes, the wait before the abort), in seconds.
"""

from collections.abc import Sequence

import matplotlib
from matplotlib.patches import Patch

from allhands.trace.draw import STYLE, Picture, new_picture

RUNS, WRITES, WAITS, ABORT = "0.85", "#0072B2", "#E69F00", "#D55E00"
BAR = {"height": 0.62, "edgecolor": "white", "lw": 0.4}


def race(spread_s: float, writes_s: float, waits_s: Sequence[float], ranks: int = 4) -> Picture:
    """One panel for each wait before the abort: when does each rank write, and what is left of it?

    Rank r meets the same fault r * spread_s after rank 0, writes for `writes_s`, and aborts the job
    `wait_s` later. Beyond the abort there is nothing.
    """
    with matplotlib.rc_context(STYLE):
        picture = new_picture(10.0, 1.3 + 0.42 * ranks)
        panels = picture.subplots(1, len(waits_s), sharey=True, squeeze=False)[0]
        for axes, wait_s in zip(panels, waits_s, strict=True):
            _panel(axes, spread_s, writes_s, wait_s, ranks)
        panels[0].set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
        panels[0].invert_yaxis()
        colours = {"works": RUNS, "writes its traceback": WRITES}
        if any(waits_s):
            colours["waits for the others"] = WAITS
        handles = [Patch(color=colour, label=what) for what, colour in colours.items()]
        picture.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return picture


def left_of(rank: int, spread_s: float, writes_s: float, wait_s: float) -> str:
    """What is left of a rank's traceback: "whole", "cut" or "silent"."""
    abort_s, begins_s = writes_s + wait_s, rank * spread_s
    if begins_s + writes_s <= abort_s:
        return "whole"
    return "cut" if begins_s < abort_s else "silent"


def _panel(axes, spread_s: float, writes_s: float, wait_s: float, ranks: int) -> None:
    lead_s = spread_s  # what is shown of the time before rank 0 meets the fault
    abort_s = writes_s + wait_s
    n_whole = 0
    for rank in range(ranks):
        begins_s = rank * spread_s
        ends_s = begins_s + writes_s
        axes.barh(rank, min(begins_s, abort_s) + lead_s, left=-lead_s, color=RUNS, **BAR)
        if begins_s < abort_s:
            axes.barh(rank, min(ends_s, abort_s) - begins_s, left=begins_s, color=WRITES, **BAR)
        if ends_s < abort_s:
            axes.barh(rank, abort_s - ends_s, left=ends_s, color=WAITS, **BAR)
        found = left_of(rank, spread_s, writes_s, wait_s)
        n_whole += found == "whole"
        axes.text(abort_s + 0.15 * spread_s, rank, found, va="center")
    axes.axvline(abort_s, color=ABORT, lw=1.8)
    axes.text(abort_s, -0.62, "rank 0 aborts the job", color=ABORT, ha="center", size=8)
    when = f"waits {wait_s:g} s, then aborts" if wait_s else "aborts at once"
    axes.set_title(f"{when}: {n_whole} of {ranks} tracebacks", pad=16)
    axes.set_xlim(-lead_s, abort_s + 1.6 * spread_s)
    axes.set_xlabel("time since rank 0 met the fault (s)")
