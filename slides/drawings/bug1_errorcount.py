"""The figures of the talk on counting errors."""

from allhands.trace import diagrams_race, diagrams_talks, draw
from allhands.trace.diagrams_failures import PT, SIZE


def bug1_errorcount_talk_race() -> draw.Picture:
    """Four ranks with the same fault, 0.3 s apart: the first one aborts the job at once."""
    picture = diagrams_race.race(spread_s=0.3, writes_s=0.4, waits_s=(0.0,))
    picture.axes[0].set_xlim(-0.3, 0.6)
    return diagrams_talks.for_slide(picture, SIZE, PT)


FIGURES = (bug1_errorcount_talk_race,)
