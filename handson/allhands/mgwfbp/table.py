"""Measured all-reduce times as a file: CSV with the columns n_bytes and time_s (seconds)."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_table(path: Path | str, n_bytes: Sequence[int], time_s: Sequence[float]) -> None:
    """Write one line a size; `read_table` reads the same numbers back, to the last digit."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["n_bytes", "time_s"])
        writer.writerows(zip(n_bytes, map(repr, time_s), strict=True))


def read_table(path: Path | str) -> tuple[np.ndarray, np.ndarray]:
    """Read sizes in bytes and times in seconds, (n,) each.

    Raises ValueError, in a sentence that names file and line, for anything else.
    """
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if header != ["n_bytes", "time_s"]:
            raise ValueError(f"{path}:1: expected the columns n_bytes,time_s; saw {header}.")
        points = []
        for row in rows:
            try:
                n_bytes, time_s = map(float, row)
            except ValueError:
                raise ValueError(
                    f"{path}:{rows.line_num}: expected two numbers, saw {row}."
                ) from None
            points.append((n_bytes, time_s))
    sizes, times_s = np.array(points, dtype=float).reshape(-1, 2).T
    return sizes, times_s
