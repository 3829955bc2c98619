"""How much faster is lab 2 on 2 and 4 ranks, and is the answer the same? One command for all of it.

    python tests/bench/bench_lab2.py [--record] [--rounds 9] [--no-training]

Weak scaling (the same batch a rank) and strong scaling (the same batch in all) on 1, 2 and 4 ranks,
interleaved, as allhands/train/speedup.py says; ratios within a round, medians over rounds. Rounds
in which another program took a core are not counted, if at least five others are left. Then full
trainings of lab2_cpu, with exact match and BLEU on the test pairs: with 64 pairs a rank (fewer,
larger steps), and with 64 pairs in all (the same steps as one rank). A few minutes on a quiet
machine of two cores. Exit code 1 if 2 ranks reach less than 1.8 times the samples/s of one (weak,
median).

`--record` keeps the results in slides/recorded/lab2_dataparallel, and draws the figures again.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from allhands.trace import scaling
from allhands.trace.events import write_events
from allhands.train import speedup

SLIDES = Path(__file__).resolve().parents[2] / "slides"
RECORDED = SLIDES / "recorded" / "lab2_dataparallel"
RANKS = (1, 2, 4)
BATCH = 64
LEAST_ROUNDS = 5
DEMANDED = 1.8  # weak scaling, 2 ranks against 1


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def about(rounds: int) -> dict:
    """When, on what and how it was measured, in words that name no machine."""
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {cores()} cores, no GPU",
        "cores": cores(),
        "how": f"python tests/bench/bench_lab2.py --record --rounds {rounds}",
        "load_before": round(os.getloadavg()[0], 1),
    }


def usual_step(events: list) -> int:
    """The step whose time is nearest to the median: the one to show."""
    times_s = scaling.step_times_s(events)
    return scaling.WARM_UP + times_s.index(statistics.median_low(times_s))


def train(ranks: int, batch_in_all: bool) -> dict:
    """Train lab2_cpu on so many ranks in fresh processes; what its result.json says, in short."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        command = [sys.executable, "-m", "allhands.cli", "train", "lab2_cpu"]
        command += [f"--ranks={ranks}", f"--out={folder}"]
        if batch_in_all:
            command += [f"--set=batch_size={BATCH // ranks}", "--set=rate_scaling=none"]
            command += ["--set=evaluate_every=125", "--set=snapshot_every=125"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        result = json.loads((folder / "result.json").read_text())
    kept = ("n_updates", "test_exact_match", "test_bleu", "wall_s")
    batch = BATCH // ranks if batch_in_all else BATCH
    return {"ranks": ranks, "batch_size": batch, **{name: result[name] for name in kept}}


def measure(mode: str, rounds: int, record: bool) -> list[scaling.Measured]:
    with tempfile.TemporaryDirectory() as folder:
        every = speedup.measure(RANKS, mode=mode, rounds=rounds, out=folder)
        quiet = scaling.quiet_rounds(every, cores())
        measured = quiet if len(quiet[0].step_s) >= LEAST_ROUNDS else every
        if record:
            scaling.write(measured, RECORDED / f"{mode}.json")
            two = measured[1]
            middle_s = statistics.median_low(two.step_s)
            events = speedup.events(folder, two.ranks, every[1].step_s.index(middle_s))
            step = usual_step(events)
            shown = [event for event in events if event.step == step]
            write_events(RECORDED / f"{mode}.events.jsonl", shown)
    print(f"{len(quiet[0].step_s)} of {rounds} rounds were quiet")
    print(speedup.table(measured), end="\n\n", flush=True)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-training", action="store_true", help="the speed-up alone")
    options = parser.parse_args()
    if options.record:
        RECORDED.mkdir(parents=True, exist_ok=True)
        said = json.dumps(about(options.rounds), indent=1)
        (RECORDED / "about.json").write_text(said + "\n")
    weak, strong = (measure(mode, options.rounds, options.record) for mode in speedup.MODES)
    if not options.no_training:
        print("lab2_cpu: ranks  batch a rank  updates  exact match   BLEU  wall-clock")
        trainings = []
        for ranks, in_all in [(1, False), (2, False), (4, False), (2, True), (4, True)]:
            one = train(ranks, in_all)
            trainings.append(one)
            print(
                f"{one['ranks']:15} {one['batch_size']:13} {one['n_updates']:8} "
                f"{one['test_exact_match']:10.1f} % {one['test_bleu']:6.1f} "
                f"{one['wall_s']:9.1f} s",
                flush=True,
            )
        if options.record:
            (RECORDED / "trainings.json").write_text(json.dumps(trainings, indent=1) + "\n")
    if options.record:
        subprocess.run([sys.executable, SLIDES / "figures.py"], check=True)
    ratios = [scaling.speedups(measured)[1] for measured in (weak, strong)]
    for mode, one in zip(speedup.MODES, ratios, strict=True):
        print(f"{mode}: {one.median:.2f} times on 2 ranks ({one.lowest:.2f} to {one.highest:.2f})")
    return 0 if ratios[0].median >= DEMANDED else 1


if __name__ == "__main__":
    sys.exit(main())
