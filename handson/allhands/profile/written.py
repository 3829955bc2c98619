"""How were the traces written? `python -m allhands.profile.written [FOLDER]` does it again.

Each step of written_steps.py becomes a torch.profiler trace and one file of a second profiler, in
the layout that the profiler's documentation shows. Every file says its origin.
"""

import csv
import gzip
import io
import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from allhands.profile.shelf import FOLDER
from allhands.profile.written_steps import STEPS_WRITTEN, Row, Step

ORIGIN = (
    "written from public documentation, not recorded: published kernel names, invented times "
    "(allhands/profile/written_steps.py; sources in README.md)"
)
LAUNCH_US, GAP_US = 4.0, 6.0
FORWARD_THREAD, BACKWARD_THREAD = 101, 102
NVPROF_PID = 4242


def launches(step: Step) -> Iterator[tuple[Row, float]]:
    """Yield (row, start in us on the GPU) of every launch."""
    now_us = 100.0
    for row in step.rows:
        for _ in range(row.calls):
            yield row, now_us
            now_us += row.each_us + 1.0


def torch_trace(step: Step) -> str:
    """Return the step as `export_chrome_trace` writes it, one event a line."""
    lines = [json.dumps(event) for event in _events(step)]
    head = {
        "schemaVersion": 1,
        "origin": ORIGIN,
        "about": f"one training step: {step.about}",
        "deviceProperties": [{"id": 0, "name": step.chip}],
    }
    return json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"


def _events(step: Step) -> Iterator[dict]:
    host_us, gpu_us, external = 10.0, 100.0, 1
    sequences: dict[str, int] = {}
    for row in step.rows:
        thread = BACKWARD_THREAD if row.backward else FORWARD_THREAD
        span_us = row.calls * LAUNCH_US + 4.0
        if not row.backward:
            sequences.setdefault(row.layer, len(sequences) + 1)
            if row.layer:
                yield _span("user_annotation", row.layer, thread, host_us - 1, span_us + 2)
        if row.operator:
            args = {
                "External id": external,
                "Input Dims": [list(shape) for shape in row.shapes],
                "Input type": [row.dtype or step.dtype] * len(row.shapes),
            }
            if row.layer in sequences:
                args["Sequence number"] = sequences[row.layer]
                args["Fwd thread id"] = FORWARD_THREAD if row.backward else 0
            yield _span("cpu_op", row.operator, thread, host_us, span_us, args)
        for call in range(row.calls):
            correlation = external * 100 + call
            start_us = host_us + 1 + call * LAUNCH_US
            both = {"External id": external, "correlation": correlation}
            copying = row.kernel.startswith("[CUDA")
            call_name = "cudaMemcpyAsync" if copying else "cudaLaunchKernel"
            yield _span("cuda_runtime", call_name, thread, start_us, 2.0, both)
            name = "Memcpy HtoD (Pageable -> Device)" if copying else row.kernel
            where = {"device": 0, "stream": 7, **both}
            yield _span(
                "gpu_memcpy" if copying else "kernel", name, 7, gpu_us, row.each_us, where, pid=0
            )
            gpu_us += row.each_us + 1.0
        external += 1
        host_us += span_us + GAP_US


def _span(category: str, name: str, tid: int, ts: float, dur: float, args=None, pid=1) -> dict:
    span = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}
    return span | ({"args": args} if args else {})


def _summary(step: Step) -> list[tuple[str, int, list[float]]]:
    """Return (kernel, calls, times in us), the longest first."""
    times: dict[str, list[float]] = {}
    for row in step.rows:
        times.setdefault(row.kernel, []).extend([row.each_us] * row.calls)
    return sorted(((name, len(us), us) for name, us in times.items()), key=lambda one: -sum(one[2]))


def _table(rows: list[list], quoting: int = csv.QUOTE_MINIMAL) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=quoting, lineterminator="\n").writerows(rows)
    return text.getvalue()


def nvprof(step: Step) -> str:
    """Return the step as `nvprof --csv` writes it."""
    found = _summary(step)
    total_us = sum(sum(us) for _, _, us in found)
    rows = [
        [
            "GPU activities",
            *(f"{100 * sum(us) / total_us:.6f}", f"{sum(us) / 1e3:.6f}", calls),
            *(f"{sum(us) / calls:.3f}", f"{min(us):.3f}", f"{max(us):.3f}", name),
        ]
        for name, calls, us in found
    ]
    header = ["Type", "Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name"]
    calls = sum(calls for _, calls, _ in found)
    launch = ["API calls", "100.0", f"{calls * LAUNCH_US / 1e3:.6f}", calls, *["4.000"] * 3]
    return (
        _nvprof_head()
        + _table([header], csv.QUOTE_ALL)
        + ",%,ms,,us,us,us,\n"
        + _table([*rows, [*launch, "cudaLaunchKernel"]], csv.QUOTE_NONNUMERIC)
    )


def nvprof_trace(step: Step) -> str:
    """Return the step as `nvprof --csv --print-gpu-trace` writes it."""
    header = "Start,Duration,Grid X,Grid Y,Grid Z,Block X,Block Y,Block Z,Registers Per Thread"
    header += ",Static SMem,Dynamic SMem,Size,Throughput,SrcMemType,DstMemType,Device,Context"
    header += ",Stream,Name"
    rows = []
    for number, (row, start_us) in enumerate(launches(step), 100):
        copying = row.kernel.startswith("[CUDA")
        shape = [""] * 9 if copying else [8, 8, 1, 256, 1, 1, 128, "0.000000", "32.000000"]
        size = ["0.031250", "10.000000", "Pageable", "Device"] if copying else [""] * 4
        name = row.kernel if copying else f"{row.kernel} [{number}]"
        times = [f"{start_us / 1e3:.6f}", f"{row.each_us:.3f}"]
        rows.append([*times, *shape, *size, f"{step.chip} (0)", 1, 7, name])
    names = header.split(",")
    return (
        _nvprof_head()
        + _table([names], csv.QUOTE_ALL)
        + "ms,us,,,,,,,,KB,KB,MB,GB/s,,,,,,\n"
        + _table(rows)
    )


def _nvprof_head() -> str:
    said = ["NVPROF is profiling process {0}, command: python train.py"]
    said += ["Profiling application: python train.py", "Profiling result:"]
    head = "".join(f"=={NVPROF_PID}== {line.format(NVPROF_PID)}\n" for line in said)
    return f"# origin: {ORIGIN}\n{head}"


def nsys_sum(step: Step, old: bool = False) -> str:
    """Return the step as `nsys stats --format csv` writes its sum of kernels. old: until 2022."""
    found = [one for one in _summary(step) if not one[0].startswith("[CUDA")]
    total_us = sum(sum(us) for _, _, us in found)
    rows = []
    for name, calls, us in found:
        mean_us, ns = sum(us) / calls, [round(1e3 * one) for one in us]
        middle = [] if old else [f"{mean_us * 1e3:.1f}"]
        share = f"{100 * sum(us) / total_us:.1f}"
        rows.append(
            [share, sum(ns), calls, f"{mean_us * 1e3:.1f}", *middle, min(ns), max(ns), "0.0", name]
        )
    if old:
        header = "Time(%),Total Time (ns),Instances,Average (ns),Minimum (ns),Maximum (ns)"
    else:
        header = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns)"
    report = "gpukernsum" if old else "cuda_gpu_kern_sum"
    head = f"# origin: {ORIGIN}\nProcessing [run.sqlite] with [{report}.py]...\n"
    return head + header + ",StdDev (ns),Name\n" + _table(rows)


def nsys_trace(step: Step) -> str:
    """Return the step as `nsys stats --report cuda_gpu_trace --format csv` writes it."""
    header = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB)"
    header += ",DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name"
    rows = []
    for number, (row, start_us) in enumerate(launches(step), 100):
        copying = row.kernel.startswith("[CUDA")
        shape = [""] * 9 if copying else [8, 8, 1, 256, 1, 1, 128, "0.000", "0.033"]
        size = ["0.031", "10000.000", "Pageable", "Device"] if copying else [""] * 4
        times = [round(1e3 * start_us), round(1e3 * row.each_us)]
        rows.append([*times, number, *shape, *size, f"{step.chip} (0)", 1, 7, row.kernel])
    head = f"# origin: {ORIGIN}\nProcessing [run.sqlite] with [cuda_gpu_trace.py]...\n"
    return head + header + "\n" + _table(rows)


TABLES = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_GPU (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER,
    shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, correlationId INTEGER,
    globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT,
    textId INTEGER, globalTid INTEGER);
CREATE TABLE ALLHANDS_ORIGIN (text TEXT);
"""


def nsys_sqlite(step: Step, path: Path) -> None:
    """Write the step as `nsys export --type sqlite` does, under emit_nvtx(record_shapes=True)."""
    path.unlink(missing_ok=True)
    process = 0x1000000000000
    with closing(sqlite3.connect(path)) as base:
        base.executescript(TABLES)
        base.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, ?)", (step.chip,))
        base.execute("INSERT INTO ALLHANDS_ORIGIN VALUES (?)", (ORIGIN,))
        names: dict[str, int] = {"cudaLaunchKernel": 1}
        host_ns, correlation, gpu = 10_000, 1, launches(step)
        for row in step.rows:
            thread = process + (BACKWARD_THREAD if row.backward else FORWARD_THREAD)
            start_ns = host_ns
            for _ in range(row.calls):
                _, gpu_us = next(gpu)
                gpu_ns, end_ns = round(1e3 * gpu_us), round(1e3 * (gpu_us + row.each_us))
                launch = (host_ns, host_ns + 2000, thread, correlation, 1)
                base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", launch)
                if row.kernel.startswith("[CUDA"):
                    copy = (gpu_ns, end_ns, correlation, process, 32768, 1)
                    base.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?)", copy
                    )
                else:
                    name = names.setdefault(row.kernel, len(names) + 1)
                    kernel = (gpu_ns, end_ns, 0, 7, correlation, process, name, name)
                    base.execute(
                        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?)", kernel
                    )
                host_ns += 4000
                correlation += 1
            sizes = ", ".join(str(list(shape)) for shape in row.shapes)
            for outside_ns, text in (
                (1000, row.layer),
                (500, row.operator and f"{row.operator}, seq = 1, sizes = [{sizes}]"),
            ):
                if text:
                    event = (start_ns - outside_ns, host_ns + outside_ns, 59, text, None, thread)
                    base.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", event)
            host_ns += 6000
        base.executemany("INSERT INTO StringIds VALUES (?,?)", [(n, s) for s, n in names.items()])
        base.commit()


SECOND = {
    "nvprof": ("nvprof", nvprof),
    "nvprof-trace": ("nvprof", nvprof_trace),
    "nsys-sum": ("nsys", nsys_sum),
    "nsys-sum-old": ("nsys", lambda step: nsys_sum(step, old=True)),
    "nsys-trace": ("nsys", nsys_trace),
}


def write(folder: Path = FOLDER) -> None:
    """Write all traces. One of them is packed, as torch.profiler does by `.gz`."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in STEPS_WRITTEN:
        text = torch_trace(step)
        if step.name == "h100_bf16":
            (folder / f"{step.name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            (folder / f"{step.name}.json").write_text(text, encoding="utf-8")
        if step.second == "nsys-sqlite":
            nsys_sqlite(step, folder / f"{step.name}_nsys.sqlite")
        else:
            by, make = SECOND[step.second]
            (folder / f"{step.name}_{by}.csv").write_text(make(step), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
