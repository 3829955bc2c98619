"""The figures of the talk on slow ranks: small invented times, simulated step by step."""

from allhands.trace import draw
from allhands.trace.talks.failures import Bar, Mark, lanes

READS, EVALUATES, OTHER = "reads and prepares", "evaluates", "another program has the core"


def bug4_slower_talk_clock() -> draw.Picture:
    """Two ranks with equal work; for a while another program has the core of one."""
    clock = [
        *(Bar(0, 0, 3, "works"), Bar(0, 3, 5, "waits")),
        *(Bar(1, 0, 1, "works"), Bar(1, 1, 3, OTHER), Bar(1, 3, 5, "works")),
    ]
    cpu = [Bar(0, 0, 3, "works"), Bar(1, 0, 3, "works")]
    panels = {
        "On the clock: the step takes 5": (clock, [Mark(5, "")]),
        "In CPU seconds of its work: it takes 3": (cpu, [Mark(3, "")]),
    }
    return lanes(panels, until=5.6, below=True)


def bug4_slower_talk_path() -> draw.Picture:
    """Three steps of two ranks, on the clock: which bars decide how long the run takes?"""
    bars, marks, start = [], [], 0.0
    for works in ((3, 4), (5, 3), (2, 4)):
        slowest = max(works)
        for rank, took in enumerate(works):
            bars.append(Bar(rank, start, start + took, "works", f"{took} s"))
            if took < slowest:
                bars.append(Bar(rank, start + took, start + slowest, "waits"))
            bars.append(Bar(rank, start + slowest, start + slowest + 1, "exchanges", "1 s"))
        start += slowest + 1
        marks.append(Mark(start, f"step {len(marks) + 1}"))
    return lanes({"": (bars, marks)}, until=start + 0.6)


def bug4_slower_talk_shared() -> draw.Picture:
    """An epoch alone, and on two ranks that share the training and nothing else."""
    alone = [Bar(0, 0, 1, READS), Bar(0, 1, 5, "works"), Bar(0, 5, 7, EVALUATES)]
    two = [
        *(Bar(0, 0, 1, READS), Bar(1, 0, 1, "waits")),
        *(Bar(rank, 1, 3, "works") for rank in (0, 1)),
        *(Bar(rank, 3, 5, EVALUATES) for rank in (0, 1)),
    ]
    panels = {
        "One process: an epoch takes 7": (alone, [Mark(7, "")]),
        "Two ranks: an epoch takes 5": (two, [Mark(5, "")]),
    }
    return lanes(panels, until=7.6, below=True)


def bug4_slower_talk_hidden() -> draw.Picture:
    """Each of two ranks is slowed by another cause: mending one of them changes nothing."""

    def epoch(a: float, b: float) -> tuple[list[Bar], list[Mark]]:
        ends = (3 + a, 3 + b)
        bars = [Bar(rank, 0, 3, "works") for rank in (0, 1)]
        bars += [Bar(rank, 3, end, f"cause {'AB'[rank]}") for rank, end in enumerate(ends)]
        bars += [Bar(rank, end, max(ends), "waits") for rank, end in enumerate(ends)]
        return [bar for bar in bars if bar.end > bar.start], [Mark(max(ends), "")]

    panels = {
        "With causes A and B: 5": epoch(2, 2),
        "A is mended: still 5": epoch(0, 2),
        "A and B are mended: 3": epoch(0, 0),
    }
    return lanes(panels, until=5.6, below=True)


FIGURES = (
    bug4_slower_talk_clock,
    bug4_slower_talk_path,
    bug4_slower_talk_shared,
    bug4_slower_talk_hidden,
)
