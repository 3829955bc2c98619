"""Pictures of the opening talk: what the ways of sharing the work cost, by small models.

The numbers come from `opening_models`, except those of `reached`, which were published. Type is
large: these figures fill a slide.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import matplotlib.patches
import numpy as np

from allhands.trace.draw import COLOURS, OTHERS, Picture, new_picture
from allhands.trace.events import Event
from allhands.trace.talks import opening_models as models
from allhands.trace.talks.canvas import SIZE, SLIDE

COMPUTE = COLOURS["forward"]
RANKS = [2**k for k in range(11)]


@dataclass(frozen=True)
class Reached:
    """A published training of ResNet-50 on ImageNet. `above` says where its label stands."""

    who: str
    gpus: int
    kind: str  # of GPU
    minutes: float
    batch: str
    accuracy: str
    above: bool = True


def reached(runs: Sequence[Reached], ideal_from: Reached) -> Picture:
    """Draw minutes over GPUs, and the ideal line through one of the runs."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        gpus = np.array([6.0, 3500.0])
        ideal = ideal_from.minutes * ideal_from.gpus / gpus
        axes.plot(gpus, ideal, "--", color="0.7", lw=1.5)
        axes.text(45, 230, "ideal", color="0.5", rotation=-31, ha="right", va="center")
        for run in runs:
            axes.plot(run.gpus, run.minutes, "o", ms=11, color=OTHERS[0])
            text = f"{run.who}\n{run.gpus:,} {run.kind}, batch {run.batch}: {run.accuracy}"
            place = (10, 8) if run.above else (-14, -2)
            axes.annotate(
                text, (run.gpus, run.minutes), place, textcoords="offset points",
                ha="left" if run.above else "right", va="bottom" if run.above else "top", size=12,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=(5, 30000), ylim=(1, 4000))
        axes.set_xticks([8, 64, 256, 1024, 2176], ["8", "64", "256", "1,024", "2,176"])
        axes.set_yticks([3.7, 15, 60, 1740], ["3.7 min", "15 min", "1 h", "29 h"])
        axes.minorticks_off()
        axes.set_xlabel("GPUs")
    return picture


def pipeline() -> Picture:
    """Draw one step of a model on four ranks: the batch whole, and in eight pieces."""
    n_ranks = 4
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        panels = picture.subplots(2, 1, sharex=True)
        for axes, n_micro in zip(panels, (1, 8), strict=True):
            events = models.pipeline(n_ranks, n_micro, forward_s=1.0, backward_s=2.0)
            _bars(axes, events, n_ranks, named=n_micro > 1)
            end = max(event.end_s for event in events)
            busy = sum(event.duration_s for event in events) / (n_ranks * end)
            pieces = "the batch in one piece" if n_micro == 1 else f"in {n_micro} pieces"
            axes.set_title(f"{pieces}: each rank works {busy:.0%} of the time")
        panels[-1].set_xlabel("time (forward pass of one rank's layers = 1)")
        _legend(picture, ("forward", "backward"))
    return picture


def waiting() -> Picture:
    """Draw four ranks, synchronous and asynchronous, with the same times to compute."""
    n_ranks, n_steps, exchange_s = 4, 8, 0.12
    times = 1.0 + 0.18 * np.random.default_rng(3).standard_normal((n_ranks, n_steps))
    times[2] *= 1.35  # a rank that is always slower
    compute_s = np.clip(times, 0.5, None).tolist()
    ways = {
        "synchronous: yellow is waiting": models.synchronous(compute_s, exchange_s),
        "asynchronous: the number is how many updates the gradient missed": models.asynchronous(
            compute_s, exchange_s
        ),
    }
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        panels = picture.subplots(2, 1, sharex=True)
        for axes, (title, events) in zip(panels, ways.items(), strict=True):
            _bars(axes, [event for event in events if event.start_s < 8.4], n_ranks)
            for event in events:
                if event.what == "communicate" and event.name and event.end_s < 8.4:
                    middle = (event.start_s + event.end_s) / 2
                    axes.text(middle, event.rank, event.name, ha="center", va="center", size=12)
            axes.set_title(title)
        panels[-1].set_xlim(0, 8.4)
        panels[-1].set_xlabel("time (mean step of a rank = 1)")
        _legend(picture, ("forward", "wait", "communicate"))
    return picture


def stragglers() -> Picture:
    """Draw the expected time of a synchronous step over the number of ranks."""
    lines = {
        "1 step in 100 of a rank pauses for one step": [
            models.slowest_with_pauses(n, share=0.01, pause=1.0) for n in RANKS
        ],
        "each step varies by 10 %": [models.slowest_of(n, 0.10) for n in RANKS],
        "each step varies by 5 %": [models.slowest_of(n, 0.05) for n in RANKS],
    }
    return _curves(
        RANKS, lines, x="ranks", y="time of a step\n(a rank alone = 1)", y_limits=(0.95, 2.2)
    )


def staleness() -> Picture:
    """Draw descent with old gradients: at one rate, and at a rate divided by the delay + 1."""
    rate, delays, steps = 0.3, (0, 3, 6), 60
    panels = {
        f"the same rate, {rate:g}": lambda delay: rate,
        "the rate divided by (delay + 1)": lambda delay: rate / (delay + 1),
    }
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        row = picture.subplots(1, 2, sharey=True)
        for axes, (title, rate_of) in zip(row, panels.items(), strict=True):
            for delay, colour in zip(delays, OTHERS, strict=False):
                xs = models.delayed_descent(rate_of(delay), delay, steps)
                late = "fresh gradients" if delay == 0 else f"{delay} updates late"
                axes.plot(xs, color=colour, lw=2.2, label=late)
            axes.axhline(0, color="0.6", lw=0.8)
            axes.set(title=title, xlabel="update", ylim=(-2.5, 2.5))
        row[0].set_ylabel("distance from the minimum")
        row[1].legend(frameon=False, loc="lower right")
    return picture


def server_or_ring() -> Picture:
    """Draw the time of one exchange over the number of ranks: through a server, and in a ring."""
    link = {"n_bytes": 100e6, "bytes_per_s": 1.25e9, "startup_s": 50e-6}
    ranks = RANKS[1:]
    lines = {
        "one parameter server": [models.server_s(n, **link) for n in ranks],
        "ring all-reduce": [models.ring_s(n, **link) for n in ranks],
    }
    picture = _curves(ranks, lines, x="ranks", y="seconds of one exchange")
    picture.axes[0].set(yscale="log", ylim=(0.05, 400))
    picture.axes[0].set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    return picture


CURVATURES, NOISE = (1.0, 0.3, 0.1, 0.03), 0.3


def linear_rule() -> Picture:
    """Draw the loss after the same number of samples over the batch, with three rules."""
    samples, rate = 16384, 0.01
    batches = [2**k for k in range(10)]
    rules = {
        "the same rate": lambda batch: rate,
        "rate × √batch": lambda batch: rate * batch**0.5,
        "rate × batch (linear rule)": lambda batch: rate * batch,
    }
    lines = {}
    for name, rule in rules.items():
        lines[name] = [
            models.expected_loss([(rule(batch), batch, samples // batch)], CURVATURES, NOISE)[-1]
            if rule(batch) * max(CURVATURES) < 2
            else np.nan
            for batch in batches
        ]
    picture = _curves(batches, lines, x="batch", y="loss after 16,384 samples")
    axes = picture.axes[0]
    axes.set(yscale="log", ylim=(1e-4, 1))
    axes.axvline(2 / rate, color=OTHERS[2], lw=1.2, ls=":")
    words = "beyond this\nthe linear rule\ndiverges"
    axes.text(2 / rate * 1.04, 2e-4, words, color=OTHERS[2], size=14)
    return picture


def lower_or_grow() -> Picture:
    """Draw the loss over samples, and over updates: the rate lowered, and the batch grown."""
    stage, rate, batch, cuts = 4096, 0.08, 4, (1, 4, 16)
    ways = {
        "lower the rate": [(rate / cut, batch, stage // batch) for cut in cuts],
        "grow the batch": [(rate, batch * cut, stage // (batch * cut)) for cut in cuts],
    }
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        row = picture.subplots(1, 2, sharey=True)
        for (name, schedule), colour, width in zip(ways.items(), OTHERS, (4.5, 2.0), strict=False):
            losses = models.expected_loss(schedule, CURVATURES, NOISE)
            samples = np.concatenate(
                [[0], np.cumsum([b for _, b, n in schedule for _ in range(n)])]
            )
            row[0].plot(samples, losses, color=colour, lw=width, label=name)
            row[1].plot(
                losses, color=colour, lw=width, label=f"{name}: {len(losses) - 1:,} updates"
            )
        row[0].set(yscale="log", xlabel="samples seen", ylabel="expected loss")
        row[1].set(xlabel="updates made")
        for axes in row:
            axes.legend(frameon=False)
    return picture


def _curves(x_values, lines, *, x: str, y: str, y_limits=None) -> Picture:
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        for (name, values), colour in zip(lines.items(), OTHERS, strict=False):
            axes.plot(x_values, values, "o-", color=colour, lw=2.2, ms=6, label=name)
        axes.set(xlabel=x, ylabel=y)
        axes.set_xscale("log", base=2)
        axes.set_xticks(x_values, [f"{value:,}" for value in x_values])
        axes.minorticks_off()
        if y_limits:
            axes.set_ylim(*y_limits)
        axes.legend(frameon=False)
    return picture


def _bars(axes, events: Sequence[Event], n_ranks: int, named: bool = False) -> None:
    for event in events:
        axes.barh(
            event.rank, event.duration_s, left=event.start_s, height=0.78,
            color=COLOURS[event.what], edgecolor="white", lw=0.8,
        )  # fmt: skip
        if named:
            middle = (event.start_s + event.end_s) / 2
            dark = event.what == "backward"
            axes.text(
                middle, event.rank, event.name, ha="center", va="center", size=9,
                color="white" if dark else "black",
            )  # fmt: skip
    axes.set_yticks(range(n_ranks), [f"rank {rank}" for rank in range(n_ranks)])
    axes.invert_yaxis()


def _legend(picture: Picture, kinds: Sequence[str]) -> None:
    words = {"forward": "compute"} if "wait" in kinds else {}
    handles = [
        matplotlib.patches.Patch(color=COLOURS[kind], label=words.get(kind, kind)) for kind in kinds
    ]
    picture.legend(handles=handles, loc="outside lower center", ncols=len(kinds), frameon=False)
