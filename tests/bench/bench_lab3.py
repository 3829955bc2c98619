"""Which recipe of mixed precision learns, and what does it cost on this CPU? Three seeds.

    OMP_NUM_THREADS=1 python tests/bench/bench_lab3.py [--record] [--translator]

`--record` keeps the table in slides/recorded/lab3_table.json, where the figure is drawn from.
`--translator` trains the preset lab3_cpu too, in mixed precision and in FP32, side by side.
"""

import argparse
import dataclasses
import json
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from allhands.train import mixed_table

RECORDED = Path(__file__).resolve().parents[2] / "slides" / "recorded" / "lab3_table.json"
SEEDS = (0, 1, 2)


def rounded(outcome: mixed_table.Outcome) -> dict:
    """An outcome as a mapping; losses with four digits are enough to draw."""
    row = dataclasses.asdict(outcome)
    return row | {"losses": [float(f"{loss:.4g}") for loss in outcome.losses]}


def record(outcomes: list[mixed_table.Outcome]) -> None:
    kept = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, one thread",
        "torch": torch.__version__,
        "task": dataclasses.asdict(mixed_table.TASK),
        "titles": {name: recipe.title for name, recipe in mixed_table.RECIPES.items()},
        "outcomes": [rounded(one) for one in outcomes],
    }
    RECORDED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def translator(precision: str) -> dict:
    """Train lab3_cpu in a fresh process; return its result.json."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "allhands.cli", "train", "lab3_cpu"]
        command += [f"--out={folder}/run", f"--set=precision={precision}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads((Path(folder) / "run" / "result.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--translator", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    outcomes = [mixed_table.run(name, seed) for seed in SEEDS for name in mixed_table.RECIPES]
    console = Console()
    console.print(mixed_table.table(outcomes))
    cpu_s = Table("recipe", "CPU s a run")
    for name, recipe in mixed_table.RECIPES.items():
        times_s = [one.cpu_s for one in outcomes if one.recipe == name]
        cpu_s.add_row(recipe.title, f"{min(times_s):.1f} to {max(times_s):.1f}")
    console.print(cpu_s)
    if options.record:
        record(outcomes)
    if options.translator:
        table = Table("lab3_cpu", "test exact (%)", "loss per token", "CPU s")
        for precision in ("fp32", "mixed"):
            result = translator(precision)
            exact, loss = result["test_exact_match"], result["test_loss"]
            table.add_row(precision, f"{exact:.1f}", f"{loss:.3f}", f"{result['cpu_s']:.0f}")
        console.print(table)


if __name__ == "__main__":
    main()
