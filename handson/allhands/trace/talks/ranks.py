"""Pictures that open labs 0 to 2: how ranks and links work, before anybody measures them.

Nothing in them was measured. Type is large: these pictures fill a slide.
"""

from collections.abc import Sequence

import matplotlib
from matplotlib.patches import Circle, Rectangle

from allhands.trace.draw import COLOURS, OTHERS, Picture, new_picture
from allhands.trace.talks.canvas import GREY, SIZE, SLIDE, arrow, box, plain

SEND = COLOURS["communicate"]
COMPUTE = COLOURS["forward"]
FILLS = ("#0072B2", "#56B4E9", "#009E73", "#CC79A7")  # of the parts of a batch, rank by rank


def round_trip() -> Picture:
    """Draw two ranks over time: the ball goes there and back, and one clock sees both ends."""
    with matplotlib.rc_context(SLIDE):
        picture, axes = plain((-1.5, 10.2), (-1.15, 3.9))
        for y, name in ((2.6, "rank 0"), (0.4, "rank 1")):
            arrow(axes, (0, y), (10, y), GREY, 1.2)
            axes.text(-0.25, y, name, ha="right", va="center", size=17)
        axes.text(10, 0.05, "time", ha="right", va="top", color=GREY)
        arrow(axes, (1.2, 2.6), (4.3, 0.42), SEND, 3.5)
        arrow(axes, (4.5, 0.4), (7.6, 2.58), SEND, 3.5)
        axes.text(3.1, 1.65, "Send", ha="left", color=SEND, size=17)
        axes.text(5.75, 1.65, "Send", ha="right", color=SEND, size=17)
        axes.text(4.4, 0.05, "Recv, then Send", ha="center", va="top", color=GREY)
        for x in (1.2, 7.6):
            axes.plot([x, x], [2.6, 3.35], ":", color=OTHERS[0], lw=2)
        arrow(axes, (1.2, 3.2), (7.6, 3.2), OTHERS[0], 2, both=True)
        words = "one round trip: two messages, one clock"
        axes.text(4.4, 3.4, words, ha="center", color=OTHERS[0], size=17)
        axes.text(7.75, 2.2, "Recv", ha="left", va="top", color=GREY)
    return picture


def doubling(n_ranks: int = 8) -> Picture:
    """Draw recursive doubling: who exchanges with whom at distance 1, 2, 4, ...

    n_ranks: a power of two. Numbers in a rank's box: whose arrays are in its sum.
    """
    n_steps = n_ranks.bit_length() - 1
    apart = 2.5
    with matplotlib.rc_context(SLIDE):
        picture, axes = plain((-1.3, apart * n_steps + 2.4), (n_ranks - 0.4, -1.2), equal=False)
        for step in range(n_steps + 1):
            size = 1 << step
            for rank in range(n_ranks):
                first = rank // size * size
                held = f"{first}" if size == 1 else f"{first} to {first + size - 1}"
                colour = OTHERS[2] if size == n_ranks else "0.93"
                shade = "white" if size == n_ranks else "black"
                box(axes, step * apart, rank - 0.36, 1.0, 0.72, colour, held, shade)
                if step < n_steps and rank < rank ^ size:
                    right, left = step * apart + 1.06, (step + 1) * apart - 0.06
                    for a, b in ((rank, rank ^ size), (rank ^ size, rank)):
                        arrow(axes, (right, a), (left, b), SEND, 1.6)
            if step < n_steps:
                middle = step * apart + 1.0 + (apart - 1) / 2
                axes.text(middle, -0.85, f"distance {size}", ha="center", color=SEND)
        for rank in range(n_ranks):
            axes.text(-0.15, rank, f"rank {rank}", ha="right", va="center")
        end = n_steps * apart + 1.1
        axes.text(end, n_ranks / 2 - 0.5, "all have\nall sums", va="center", color=OTHERS[2])
    return picture


def collective(compute_s: Sequence[float] = (2.2, 3.0, 2.6, 4.4)) -> Picture:
    """Draw ranks that compute, come to a collective one by one, and leave it together."""
    lasts_s, until_s = 0.5, 7.0
    last_s = max(compute_s)
    kinds = {"compute": COMPUTE, "wait": COLOURS["wait"], "exchange": SEND}
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        for rank, one_s in enumerate(compute_s):
            after_s = last_s + lasts_s
            bars = (
                (0, one_s, "compute"), (one_s, last_s, "wait"),
                (last_s, after_s, "exchange"), (after_s, until_s, "compute"),
            )  # fmt: skip
            for start_s, end_s, kind in bars:
                axes.barh(
                    rank, end_s - start_s, left=start_s, height=0.72, color=kinds[kind],
                    edgecolor="white", lw=1,
                )  # fmt: skip
        axes.set_yticks(range(len(compute_s)), [f"rank {r}" for r in range(len(compute_s))])
        axes.tick_params(axis="y", length=0, labelsize=16)
        axes.invert_yaxis()
        axes.set(xticks=[], xlim=(0, until_s))
        axes.set_xlabel("time")
        handles = [matplotlib.patches.Patch(color=c, label=kind) for kind, c in kinds.items()]
        picture.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return picture


def placements(ways: dict[str, Sequence[Sequence[int]]]) -> Picture:
    """Draw ways to lay ranks on nodes, one below the other; {title: the ranks of each node}."""
    with matplotlib.rc_context(SLIDE):
        picture, axes = plain((-4.6, 11.5), (-0.35, 2.9 * len(ways) - 0.1))
        for row, (title, nodes) in enumerate(ways.items()):
            y = 2.9 * (len(ways) - 1 - row)
            axes.text(-4.5, y + 1, title, va="center", size=17)
            for number, ranks in enumerate(nodes):
                x = 6.0 * number
                box(axes, x, y, 5.2, 2.0, "0.94", "")
                axes.text(x + 2.6, y + 2.15, f"node n{number + 1}", ha="center", color=GREY)
                for place, rank in enumerate(ranks):
                    at = (x + 5.2 * (place + 1) / (len(ranks) + 1), y + 1)
                    axes.add_patch(Circle(at, 0.62, fc=OTHERS[rank % len(OTHERS)], ec="none"))
                    axes.text(*at, f"{rank}", ha="center", va="center", color="white", size=20)
    return picture


def two_shards(right: Sequence[Sequence[bool]]) -> Picture:
    """Draw the sentences of each rank, a square each: blue is right, and orange is wrong."""
    with matplotlib.rc_context(SLIDE):
        longest = max(map(len, right))
        picture, axes = plain((-2.2, longest + 3.6), (1.45 * len(right) + 1.0, -0.35))
        for rank, row in enumerate(right):
            y = 1.45 * rank
            axes.text(-0.3, y + 0.5, f"rank {rank}", ha="right", va="center", size=17)
            for n, good in enumerate(row):
                colour = OTHERS[0] if good else OTHERS[1]
                sign = "✓" if good else "✗"
                box(axes, n + 0.05, y + 0.05, 0.9, 0.9, colour, "")
                words = {"ha": "center", "va": "center", "color": "white", "size": 24}
                axes.text(n + 0.5, y + 0.5, sign, **words)
            words = f"exact match {100 * sum(row) / len(row):.0f} %"
            axes.text(len(row) + 0.25, y + 0.5, words, va="center", size=17)
        y = 1.45 * len(right) + 0.45
        axes.text(-0.3, y, "both", ha="right", va="center", size=17)
        axes.text(0.05, y, "exact match ?", va="center", size=17, color=OTHERS[1])
    return picture


def larger_batches(words: dict[int, str], samples: int = 16) -> Picture:
    """Draw the same samples cut into batches, a row each; {batches of one rank in a box: words}."""
    with matplotlib.rc_context(SLIDE):
        picture, axes = plain((-3.2, samples + 5.2), (1.5 * len(words) + 0.3, -0.5), equal=False)
        for row, (batches, said) in enumerate(words.items()):
            y = 1.5 * row
            ranks = f"{batches} rank{'s' if batches > 1 else ''}"
            axes.text(-0.3, y + 0.5, ranks, ha="right", va="center", size=17)
            for n in range(0, samples, batches):
                for part in range(batches):
                    left = n + part + (0.06 if part == 0 else 0.0)
                    width = (
                        1.0 - (0.06 if part == 0 else 0.0) - (0.06 if part == batches - 1 else 0)
                    )
                    axes.add_patch(Rectangle((left, y), width, 1.0, fc=FILLS[part], ec="none"))
            axes.text(samples + 0.4, y + 0.5, said, va="center", size=17)
        y = 1.5 * len(words) - 0.1
        arrow(axes, (0, y), (samples, y), GREY, 1.2)
        axes.text(
            samples / 2, y + 0.1, "samples; a box is an update", ha="center", va="top", color=GREY
        )
    return picture
