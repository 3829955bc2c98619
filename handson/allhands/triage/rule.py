"""The table of causes: which text, seen on which ranks, has which likely cause?

Rules are data, tried from the top; the first that fits gives the cause. `message` is searched in
the root's own text, `anywhere` in every line of the log. `when` names a condition on ranks
(conditions.py). `depends` says whether the failure is a matter of rank or device: True, False,
"some" (yes, unless every rank prints it), or None (counting decides). `culprits` names how the
ranks to look at are found. Sources: the public reports that the course's reference lists, and the
libraries' sources.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One cause. Sentences may hold {ranks}, {culprits}, {error} and {place}."""

    cause_id: str
    cause: str
    next_step: str
    message: re.Pattern | None = None
    anywhere: re.Pattern | None = None
    kinds: tuple[str, ...] = ("exception", "secondary")
    when: str | None = None
    depends: bool | str | None = None
    culprits: str = "printers"


def rule(cause_id: str, cause: str, next_step: str, *, message=None, anywhere=None, **more) -> Rule:
    """A rule from plain text patterns, in which capital and small letters are one."""

    def pattern(text: str | None) -> re.Pattern | None:
        return re.compile(text, re.IGNORECASE) if text else None

    return Rule(cause_id, cause, next_step, pattern(message), pattern(anywhere), **more)
