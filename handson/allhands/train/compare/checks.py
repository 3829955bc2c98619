"""What is one check of a comparison, and when can it be made?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from allhands.train.compare.records import Records, fit_together


@dataclass(frozen=True)
class Check:
    """One thing that was compared. equal: None if it could not be compared.

    seen: what was seen, with figures. id, cause, remedy: the usual cause of this difference, by a
    short name and in words; empty if there is none.
    """

    name: str
    equal: bool | None
    seen: str
    cause: str = ""
    remedy: str = ""
    id: str = ""
    facts: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Ending:
    """How a job ended that did not reach its end. kind: hang, time, mpi or failed."""

    kind: str
    stage: str
    sentence: str
    waiting: tuple[int, ...] = ()

    @property
    def check(self) -> str:
        """The check to which the stage belongs."""
        if self.stage.startswith("step ") and self.stage != "step 1":
            return "parameters"
        return STAGES.get(self.stage, "world")

    @property
    def facts(self) -> dict[str, object]:
        return {"ending": self.kind, "stage": self.stage, "waiting": list(self.waiting)}


STAGES = {
    "build": "same",
    "build alone": "same",
    "samples": "samples",
    "first update": "initial",
    "step 1": "gradient",
    "steps alone": "gradient",
    "evaluate": "counts",
    "evaluate alone": "counts",
}


class Missing(Exception):
    """A check cannot be made; the text says why, after "since"."""


def need(records: Records, name: str, ranks: int) -> list:
    """The record of every rank; Missing if one has none."""
    found = records.of_ranks(name, ranks)
    if any(one is None for one in found):
        built = [*records.of_ranks("built", ranks), records.get("alone", "built")]
        if None not in built and not fit_together([one["shapes"] for one in built]):
            raise Missing("the ranks' models have parameters of different sizes")
        epochs = records.of_ranks("epochs", ranks)
        if None not in epochs and not min(len(numbers[0]) for numbers in epochs):
            raise Missing("a rank has no batch")
        raise Missing("the ranks did not come so far")
    return found


def need_alone(records: Records, name: str):
    found = records.get("alone", name)
    if found is None:
        raise Missing("the run alone did not come so far")
    return found


def failed(checks: Sequence[Check], *names: str) -> None:
    """Raise Missing if one of these checks has failed, or was not made."""
    for check in checks:
        if check.name in names and check.equal is not True:
            raise Missing(
                f"`{check.name}` differs"
                if check.equal is False
                else f"`{check.name}` could not be compared"
            )


def by_rank(words: Sequence[str] | Mapping[int, str], alone: str | None = None) -> str:
    """ranks 0, 1 12, rank 2 11, alone 12: ranks that say the same are put together."""
    by_word: dict[str, list[int]] = {}
    for rank, word in (words if isinstance(words, Mapping) else dict(enumerate(words))).items():
        by_word.setdefault(word, []).append(rank)
    said = [f"{ranks_named(ranks)} {word}" for word, ranks in by_word.items()]
    return ", ".join(said + ([f"alone {alone}"] if alone is not None else []))


def ranks_named(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def on(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def counted(n: int, noun: str) -> str:
    """1 sample, 2 samples"""
    return f"{n} {noun}" + ("s" if n != 1 else "")
