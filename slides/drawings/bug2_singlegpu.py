"""The figures of the talk on running it alone."""

from allhands.trace import draw
from allhands.trace.talks import calls, failures
from allhands.trace.talks.failures import Bar, Mark

GRADIENT, LOSS = draw.COLOURS["forward"], "#F2C6DC"


def bug2_singlegpu_talk_rungs() -> draw.Picture:
    """From one process to two nodes: what each rung adds."""
    return calls.rungs()


def bug2_singlegpu_talk_waits() -> draw.Picture:
    """The same fault alone, and on two ranks."""
    alone = [Bar(0, 0, 1.6, "works"), Bar(0, 1.6, 2.6, "writes its traceback")]
    two = [
        *(Bar(0, 0, 1.9, "works"), Bar(0, 1.9, 6, "waits")),
        *(Bar(1, 0, 1.3, "works"), Bar(1, 1.3, 2.3, "writes its traceback")),
        Bar(1, 2.3, 6, "waits"),
    ]
    return failures.lanes(
        {
            "One process": (alone, [Mark(2.6, "it has ended")]),
            "Two ranks": (two, [Mark(6.0, "time limit")]),
        },
        until=6.6,
        below=True,
    )


def bug2_singlegpu_talk_order() -> draw.Picture:
    """Two ranks whose calls part: MPI pairs them by order."""
    gradient, loss = ("sum of a gradient", GRADIENT), ("sum of the losses", LOSS)
    columns = (("rank 0", (gradient,) * 3 + (loss,)), ("rank 1", (gradient,) * 2 + (loss,)))
    return calls.calls_in_order(columns, (True, True, False, False))


def bug2_singlegpu_talk_positions() -> draw.Picture:
    """Two arrays of the same length, whose places mean different things."""
    return calls.by_position(
        (
            ("rank 0", (("apple", 2), ("bread", 1), ("cheese", 4), ("egg", 1))),
            ("rank 1", (("apple", 1), ("cheese", 3), ("milk", 2), ("rice", 5))),
        )
    )


FIGURES = (
    bug2_singlegpu_talk_rungs,
    bug2_singlegpu_talk_waits,
    bug2_singlegpu_talk_order,
    bug2_singlegpu_talk_positions,
)
