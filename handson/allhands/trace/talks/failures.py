"""Pictures of jobs that fail: who writes which line of the log, when, and what the rest does then.

Nothing in them is a clock's: times are invented, in units of one step. Type is large: these figures
fill a slide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.patches import Patch, Rectangle

from allhands.trace.draw import COLOURS, OTHERS, Picture, new_picture
from allhands.trace.talks.canvas import GREY, LARGE, LARGE_PT, LOW

KINDS = {
    "works": COLOURS["forward"],
    "exchanges": COLOURS["communicate"],
    "waits": COLOURS["wait"],
    "writes its traceback": OTHERS[0],
    "lost its peer": COLOURS["evaluate"],
    "reads and prepares": COLOURS["snapshot"],
    "evaluates": COLOURS["evaluate"],
    "another program has the core": "0.78",
    "cause A": OTHERS[4],
    "cause B": OTHERS[3],
}


@dataclass(frozen=True)
class Bar:
    """What a rank does from `start` to `end`: one of KINDS. words: written in the bar."""

    rank: int
    start: float
    end: float
    kind: str
    words: str = ""


@dataclass(frozen=True)
class Mark:
    """A vertical line through all ranks (or a cross on one rank) at `time`, with words."""

    time: float
    words: str
    rank: int | None = None


def lanes(
    panels: Mapping[str, tuple[Sequence[Bar], Sequence[Mark]]],
    until: float,
    names: Sequence[str] | None = None,
    below: bool = False,
) -> Picture:
    """Draw timelines of ranks, a panel for each title: side by side, or below each other."""
    kinds = [k for k in KINDS if any(b.kind == k for bars, _ in panels.values() for b in bars)]
    with matplotlib.rc_context(LARGE):
        picture = new_picture(*LOW)
        shape = (len(panels), 1) if below else (1, len(panels))
        heights = [2.0 + _n_ranks(bars) for bars, _ in panels.values()] if below else [1]
        ratios = {"height_ratios": heights}
        grid = picture.subplots(*shape, sharex=True, squeeze=False, gridspec_kw=ratios).ravel()
        for axes, (title, (bars, marks)) in zip(grid, panels.items(), strict=True):
            _lanes(axes, bars, marks, until)
            axes.set_title(title, fontsize=LARGE_PT + 1)
            axes.spines["left"].set_visible(False)
            ranks = sorted({bar.rank for bar in bars})
            axes.set_yticks(ranks, names or [f"rank {rank}" for rank in ranks])
            axes.tick_params(axis="y", length=0)
            axes.invert_yaxis()
        for axes in grid[:-1] if below else grid[1:]:
            if below:
                axes.spines["bottom"].set_visible(False)
            else:
                axes.set_yticks([])
        grid[-1].set_xlabel("time")
        if not below:
            grid[0].set_xlabel("time")
        handles = [Patch(color=KINDS[kind], label=kind) for kind in kinds]
        picture.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
    return picture


def _lanes(axes, bars: Sequence[Bar], marks: Sequence[Mark], until: float) -> None:
    for bar in bars:
        axes.barh(
            bar.rank, bar.end - bar.start, left=bar.start, height=0.7, color=KINDS[bar.kind],
            edgecolor="white", lw=1,
        )  # fmt: skip
        shade = "white" if bar.kind in ("writes its traceback", "exchanges") else "black"
        middle = (bar.start + bar.end) / 2
        axes.text(middle, bar.rank, bar.words, ha="center", va="center", color=shade)
    n_ranks = _n_ranks(bars)
    for mark in marks:
        if mark.rank is None:
            axes.plot([mark.time] * 2, [-0.5, n_ranks - 0.5], color=OTHERS[1], lw=2.4)
            axes.text(mark.time, -0.6, mark.words, color=OTHERS[1], ha="center", va="bottom")
        else:
            axes.plot(mark.time, mark.rank, "x", color=OTHERS[1], ms=15, mew=4)
            axes.text(mark.time + 0.18, mark.rank, mark.words, color=OTHERS[1], va="center")
    room = 0.95 if any(mark.words and mark.rank is None for mark in marks) else 0.55
    axes.set(xlim=(0, until), xticks=[], ylim=(-room, n_ranks - 0.4))


def _n_ranks(bars: Sequence[Bar]) -> int:
    return 1 + max(bar.rank for bar in bars)


def steps(n_ranks: int, ends: Sequence[float], exchange: float = 0.3) -> list[Bar]:
    """Bars of ranks that work and exchange together, once for each entry of `ends`."""
    bars, start = [], 0.0
    for end in ends:
        for rank in range(n_ranks):
            bars.append(Bar(rank, start, end, "works"))
            bars.append(Bar(rank, end, end + exchange, "exchanges"))
        start = end + exchange
    return bars


def one_rank_raises() -> Picture:
    """Draw what becomes of four ranks of which one raises: with MPI alone, and with closed sockets.

    Left: the others wait in the all-reduce until the job's time is up. Right: the rank's sockets
    close, so the others raise too, and the launcher ends all.
    """
    begun = [*steps(4, [1.0]), Bar(1, 1.3, 1.8, "works"), Bar(1, 1.8, 2.4, "writes its traceback")]
    others = (0, 2, 3)
    works = [Bar(rank, 1.3, 2.3, "works") for rank in others]
    waits = [Bar(rank, 2.3, 5.4, "waits") for rank in others] + [Bar(1, 2.4, 5.4, "waits")]
    closed = [
        *[Bar(rank, 2.3, 2.9, "waits") for rank in others],
        *[Bar(rank, 2.9, 3.7, "lost its peer") for rank in others],
    ]
    return lanes(
        {
            "Nobody ends the job": ([*begun, *works, *waits], [Mark(5.4, "time limit")]),
            "The lost connection is seen": ([*begun, *works, *closed], [Mark(3.7, "SIGTERM")]),
        },
        until=6.0,
    )


def log_map(lines: Sequence[tuple[str, str]], colours: Mapping[str, str], rows: int) -> Picture:
    """Draw a log as one sees it from afar: a bar for each line, as long as the line.

    lines: (kind, text), in their order, which runs down the first column, then the next. colours:
    {kind: colour}; the legend counts the lines of each kind.
    """
    columns = -(-len(lines) // rows)
    longest = 100  # characters: longer lines are cut
    with matplotlib.rc_context(LARGE):
        picture = new_picture(*LOW)
        axes = picture.add_subplot()
        for number, (kind, text) in enumerate(lines):
            x, y = divmod(number, rows)
            width = 0.86 * max(4, min(longest, len(text))) / longest
            axes.add_patch(Rectangle((x, y + 0.14), width, 0.72, fc=colours[kind], ec="none"))
            if y == 0:
                axes.text(x, -0.4, f"line {number + 1}", color=GREY)
        kinds = [kind for kind, _ in lines]
        handles = [
            Patch(color=colour, label=f"{kind}: {kinds.count(kind)}")
            for kind, colour in colours.items()
        ]
        picture.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
        axes.set(xlim=(-0.02, columns), ylim=(rows + 0.1, -1.4))
        axes.axis("off")
    return picture


def who_says_it(patterns: Sequence[tuple[Sequence[int], str, str]], n_ranks: int = 8) -> Picture:
    """Draw rows of ranks, those that print the error full: (ranks, what is seen, what it says).

    A gap stands between the two nodes.
    """
    with matplotlib.rc_context(LARGE):
        picture = new_picture(*LOW)
        axes = picture.add_subplot()
        for row, (ranks, seen, says) in enumerate(patterns):
            for rank in range(n_ranks):
                x = 0.62 * rank + (0.35 if rank >= n_ranks // 2 else 0)
                colour = OTHERS[1] if rank in ranks else "0.9"
                axes.add_patch(Rectangle((x, row + 0.12), 0.52, 0.62, fc=colour, ec="none"))
                shade = "white" if rank in ranks else GREY
                axes.text(x + 0.26, row + 0.44, str(rank), ha="center", va="center", color=shade)
            axes.text(5.75, row + 0.24, seen, va="center", fontsize=LARGE_PT + 2)
            axes.text(5.75, row + 0.66, says, va="center", color=GREY)
        for x, name in ((0.0, "node 0"), (0.62 * n_ranks / 2 + 0.35, "node 1")):
            axes.text(x, -0.1, name, color=GREY)
        axes.set(xlim=(-0.05, 11.6), ylim=(len(patterns) - 0.1, -0.5))
        axes.axis("off")
    return picture
