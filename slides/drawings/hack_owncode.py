"""The figures of the talk before the day with one's own code."""

from allhands.trace import draw
from allhands.trace.talks import own_program, ranks


def hack_owncode_talk_clock() -> draw.Picture:
    """A program asks a device for steps, and reads the clock."""
    return own_program.asked_and_done()


def hack_owncode_talk_cards() -> draw.Picture:
    """The same batch on one device and on two ranks."""
    return own_program.dealt_out()


def hack_owncode_talk_ratio() -> draw.Picture:
    """Two ranks with shares of different size."""
    return ranks.two_shards([[True] * 9 + [False], [True, False]])


FIGURES = (hack_owncode_talk_clock, hack_owncode_talk_cards, hack_owncode_talk_ratio)
