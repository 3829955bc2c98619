"""How does one read a profiler's table? CSV with lines around it, and units in it.

`nsys stats --format csv` writes "Processing [...]" lines before the header, and the unit into the
header: `Total Time (ns)`. nvprof writes `==PID==` lines before it, and the units into the first row
below it. Times come back in seconds.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

UNITS_S = {
    **{"ns": 1e-9, "nsec": 1e-9, "us": 1e-6, "usec": 1e-6, "μs": 1e-6, "ms": 1e-3, "msec": 1e-3},
    **{"s": 1.0, "sec": 1.0},
}
BESIDE = ("==", "#", "Processing [")  # lines that are not of the table
_FIRST_CELL = re.compile(r"[\d.,]+|GPU activities|API calls")
_UNIT = re.compile(r"\s*\((?P<unit>[^()]*)\)\s*$")


@dataclass(frozen=True)
class Column:
    """A column of a header: its name in lower case without the unit, and the unit."""

    name: str
    unit: str


def column(text: str) -> Column:
    """Take `Total Time (ns)` apart."""
    found = _UNIT.search(text)
    if not found:
        return Column(text.strip().lower(), "")
    return Column(text[: found.start()].strip().lower(), found["unit"].lower())


def rows(lines: Iterable[str], path: Path) -> Iterator[list[str]]:
    """Yield the cells of each line that has more than one cell.

    Raises ValueError: for a quote that does not close, and for a table that is cut off. A profiler
    ends every line; a last line without its end, or with one number alone, was cut.
    """
    seen = _Seen()
    cells: list[str] = []
    try:
        for cells in csv.reader(seen.of_table(lines), strict=True):
            if len(cells) > 1:
                yield [cell.strip() for cell in cells]
    except csv.Error as error:
        raise ValueError(
            f"{path} is no table that can be read, or is cut off: {error}. Write the table again."
        ) from error
    if not seen.last.endswith(("\n", "\r")):
        raise ValueError(
            f"{path} is cut off: its last line has no end. Copy it again, or write the table again."
        )
    if len(cells) == 1 and _FIRST_CELL.fullmatch(cells[0].strip()):
        raise ValueError(
            f"{path} is cut off: its last row is {cells[0].strip()!r} alone. Write the table again."
        )


class _Seen:
    """Passes the lines of a table on, without what a profiler says around it."""

    def __init__(self) -> None:
        self.last = "\n"

    def of_table(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self.last = line
            if not line.startswith(BESIDE):
                yield line


def seconds(text: str, unit: str, path: Path) -> float:
    """Return a time in seconds. Raises ValueError with one sentence."""
    if unit not in UNITS_S:
        raise ValueError(f"{path}: the unit of a time is {unit!r}, expected ns, us, ms or s.")
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise ValueError(f"{path}: expected a time in {unit}, saw {text!r}.") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{path}: a time is 0 or more, saw {text!r}.")
    return value * UNITS_S[unit]


def name(text: str, path: Path) -> str:
    """Return a kernel's name, the last cell of a row. Raises ValueError if it is not there."""
    if not text:
        raise ValueError(f"{path} is cut off: a row has no kernel's name. Write the table again.")
    return text


def count(text: str, path: Path) -> int:
    """Return a number of calls. Raises ValueError with one sentence."""
    try:
        return int(float(text.replace(",", "")))
    except (ValueError, OverflowError):
        raise ValueError(f"{path}: expected a number of calls, saw {text!r}.") from None
