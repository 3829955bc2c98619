"""How fast does lab1_cpu learn? Three seeds: exact match, CPU seconds, ms a step, memory.

    OMP_NUM_THREADS=1 python tests/bench/bench_lab1.py [--record]

`--record` keeps the runs in slides/recorded, where the figures are drawn from. CPU seconds are of
the whole run, from reading the corpus to the last test sentence; unlike wall-clock seconds they
hardly depend on what else the machine does. Each seed has a process, and so its memory, of its own.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from allhands.trace.events import read_events, write_events
from allhands.trace.summary import read_metrics, step_times_s

RECORDED = Path(__file__).resolve().parents[2] / "slides" / "recorded"
SHOWN_STEPS = range(201, 204)


def run(seed: int, folder: Path) -> dict:
    """Train lab1_cpu with that seed in a fresh process; return its result.json."""
    command = [sys.executable, "-m", "allhands.cli", "train", "lab1_cpu", f"--out={folder}"]
    subprocess.run([*command, f"--set=seed={seed}"], check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "result.json").read_text())


def record(seed: int, folder: Path) -> None:
    """Keep what the figures need: metrics, result, and (seed 0) the events of three steps."""
    kept = RECORDED / f"lab1_cpu_seed{seed}"
    kept.mkdir(parents=True, exist_ok=True)
    for name in ("metrics.jsonl", "result.json"):
        shutil.copy(folder / name, kept / name)
    if seed == 0:
        events = read_events(folder / "events.rank0.jsonl")
        write_events(kept / "events.rank0.jsonl", [e for e in events if e.step in SHOWN_STEPS])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    table = Table("seed", "test exact (%)", "BLEU", "last - best valid (%)", "CPU s", "wall s")
    for column in ("median step (ms)", "peak memory (MiB)"):
        table.add_column(column)
    for seed in (0, 1, 2):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run"
            result = run(seed, folder)
            exact = [line["valid_exact_match"] for line in read_metrics(folder).evaluations]
            steps_s = step_times_s(read_events(folder / "events.rank0.jsonl"))[3:]
            if options.record:
                record(seed, folder)
        table.add_row(
            str(seed),
            f"{result['test_exact_match']:.1f}",
            f"{result['test_bleu']:.1f}",
            f"{exact[-1] - max(exact):.1f}",
            f"{result['cpu_s']:.1f}",
            f"{result['wall_s']:.1f}",
            f"{1e3 * statistics.median(steps_s):.1f}",
            f"{result['peak_memory_mib']:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
