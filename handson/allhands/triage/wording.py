"""How are the gaps in a rule's sentences filled, so that they stay sentences?"""

import re
from collections.abc import Sequence

from allhands.triage.conditions import Case
from allhands.triage.marks import ranges


def filled(sentence: str, case: Case) -> str:
    """The sentence with {ranks}, {culprits}, {error} and {place} of the case's root."""
    root = case.root
    place = "{}:{}".format(*root.frame[:2]) if root.frame else "the line shown"
    values = {
        "ranks": listed(root.ranks), "culprits": listed(root.culprits),
        "error": root.error_class, "place": place,
    }  # fmt: skip
    numbers = {"ranks": root.ranks, "culprits": root.culprits}

    def named(match: re.Match) -> str:
        if not numbers[match["which"]]:
            return f"{'A' if match['capital'] else 'a'} rank that the log does not name"
        word = ("R" if match["capital"] else "r") + "ank" + "s" * (len(numbers[match["which"]]) > 1)
        return f"{word} {values[match['which']]}"

    pattern = r"(?:r|(?P<capital>R))anks? \{(?P<which>ranks|culprits)\}"
    sentence = re.sub(pattern, named, sentence)
    return re.sub(r"\{(\w+)\}", lambda m: values.get(m[1], m[0]), sentence)


def listed(ranks: Sequence[int]) -> str:
    """`0-3, 5`, or that nothing tells."""
    return ranges(ranks) or "(unknown)"
