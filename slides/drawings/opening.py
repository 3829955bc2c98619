"""The figures of the opening talk."""

from allhands.trace import diagrams_parallel, draw
from allhands.trace.talks import opening
from allhands.trace.talks.opening import Reached


def opening_reached() -> draw.Picture:
    """ResNet-50 on ImageNet, as published: the table of Mikami et al. 2018 (arXiv:1811.05233)."""
    he = Reached("He et al. 2016", 8, "P100", 29 * 60, "256", "75.3 %")
    runs = (
        he,
        Reached("Goyal et al. 2017", 256, "P100", 60, "8K", "76.3 %"),
        Reached("Akiba et al. 2017, with ChainerMN", 1024, "P100", 15, "32K", "74.9 %"),
        Reached("Mikami et al. 2018", 2176, "V100", 224 / 60, "34K to 68K", "75.0 %", above=False),
    )
    return opening.reached(runs, ideal_from=he)


def opening_split() -> draw.Picture:
    """Data parallel and model parallel."""
    return diagrams_parallel.two_answers("What is split?")


def opening_through() -> draw.Picture:
    """Parameter server and peer to peer."""
    return diagrams_parallel.two_answers("Through whom?")


def opening_pipeline() -> draw.Picture:
    """One step of a model that is cut over four ranks."""
    return opening.pipeline()


def opening_waiting() -> draw.Picture:
    """Four ranks, synchronous and asynchronous, with the same times to compute."""
    return opening.waiting()


def opening_stragglers() -> draw.Picture:
    """How long the slowest of N ranks takes."""
    return opening.stragglers()


def opening_staleness() -> draw.Picture:
    """Descent with gradients that come late."""
    return opening.staleness()


def opening_server_or_ring() -> draw.Picture:
    """An exchange of 100 MB over links of 10 Gbit/s: through one server, and in a ring."""
    return opening.server_or_ring()


def opening_linear_rule() -> draw.Picture:
    """Loss after the same number of samples, over the batch, with three rules for the rate."""
    return opening.linear_rule()


def opening_lower_or_grow() -> draw.Picture:
    """The rate lowered, and the batch grown instead."""
    return opening.lower_or_grow()


FIGURES = (
    opening_reached,
    opening_split,
    opening_through,
    opening_pipeline,
    opening_waiting,
    opening_stragglers,
    opening_staleness,
    opening_server_or_ring,
    opening_linear_rule,
    opening_lower_or_grow,
)
