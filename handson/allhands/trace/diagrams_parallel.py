"""Pictures of how ranks share the work: the ways to do it, and the ring all-reduce step by step.

Nothing in them was measured. Positions are in units of one panel.
"""

import matplotlib
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from allhands.trace.draw import COLOURS, OTHERS, STYLE, Picture, new_picture

GREY = "0.35"
RANKS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7")  # a colour a rank, or a shard of the data
SEND = COLOURS["communicate"]
UPDATE = COLOURS["backward"]
QUESTIONS = ("When do ranks exchange?", "Through whom?", "What is split?")


def ways_to_share() -> Picture:
    """Draw the three contrasts: when ranks exchange, through whom, and what is split."""
    with matplotlib.rc_context(STYLE):
        picture = new_picture(12, 6.9)
        picture.set_layout_engine(None)
        panels = picture.subplots(2, 3)
        picture.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.94, wspace=0.04)
        for x, question in zip((0.0225, 0.3535, 0.6845), QUESTIONS, strict=True):
            picture.text(x, 0.968, question, size=14, color=GREY, va="center")
        _synchronous(panels[0, 0])
        _asynchronous(panels[1, 0])
        _parameter_server(panels[0, 1])
        _peer_to_peer(panels[1, 1])
        _data_parallel(panels[0, 2])
        _model_parallel(panels[1, 2])
        for axes in panels.flat:
            axes.set(xlim=(0, 10), ylim=(0, 8), aspect="equal")
            axes.axis("off")
    return picture


def two_answers(question: str) -> Picture:
    """Draw the two answers to one of QUESTIONS side by side, in the shape of a slide."""
    panels = {
        QUESTIONS[0]: (_synchronous, _asynchronous),
        QUESTIONS[1]: (_parameter_server, _peer_to_peer),
        QUESTIONS[2]: (_data_parallel, _model_parallel),
    }[question]
    with matplotlib.rc_context(STYLE):
        picture = new_picture(8.0, 3.45)
        picture.set_layout_engine(None)
        row = picture.subplots(1, 2)
        picture.subplots_adjust(left=0.01, right=0.99, bottom=0.01, top=0.99, wspace=0.06)
        for axes, panel in zip(row, panels, strict=True):
            panel(axes)
            axes.set(xlim=(0, 10), ylim=(0, 8), aspect="equal")
            axes.axis("off")
    return picture


def _title(axes, title: str, words: str) -> None:
    axes.text(0.2, 7.55, title, size=12, va="center")
    axes.text(0.2, 6.85, words, size=9, color=GREY, va="center")


def _box(axes, x: float, y: float, width: float, height: float, colour: str, text="") -> None:
    style = "round,pad=0,rounding_size=0.12"
    axes.add_patch(FancyBboxPatch((x, y), width, height, boxstyle=style, fc=colour, ec="none"))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", size=9)


def _arrow(axes, start, end, colour: str = SEND, bend: float = 0.0, both: bool = False) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="<|-|>" if both else "-|>", mutation_scale=11, color=colour,
            lw=1.4, shrinkA=0, shrinkB=0, connectionstyle=f"arc3,rad={bend}",
        )
    )  # fmt: skip


def _rows_of_ranks(axes) -> list[float]:
    rows = [5.2, 3.7, 2.2]
    for rank, y in enumerate(rows):
        axes.text(1.5, y + 0.45, f"rank {rank}", ha="right", va="center", size=9)
    _arrow(axes, (1.8, 1.35), (9.8, 1.35), GREY)
    axes.text(9.8, 0.85, "time", ha="right", va="center", size=9, color=GREY)
    return rows


def _synchronous(axes) -> None:
    _title(axes, "synchronous", "every step, all ranks wait for the slowest")
    rows = _rows_of_ranks(axes)
    for start, ends in ((1.8, (3.9, 4.7, 3.4)), (5.8, (8.7, 7.6, 8.1))):
        last = max(ends)
        for y, end in zip(rows, ends, strict=True):
            _box(axes, start, y, end - start - 0.05, 0.9, RANKS[0])
            if end < last:
                _box(axes, end, y, last - end - 0.05, 0.9, COLOURS["wait"])
        _box(axes, last, rows[-1], 1.0, rows[0] + 0.9 - rows[-1], SEND)
    legend = (("compute", RANKS[0]), ("wait", COLOURS["wait"]), ("exchange", SEND))
    for x, (text, colour) in zip((1.8, 4.6, 6.6), legend, strict=True):
        _box(axes, x, 0.2, 0.4, 0.4, colour)
        axes.text(x + 0.55, 0.4, text, va="center", size=9)


def _asynchronous(axes) -> None:
    _title(axes, "asynchronous", "nobody waits; gradients are of older parameters")
    rows = _rows_of_ranks(axes)
    lengths = ((2.1, 2.5, 1.7), (2.9, 1.8, 1.8), (1.6, 2.3, 1.9))
    for y, steps in zip(rows, lengths, strict=True):
        x = 1.8
        for length in steps:
            _box(axes, x, y, length - 0.05, 0.9, RANKS[0])
            _box(axes, x + length, y, 0.4, 0.9, SEND)
            x += length + 0.45


def _parameter_server(axes) -> None:
    _title(axes, "parameter server", "all bytes go through one place")
    _box(axes, 2.9, 5.0, 4.2, 1.1, OTHERS[4], "server: parameters")
    for rank, x in enumerate((0.2, 2.7, 5.2, 7.7)):
        _box(axes, x, 1.4, 2.1, 1.0, RANKS[0], f"rank {rank}")
        foot = 3.6 + 0.93 * rank
        _arrow(axes, (x + 0.8, 2.5), (foot - 0.15, 4.9))
        _arrow(axes, (foot + 0.25, 4.9), (x + 1.3, 2.5), UPDATE)
    _arrow(axes, (0.2, 0.5), (0.9, 0.5))
    axes.text(1.1, 0.5, "gradients", va="center", size=9)
    _arrow(axes, (4.0, 0.5), (4.7, 0.5), UPDATE)
    axes.text(4.9, 0.5, "new parameters", va="center", size=9)


def _peer_to_peer(axes) -> None:
    _title(axes, "peer to peer (all-reduce)", "each rank sends to its neighbour; all links work")
    corners = ((1.2, 4.7), (6.7, 4.7), (6.7, 1.5), (1.2, 1.5))
    for rank, (x, y) in enumerate(corners):
        _box(axes, x, y, 2.1, 1.0, RANKS[0], f"rank {rank}")
    _arrow(axes, (3.4, 5.2), (6.6, 5.2))
    _arrow(axes, (7.75, 4.6), (7.75, 2.6))
    _arrow(axes, (6.6, 2.0), (3.4, 2.0))
    _arrow(axes, (2.25, 2.6), (2.25, 4.6))
    axes.text(5.0, 3.6, "partial sums", ha="center", va="center", size=9)


def _data_parallel(axes) -> None:
    _title(axes, "data parallel", "each rank has the whole model, and a part of the data")
    for rank, x in enumerate((0.6, 3.8, 7.0)):
        _box(axes, x, 1.6, 2.4, 0.8, RANKS[1 + rank], f"shard {rank}")
        _arrow(axes, (x + 1.2, 2.5), (x + 1.2, 3.2), GREY)
        for layer in range(3):
            _box(axes, x, 3.3 + 0.95 * layer, 2.4, 0.8, RANKS[0], f"layer {layer + 1}")
        axes.text(x + 1.2, 1.1, f"rank {rank}", ha="center", va="center", size=9)
        if rank < 2:
            _arrow(axes, (x + 2.45, 4.65), (x + 3.15, 4.65), both=True)
    axes.text(5.0, 0.35, "exchanged: gradients", ha="center", va="center", size=9, color=SEND)


def _model_parallel(axes) -> None:
    _title(axes, "model parallel", "each rank has a part of the model, and sees all data")
    for shard in range(3):
        _box(axes, 0.2, 4.6 - 0.88 * shard, 1.8, 0.8, RANKS[1 + shard], f"shard {shard}")
    for rank, x in enumerate((2.9, 5.4, 7.9)):
        _box(axes, x, 2.84, 1.8, 2.56, RANKS[0], f"layer {rank + 1}")
        axes.text(x + 0.9, 2.3, f"rank {rank}", ha="center", va="center", size=9)
        _arrow(axes, (x - 0.68, 4.12), (x - 0.06, 4.12), SEND if rank else GREY, both=bool(rank))
    axes.text(
        5.0, 1.4, "exchanged: activations and their gradients",
        ha="center", va="center", size=9, color=SEND,
    )  # fmt: skip


def ring_states(n_ranks: int) -> list[list[list[set[int]]]]:
    """What each rank holds before each step of a ring all-reduce, and at its end.

    states[t][rank][chunk] is the set of ranks whose numbers are in that chunk's sum there; t = 0 is
    the start, t = 2(N-1) the end.
    """
    states = [[[{rank} for _ in range(n_ranks)] for rank in range(n_ranks)]]
    for step in range(2 * (n_ranks - 1)):
        before = states[-1]
        after = [[set(chunk) for chunk in rank] for rank in before]
        for rank in range(n_ranks):
            chunk = ring_chunk(n_ranks, step, rank)
            after[(rank + 1) % n_ranks][chunk] |= before[rank][chunk]
        states.append(after)
    return states


def ring_chunk(n_ranks: int, step: int, rank: int) -> int:
    """The chunk that `rank` sends to the next rank in `step` (from 0) of 2(N-1)."""
    return (rank - step) % n_ranks


def ring_steps() -> Picture:
    """Draw the ring all-reduce of 4 ranks and 4 chunks: what each holds, and what is sent."""
    n_ranks = len(RANKS)
    states = ring_states(n_ranks)
    half = n_ranks - 1
    with matplotlib.rc_context(STYLE):
        picture = new_picture(12, 5.4)
        picture.set_layout_engine(None)
        panels = picture.subplots(2, n_ranks)
        picture.subplots_adjust(
            left=0.01, right=0.99, bottom=0.07, top=0.94, wspace=0.06, hspace=0.16
        )
        for row, (name, first) in enumerate((("reduce-scatter", 0), ("all-gather", half))):
            for column in range(half):
                step = first + column
                axes = panels[row, column]
                _ring_panel(axes, states[step], f"step {step + 1}: {name}")
                for rank in range(n_ranks):
                    _ring_arrow(axes, rank, ring_chunk(n_ranks, step, rank), n_ranks)
        _ring_panel(panels[0, half], states[half], "each rank has one whole sum")
        _ring_panel(panels[1, half], states[-1], "the end: all have all sums")
        words = "rows: chunks 0 to 3. Stripes: whose numbers are in the sum. Black frame: all are."
        picture.text(0.5, 0.03, words, ha="center", va="center", size=10, color=GREY)
    return picture


CELL, GAP = 1.0, 0.6  # width of a rank's cell, and of the gap where arrows go


def _ring_panel(axes, state: list[list[set[int]]], title: str) -> None:
    n_ranks = len(state)
    for rank, chunks in enumerate(state):
        x = rank * (CELL + GAP)
        _box(axes, x, n_ranks + 0.1, CELL, 0.5, RANKS[rank], f"{rank}")
        for chunk, members in enumerate(chunks):
            y = n_ranks - 1 - chunk
            for member in members:
                axes.add_patch(
                    Rectangle(
                        (x + member * CELL / n_ranks, y + 0.12), CELL / n_ranks, 0.76,
                        fc=RANKS[member], ec="none",
                    )
                )  # fmt: skip
            whole = len(members) == n_ranks
            axes.add_patch(
                Rectangle(
                    (x, y + 0.12), CELL, 0.76, fc="none",
                    ec="black" if whole else "0.7", lw=1.6 if whole else 0.8,
                )
            )  # fmt: skip
    for chunk in range(n_ranks):
        axes.text(-1.0, n_ranks - 0.5 - chunk, f"{chunk}", ha="center", va="center", size=10)
    axes.text(-0.85, n_ranks + 0.35, "rank", ha="center", va="center", size=9, color=GREY)
    axes.set_title(title, size=11)
    axes.set(xlim=(-1.3, n_ranks * (CELL + GAP) + 0.1), ylim=(0, n_ranks + 0.7), aspect="equal")
    axes.axis("off")


def _ring_arrow(axes, rank: int, chunk: int, n_ranks: int) -> None:
    """From a rank's cell to the next rank's; the last rank's arrow goes round to rank 0."""
    y = n_ranks - 0.5 - chunk
    right = rank * (CELL + GAP) + CELL
    _arrow(axes, (right + 0.03, y), (right + GAP - 0.03, y))
    if rank == n_ranks - 1:
        _arrow(axes, (-GAP + 0.03, y), (-0.03, y))
