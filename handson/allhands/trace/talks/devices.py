"""Pictures of where arrays lie: the current device, bytes of ranks on GPUs, what a rank may see.

Type is large: these figures fill a slide. Bytes and places are the caller's.
"""

from collections.abc import Mapping, Sequence

import matplotlib
from matplotlib.patches import FancyArrowPatch

from allhands.trace.draw import COLOURS, Picture, new_picture
from allhands.trace.talks.canvas import GREY, LARGE, LARGE_PT, LOW, card, plain

SEND = COLOURS["communicate"]
ARRAY = COLOURS["forward"]
BOARD = "0.93"


def births(lines: Sequence[tuple[str, int, str]], n_gpus: int) -> Picture:
    """Draw a program line by line: (code, the current device after it, the array it makes, or "").

    An array stands in the column of the device on which it was made.
    """
    with matplotlib.rc_context(LARGE):
        picture, axes = plain((-0.1, 10.6), (len(lines) + 0.15, -0.75), equal=False, size=LOW)
        for gpu in range(n_gpus):
            x = 5.9 + 1.6 * gpu
            card(axes, x, 0.0, 1.4, len(lines), BOARD)
            axes.text(x + 0.7, -0.25, f"GPU {gpu}", ha="center")
        axes.text(4.65, -0.25, "current device", ha="center", color=GREY)
        for row, (code, device, made) in enumerate(lines):
            y = row + 0.5
            axes.text(0, y, code, va="center", family="DejaVu Sans Mono", fontsize=LARGE_PT + 2)
            axes.text(
                4.65, y, str(device), ha="center", va="center", color=GREY, fontsize=LARGE_PT + 2
            )
            if made:
                x = 5.9 + 1.6 * device
                card(axes, x + 0.25, row + 0.14, 0.9, 0.72, ARRAY)
                axes.text(x + 0.7, y, made, ha="center", va="center", fontsize=LARGE_PT + 2)
    return picture


def bytes_on_gpus(panels: Mapping[str, Sequence[Sequence[int]]]) -> Picture:
    """Draw tables of ranks (rows) and GPUs (columns): living bytes, darker for more."""
    most = max(max(map(max, table)) for table in panels.values())
    with matplotlib.rc_context(LARGE):
        picture = new_picture(*LOW)
        row = picture.subplots(1, len(panels), squeeze=False, gridspec_kw={"wspace": 0.12})[0]
        for axes, (title, table) in zip(row, panels.items(), strict=True):
            axes.imshow(table, cmap="Blues", vmin=0, vmax=1.45 * most, aspect="auto")
            for rank, cells in enumerate(table):
                for gpu, number in enumerate(cells):
                    shade = "white" if number > most / 2 else "black" if number else "0.7"
                    axes.text(gpu, rank, f"{number:,}", ha="center", va="center", color=shade)
            axes.set_xticks(range(len(table[0])), [f"GPU {n}" for n in range(len(table[0]))])
            axes.set_yticks(range(len(table)), [f"rank {n}" for n in range(len(table))])
            axes.xaxis.tick_top()
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_xticks([n - 0.5 for n in range(1, len(table[0]))], minor=True)
            axes.set_yticks([n - 0.5 for n in range(1, len(table))], minor=True)
            axes.grid(which="minor", color="white", lw=3)
            axes.tick_params(which="minor", length=0)
            axes.set_title(title, fontsize=LARGE_PT + 1, pad=14)
    return picture


def read_from_afar(n_gpus: int = 4) -> Picture:
    """Draw ranks whose weights all lie on GPU 0: each step, the others read through the link."""
    with matplotlib.rc_context(LARGE):
        picture, axes = plain((-0.1, 3.0 * n_gpus - 0.3), (-0.2, 4.6), equal=False, size=LOW)
        for gpu in range(n_gpus):
            x = 3.0 * gpu
            card(axes, x, 0.3, 2.5, 2.6, BOARD)
            axes.text(x + 1.25, -0.1, f"GPU {gpu}", ha="center")
            card(axes, x + 0.2, 0.5, 2.1, 0.75, ARRAY)
            axes.text(x + 1.25, 0.87, f"x of rank {gpu}", ha="center", va="center")
        card(axes, 0.2, 1.45, 2.1, 1.25, "#F7D9C4")
        words = "weights of\nranks 0 to 3"
        axes.text(1.25, 2.07, words, ha="center", va="center")
        for gpu in range(1, n_gpus):
            axes.add_patch(
                FancyArrowPatch(
                    (0.35 + 0.45 * (n_gpus - gpu), 2.75), (3.0 * gpu + 1.25, 1.4), arrowstyle="-|>",
                    connectionstyle=f"arc3,rad={-0.55 + 0.06 * gpu}", mutation_scale=22,
                    color=SEND, lw=3,
                )
            )  # fmt: skip
        axes.text(6.4, 4.35, "through the link, in each step", color=SEND, ha="center")
    return picture


def renumbered(cases: Sequence[tuple[str, Sequence[int]]], n_gpus: int = 4) -> Picture:
    """Draw what a process sees: (how CUDA_VISIBLE_DEVICES is set, the physical GPUs it shows)."""
    apart = 1.35
    with matplotlib.rc_context(LARGE):
        y_limits = (len(cases) * apart + 1.2, -0.35)
        picture, axes = plain((-5.6, 1.6 * n_gpus), y_limits, equal=False, size=LOW)
        axes.text(-5.5, 0.4, "GPUs of the node", va="center", color=GREY)
        for gpu in range(n_gpus):
            card(axes, 1.6 * gpu, 0, 1.3, 0.8, ARRAY)
            axes.text(1.6 * gpu + 0.65, 0.4, f"GPU {gpu}", ha="center", va="center")
        for number, (said, shown) in enumerate(cases):
            y = 1.35 + apart * number
            axes.text(-5.5, y + 0.4, said, va="center", family="DejaVu Sans Mono")
            for gpu in range(n_gpus):
                x = 1.6 * gpu
                if gpu in shown:
                    card(axes, x, y, 1.3, 0.8, "#CDE7D9")
                    words = f"device {shown.index(gpu)}"
                    axes.text(x + 0.65, y + 0.4, words, ha="center", va="center")
                else:
                    axes.text(x + 0.65, y + 0.4, "hidden", ha="center", va="center", color="0.6")
    return picture
