"""What is in a profile? Kernels that a GPU ran, summed over launches that are alike.

Conventions: times in seconds; shapes as the framework gave them to its operator, rows first.
"""

from dataclasses import dataclass, replace
from pathlib import Path

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Launches:
    """Launches of one kernel that are alike in everything the profile says of them.

    operator: the framework's operator that launched it, such as `aten::addmm`; its inputs have
    `shapes` and `types` (as the profile writes them). layer: the module or named range around the
    operator. Empty where the profile does not say.
    """

    name: str
    calls: int
    total_s: float
    operator: str = ""
    shapes: tuple[Shape, ...] = ()
    types: tuple[str, ...] = ()
    layer: str = ""


@dataclass(frozen=True)
class Trace:
    """A profile: all its launches, the longest first.

    format: what wrote the file, such as `torch.profiler`. chip: the GPU's name, "" if the file does
    not say. origin: where a trace of the course comes from, "" for other files.
    """

    path: Path
    format: str
    launches: tuple[Launches, ...]
    chip: str = ""
    origin: str = ""


class Sums:
    """Adds launches up while a file is read; the memory is that of the different ones."""

    def __init__(self) -> None:
        self._sums: dict[Launches, list] = {}

    def add(self, one: Launches) -> None:
        key = replace(one, calls=0, total_s=0.0)
        sums = self._sums.setdefault(key, [0, 0.0])
        sums[0] += one.calls
        sums[1] += one.total_s

    def launches(self) -> tuple[Launches, ...]:
        """All launches, the longest first; ties in order of name."""
        found = (replace(key, calls=n, total_s=s) for key, (n, s) in self._sums.items())
        return tuple(sorted(found, key=lambda one: (-one.total_s, one.name, one.layer)))
