"""Pictures that open the day with one's own code. Nothing in them was measured; large type."""

import matplotlib
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from allhands.trace.draw import COLOURS, OTHERS, Picture, new_picture
from allhands.trace.talks.canvas import GREY, SIZE, SLIDE

ASK, WORK = COLOURS["snapshot"], COLOURS["forward"]


def asked_and_done(n_steps: int = 5, asking_s: float = 0.12) -> Picture:
    """Draw a program that asks a device for steps, and the device, which works behind its back."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.set(xlim=(-1.05, n_steps + 0.6), ylim=(3.0, -1.0))
        axes.axis("off")
        for y, name in ((0.3, "program"), (1.8, "device")):
            axes.text(-0.12, y, name, ha="right", va="center", size=17)
        for i in range(n_steps):
            bar = {"height": 0.7, "edgecolor": "white", "lw": 1}
            axes.barh(0.3, asking_s, left=i * asking_s, color=ASK, **bar)
            axes.barh(1.8, 1, left=0.05 + i, color=WORK, **bar)
            axes.text(0.55 + i, 1.8, f"step {i}", ha="center", va="center")
        asked_s, done_s = n_steps * asking_s, n_steps + 0.05
        for x in (0, asked_s):
            axes.plot([x, x], [-0.35, 0.75], color=OTHERS[1], lw=3)
        axes.text(0, -0.5, "the clock is read here, and here", color=OTHERS[1], size=16)
        axes.text(asked_s + 0.12, 0.3, f"{n_steps} steps are asked for", va="center", color=GREY)
        axes.plot([done_s, done_s], [1.25, 2.35], color=OTHERS[2], lw=3)
        axes.text(done_s, 2.72, f"{n_steps} steps are done", ha="right", color=OTHERS[2], size=16)
        axes.annotate(
            "", (n_steps + 0.5, 3.0), (0, 3.0), arrowprops={"arrowstyle": "-|>", "color": GREY}
        )
        axes.text(0.0, 2.9, "time", color=GREY)
    return picture


def dealt_out(n_ranks: int = 2, batch_size: int = 8, n_batches: int = 2) -> Picture:
    """Draw the batches of one device, and how a sampler deals the same samples to the ranks."""
    with matplotlib.rc_context(SLIDE):
        picture = new_picture(*SIZE)
        axes = picture.add_subplot()
        axes.set(xlim=(-2.1, n_batches * (batch_size + 0.7)), ylim=(n_ranks + 2.2, -0.9))
        axes.axis("off")
        for batch in range(n_batches):
            left = batch * (batch_size + 0.7)
            words = f"step {batch}"
            axes.text(left + batch_size / 2, -0.45, words, ha="center", color=GREY, size=16)
            for i in range(batch_size):
                number, rank = batch * batch_size + i, i % n_ranks
                _card(axes, left + i, 0, number, OTHERS[rank])
                _card(axes, left + i // n_ranks, 1.6 + 1.05 * rank, number, OTHERS[rank])
        rows = [(0.36, "one device")] + [(1.96 + 1.05 * r, f"rank {r}") for r in range(n_ranks)]
        for y, name in rows:
            axes.text(-0.3, y, name, ha="right", va="center", size=17)
        axes.add_patch(
            FancyArrowPatch(
                (-1.1, 0.75), (-1.1, 1.55), arrowstyle="-|>", mutation_scale=18, color=GREY
            )
        )
    return picture


def _card(axes, x: float, y: float, number: int, colour: str) -> None:
    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch((x + 0.05, y), 0.88, 0.72, boxstyle=style, fc=colour, ec="none"))
    axes.text(x + 0.49, y + 0.37, f"{number}", ha="center", va="center", color="white", size=15)
