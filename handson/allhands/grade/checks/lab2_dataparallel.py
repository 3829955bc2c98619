"""The checks of lab 2: one function for each exercise, named by its id.

The all-reduces by hand have a file of their own, and so have the eight edits. Figures are computed
again from what the participant measured.
"""

from collections.abc import Mapping, Sequence

from allhands.grade.check import Marker, likely, show
from allhands.grade.checks.lab2_dataparallel_by_hand import doubling, link, numbers, ring
from allhands.grade.checks.lab2_dataparallel_edits import (
    devices,
    metrics,
    report,
    resume,
    same_answer,
    shard,
)
from allhands.trace import scaling
from allhands.trace.events import Event
from allhands.trace.scaling import Measured
from allhands.trace.summary import time_by

__all__ = [
    "devices",
    "doubling",
    "link",
    "metrics",
    "report",
    "resume",
    "ring",
    "same_answer",
    "shard",
    "speedup",
]


def speedup(
    mark: Marker,
    mine: Mapping,
    weak: Sequence[Measured],
    strong: Sequence[Measured],
    events: Sequence[Event],
) -> None:
    keys = ("weak", "strong", "efficiency", "communicate")
    got = numbers(mark, mine, keys)
    ranges = {}
    for mode, measured in (("weak", weak), ("strong", strong)):
        two = next(one for one in scaling.speedups(measured) if one.ranks == 2)
        by_rank = {one.ranks: one.median_samples_per_s for one in measured}
        either = (two.median, by_rank[2] / by_rank[1])  # both ways to take the median are right
        ranges[mode] = (0.99 * min(either), 1.01 * max(either))

    def inside(value: float, mode: str) -> bool:
        return ranges[mode][0] <= value <= ranges[mode][1]

    wrong = [mode for mode in ("weak", "strong") if not inside(got[mode], mode)]
    steps = {"weak": weak, "strong": strong}[wrong[0]] if wrong else weak
    by_time = {one.ranks: one.median_step_s for one in steps}
    mark.require(
        not wrong,
        1,
        "both speed-ups: samples per second on two ranks, divided by those on one",
        ", ".join(f"{mode}: {show(got[mode])}" for mode in wrong),
        likely(
            (
                len(wrong) == 2 and inside(got["weak"], "strong"),
                "weak and strong have changed places",
            ),
            (bool(wrong) and inside(2 * got[wrong[0]], wrong[0]), "that is the efficiency"),
            (
                bool(wrong) and inside(1 / got[wrong[0]], wrong[0]),
                "two ranks / one, not one / two",
            ),
            (
                bool(wrong) and abs(got[wrong[0]] - by_time[1] / by_time[2]) < 0.02,
                "that is a ratio of step times; in weak scaling two ranks do twice the work in a "
                "step: take samples per second",
            ),
            otherwise="weak[1].median_samples_per_s / weak[0].median_samples_per_s",
        ),
    )
    mark.require(
        inside(2 * got["efficiency"], "strong"),
        1,
        "the efficiency of strong scaling: its speed-up divided by 2 ranks",
        show(got["efficiency"]),
        likely(
            (inside(got["efficiency"] / 50, "strong"), "give a share, not percent"),
            (inside(2 * got["efficiency"], "weak"), "that is the efficiency of weak scaling"),
            (inside(got["efficiency"], "strong"), "that is the speed-up; divide by 2"),
            otherwise="speed-up / number of ranks",
        ),
    )
    share = next((one.share for one in time_by(events) if one.label == "communicate"), 0.0)
    total_s = sum(one.duration_s for one in events if one.what == "communicate")
    mark.require(
        abs(got["communicate"] - share) < 0.002,
        1,
        "the share of `communicate` in the time of all events of `steps`",
        show(got["communicate"]),
        likely(
            (abs(got["communicate"] - 100 * share) < 0.2, "give a share, not percent"),
            (abs(got["communicate"] - total_s) < 0.01 * total_s, "that is in seconds: the share"),
            otherwise="`time_by(steps)` has a `label` and a `share` for each kind of work",
        ),
    )
