"""The figures of the talk on counting errors."""

from allhands.trace import diagrams_race, draw
from allhands.trace.talks import canvas
from allhands.trace.talks.canvas import LARGE_PT, LOW


def bug1_errorcount_talk_race() -> draw.Picture:
    """Four ranks with the same fault, 0.3 s apart: the first one aborts the job at once."""
    picture = diagrams_race.race(spread_s=0.3, writes_s=0.4, waits_s=(0.0,))
    picture.axes[0].set_xlim(-0.3, 0.6)
    return canvas.for_slide(picture, LOW, LARGE_PT)


FIGURES = (bug1_errorcount_talk_race,)
