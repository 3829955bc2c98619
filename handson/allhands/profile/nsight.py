"""How does one read Nsight Systems? Its sqlite export, and the tables of `nsys stats`.

    nsys profile -o run python train.py
    nsys export --type sqlite run.nsys-rep                        -> run.sqlite
    nsys stats --format csv --report cuda_gpu_kern_sum run.nsys-rep   (old name: gpukernsum)
    nsys stats --format csv --report cuda_gpu_trace run.nsys-rep      (old name: gputrace)

The sqlite export has times in ns (tables CUPTI_ACTIVITY_KIND_*), names in StringIds, and NVTX
ranges in NVTX_EVENTS. A kernel belongs to the innermost NVTX range around the call that launched
it. The ranges of `torch.autograd.profiler.emit_nvtx(record_shapes=True)` name an operator and the
sizes of its inputs.
"""

import ast
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from allhands.profile import tables
from allhands.profile.launches import Launches, Sums, Trace

NS = 1e-9
NO_NAME = "(a kernel without a name)"
THREAD_BITS = 24  # of a globalTid; the rest is the process, as in globalPid
PUSH_POP, START_END = 59, 60  # eventType of NVTX ranges
SUMMARY = ("total time", "instances")  # columns of cuda_gpu_kern_sum besides the name
TIMELINE = ("duration",)  # of cuda_gpu_trace
_SIZES = re.compile(r"sizes = (\[\[.*?\]\]|\[\])(,|$)")


def read_sqlite(path: Path) -> Trace:
    """Read an sqlite export. Raises ValueError with one sentence."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            base.text_factory = lambda text: text.decode(errors="replace")
            return _read_base(base, path)
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"{path} is an sqlite file that cannot be read ({error}): it is damaged or cut off. "
            f"Export it again: nsys export --type sqlite."
        ) from error


def _read_base(base: sqlite3.Connection, path: Path) -> Trace:
    there = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    if "StringIds" not in there:
        raise ValueError(
            f"{path} is an sqlite file without the tables of Nsight Systems (StringIds). Make it "
            f"with nsys export --type sqlite."
        )
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in there:
        raise ValueError(
            f"{path}: no GPU kernel in this trace. Profile on a GPU: "
            f"nsys profile --trace=cuda,nvtx."
        )
    ranges = _Ranges(base, there)
    names = _columns(base, "CUPTI_ACTIVITY_KIND_KERNEL")
    name = "demangledName" if "demangledName" in names else "shortName"
    sums = Sums()
    process = "k.globalPid" if "globalPid" in names else "0"
    query = (
        f"SELECT s.value, k.end - k.start, {process}, k.correlationId "
        f"FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN StringIds s ON s.id = k.{name} "
        f"WHERE k.start IS NOT NULL AND k.end IS NOT NULL"
    )
    for value, duration_ns, process_id, correlation in base.execute(query):
        operator, shapes, layer = ranges.of(process_id, correlation)
        kernel = value if isinstance(value, str) else NO_NAME
        sums.add(Launches(kernel, 1, _seconds(duration_ns), operator, shapes, (), layer))
    for table, value in (("MEMCPY", "[CUDA memcpy]"), ("MEMSET", "[CUDA memset]")):
        if f"CUPTI_ACTIVITY_KIND_{table}" in there:
            query = f"SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_{table}"
            calls, total_ns = base.execute(query).fetchone()
            if calls:
                sums.add(Launches(value, calls, _seconds(total_ns)))
    launches = sums.launches()
    if not launches:
        raise ValueError(f"{path}: no GPU kernel in this trace. Profile while the GPU works.")
    return Trace(path, "nsys sqlite", launches, _chip(base, there), _origin(base, there))


def _seconds(ns: object) -> float:
    """Return a time of the database; what is no time counts as 0."""
    return ns * NS if isinstance(ns, int | float) and 0 <= ns < float("inf") else 0.0


def _columns(base: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in base.execute(f"PRAGMA table_info({table})")}


def _chip(base: sqlite3.Connection, there: set[str]) -> str:
    if "TARGET_INFO_GPU" not in there:
        return ""
    row = base.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 1").fetchone()
    return str(row[0]) if row else ""


def _origin(base: sqlite3.Connection, there: set[str]) -> str:
    if "ALLHANDS_ORIGIN" not in there:
        return ""
    row = base.execute("SELECT text FROM ALLHANDS_ORIGIN LIMIT 1").fetchone()
    return str(row[0]) if row else ""


class _Ranges:
    """The innermost NVTX range around each launch, by the launch's correlation."""

    def __init__(self, base: sqlite3.Connection, there: set[str]) -> None:
        self._found: dict[tuple[int, int], tuple[str, tuple, str]] = {}
        if not {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"} <= there:
            return
        text = "coalesce(n.text, s.value)" if "textId" in _columns(base, "NVTX_EVENTS") else "text"
        join = "LEFT JOIN StringIds s ON s.id = n.textId" if "s.value" in text else ""
        rows: dict[int, list[tuple[int, int, str]]] = {}
        query = (
            f"SELECT n.globalTid, n.start, n.end, {text} FROM NVTX_EVENTS n {join} "
            f"WHERE n.eventType IN ({PUSH_POP}, {START_END})"
        )
        for thread, start, end, value in base.execute(query):
            if all(isinstance(one, int) for one in (thread, start, end)) and _is_text(value):
                rows.setdefault(thread, []).append((start, end, value))
        query = "SELECT globalTid, start, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        launches: dict[int, list[tuple[int, int]]] = {}
        for thread, start, correlation in base.execute(query):
            if not all(isinstance(one, int) for one in (thread, start, correlation)):
                continue
            launches.setdefault(thread, []).append((start, correlation))
        for thread, ranges in rows.items():
            for correlation, around in _around(ranges, launches.get(thread, [])):
                self._found[thread >> THREAD_BITS, correlation] = _meaning(around)

    def of(self, process: object, correlation: object) -> tuple[str, tuple, str]:
        """Return operator, shapes and layer of a launch; processes number theirs apart."""
        if not isinstance(process, int):
            return "", (), ""
        return self._found.get((process >> THREAD_BITS, correlation), ("", (), ""))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _around(ranges: list[tuple[int, int, str]], moments: Iterable[tuple[int, int]]):
    """Yield (correlation, names of the ranges around its moment, the outer first)."""
    ranges = sorted(ranges, key=lambda row: (row[0], -row[1]))
    open_: list[tuple[int, str]] = []
    next_ = 0
    for moment, correlation in sorted(moments):
        while next_ < len(ranges) and ranges[next_][0] <= moment:
            start, end, name = ranges[next_]
            open_ = [one for one in open_ if one[0] > start]
            open_.append((end, name))
            next_ += 1
        open_ = [one for one in open_ if one[0] > moment]
        yield correlation, [name for _, name in open_]


def _meaning(names: list[str]) -> tuple[str, tuple, str]:
    """Take NVTX names apart: operator and shapes of emit_nvtx, and the innermost other name."""
    operator, shapes, layer = "", (), ""
    for name in names:
        first = name.split(",")[0]
        if first.startswith("aten::"):
            operator, shapes = first, _shapes(name)
        elif "::" not in first:
            layer = first.strip()
    return operator, shapes, layer


def _shapes(text: str) -> tuple:
    found = _SIZES.search(text)
    if not found:
        return ()
    try:
        return tuple(tuple(int(size) for size in shape) for shape in ast.literal_eval(found[1]))
    except (ValueError, SyntaxError, TypeError):
        return ()


def read_csv(lines: Iterable[str], path: Path, origin: str = "") -> Trace:
    """Read a table of `nsys stats`. Raises ValueError with one sentence."""
    columns: list[tables.Column] = []
    sums = Sums()
    chip = ""
    for cells in tables.rows(lines, path):
        names = [tables.column(cell) for cell in cells]
        found = {one.name for one in names}
        if names[-1].name == "name" and any(found >= set(one) for one in (SUMMARY, TIMELINE)):
            columns = names
            continue
        if not columns:
            continue
        if len(cells) < len(columns):
            raise ValueError(
                f"{path} is cut off: a row has {len(cells)} cells, its header {len(columns)}. "
                f"Run nsys stats again."
            )
        # A name may hold commas where the writer did not quote it.
        cells = [*cells[: len(columns) - 1], ", ".join(cells[len(columns) - 1 :])]
        row = {one.name: cell for one, cell in zip(columns, cells, strict=True)}
        unit = {one.name: one.unit or "ns" for one in columns}
        name = tables.name(row["name"], path)
        if "instances" in row:
            time_s = tables.seconds(row["total time"], unit["total time"], path)
            sums.add(Launches(name, tables.count(row["instances"], path), time_s))
        else:
            time_s = tables.seconds(row["duration"], unit["duration"], path)
            chip = chip or _device(row.get("device", ""))
            sums.add(Launches(name, 1, time_s))
    launches = sums.launches()
    if not launches:
        raise ValueError(f"{path}: no GPU kernel in this table. Profile on a GPU: --trace=cuda.")
    return Trace(path, "nsys csv", launches, chip, origin)


def _device(text: str) -> str:
    return re.sub(r"\s*\(\d+\)$", "", text)
