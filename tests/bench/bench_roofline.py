"""How well does the roofline predict this machine? Products of matrices, predicted and measured.

    OMP_NUM_THREADS=1 python tests/bench/bench_roofline.py [--device cuda:0] [--record]

`--record` keeps the measurement in slides/recorded, where the figure is drawn from. On a GPU since
Ampere it takes FP32, TF32, BF16 and FP16, in about a minute.
"""

import argparse
import datetime
import json
from pathlib import Path

from allhands.train import roofline_here

RECORDED = Path(__file__).resolve().parents[2] / "slides" / "recorded"
DTYPES = {"cpu": ("FP32", "BF16"), "cuda": ("FP32", "TF32", "BF16", "FP16")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    kind = asked.device.split(":")[0]
    here = roofline_here.measure(asked.device, DTYPES[kind], rounds=asked.rounds)
    print(here)
    if asked.record:
        path = RECORDED / f"lab3_roofline_{kind}.json"
        date = datetime.date.today().isoformat()
        found = {"date": date, "machine": _machine(), **here.as_dict()}
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"written: {path}")


def _machine() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown CPU")


if __name__ == "__main__":
    main()
