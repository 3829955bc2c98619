"""Where do the ranks of a comparison write down what they saw? Pickled records in one folder.

`rankN.NAME` is a record of rank N, `alone.NAME` one of the run alone; `rankN.where` (JSON) says
which stage the rank has reached, and the file `hang` that all ranks waited for each other. The
ranks write (`rank.py`); the caller reads, also what a job left that did not end.
"""

import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SAME = 1e-6  # how near parameters are that were drawn with one seed, or copied
Arrays = dict[str, np.ndarray | None]  # by parameter; None: it has no values yet


@dataclass(frozen=True)
class Records:
    """The records of one comparison."""

    folder: Path

    def put(self, who: str, name: str, value: object) -> None:
        """Write a record. A reader sees all of it or none."""
        part = self.folder / f"{who}.{name}.part"
        part.write_bytes(pickle.dumps(value))
        part.replace(self.folder / f"{who}.{name}")

    def get(self, who: str, name: str) -> object:
        """Return a record; None if there is none."""
        try:
            return pickle.loads((self.folder / f"{who}.{name}").read_bytes())
        except FileNotFoundError:
            return None

    def of_ranks(self, name: str, ranks: int) -> list:
        return [self.get(f"rank{rank}", name) for rank in range(ranks)]

    def where(self, rank: int) -> dict | None:
        """{"now": stage, "left": stage, "place": line, "waits": bool, "still_s": s}, or None."""
        try:
            return json.loads((self.folder / f"rank{rank}.where").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None


def fit_together(shapes: list[dict[str, tuple | None]]) -> bool:
    """Have all these models the same parameters? A shape that is not known yet (None) fits."""
    return all(
        one.keys() == shapes[0].keys()
        and all(
            None in (one[name], shapes[0][name]) or one[name] == shapes[0][name] for name in one
        )
        for one in shapes
    )


def distance(one: Arrays, other: Arrays) -> float:
    """|one - other| / |other|, Euclidean norms over all numbers together; inf if one lacks values.

    0 if both are zero everywhere.
    """
    if any((one[name] is None) != (other[name] is None) for name in other):
        return float("inf")
    return norm(difference(one, other)) / (norm(other) or 1.0)


def difference(one: Arrays, other: Arrays) -> Arrays:
    return {
        name: None if value is None else one[name].astype(float) - value
        for name, value in other.items()
    }


def norm(values: Arrays) -> float:
    return float(np.sqrt(inner(values, values)))


def inner(one: Arrays, other: Arrays) -> float:
    return sum(
        float(np.vdot(one[name].astype(float), value.astype(float)))
        for name, value in other.items()
        if value is not None and one[name] is not None
    )


def farthest(one: Arrays, other: Arrays) -> str:
    """The name of the parameter that differs most."""
    gap = difference(one, other)
    return max(gap, key=lambda name: -1.0 if gap[name] is None else float(abs(gap[name]).max()))
