"""How does one read nvprof? Its table with --csv, as summary or with --print-gpu-trace.

    nvprof --csv --log-file run.csv python train.py
    nvprof --csv --print-gpu-trace --log-file run.csv python train.py

Lines that begin with `==PID==` stand before the table. Below the header stands a row of units, such
as `,%,ms,,us,us,us,`. Rows of type "API calls" are of the CPU and left out. (nvprof does not know
chips after Volta and Turing.)
"""

import re
from collections.abc import Iterable
from pathlib import Path

from allhands.profile import tables
from allhands.profile.launches import Launches, Sums, Trace

GPU = "GPU activities"
HEADERS = ({"time", "calls", "name"}, {"duration", "name"})  # of the summary, and of the trace


def read(lines: Iterable[str], path: Path, origin: str = "") -> Trace:
    """Read nvprof's CSV. Raises ValueError with one sentence."""
    names: list[str] = []
    units: list[str] = []
    sums = Sums()
    chip = ""
    for cells in tables.rows(lines, path):
        found = [tables.column(cell).name for cell in cells]
        if any(set(found) >= one for one in HEADERS):
            names, units = found, []
            continue
        if not names:
            continue
        if not units:
            units = [cell.lower() for cell in cells]
            continue
        if len(cells) < len(names):
            raise ValueError(
                f"{path} is cut off: a row has {len(cells)} cells, its header {len(names)}. Run "
                f"nvprof again."
            )
        row = dict(zip(names, cells, strict=False))
        unit = dict(zip(names, units, strict=False))
        name = tables.name(row["name"], path)
        if "calls" in row:
            if row.get("type", GPU) == GPU:
                time_s = tables.seconds(row["time"], unit.get("time", ""), path)
                sums.add(Launches(name, tables.count(row["calls"], path), time_s))
        elif row["duration"]:
            time_s = tables.seconds(row["duration"], unit.get("duration", ""), path)
            chip = chip or re.sub(r"\s*\(\d+\)$", "", row.get("device", ""))
            name = re.sub(r"\s*\[\d+\]$", "", name)  # the number of the launch
            sums.add(Launches(name, 1, time_s))
    launches = sums.launches()
    if not launches:
        raise ValueError(f"{path}: no GPU kernel in this table. Profile a program that uses a GPU.")
    return Trace(path, "nvprof csv", launches, chip, origin)
