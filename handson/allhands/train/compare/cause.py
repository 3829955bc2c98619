"""What is one rule of causes: which failed check does it explain, and when?"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Facts = Mapping[str, object]


@dataclass(frozen=True)
class Cause:
    """check: whose failure it explains. id: its short name. cause, remedy: sentences."""

    check: str
    id: str
    when: Callable[[Facts], bool]
    cause: str
    remedy: str


def otherwise(facts: Facts) -> bool:
    return True


ANY = "any check"
