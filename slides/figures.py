"""Draw every figure of the slides, the README and the notebooks' text: `make figures`.

    python slides/figures.py [FOLDER]      default: slides/figures

Measured figures are drawn from `slides/recorded/`, where each run keeps its date and machine. The
same input gives the same bytes; a test draws all of them again and compares.
"""

import sys
from pathlib import Path

import numpy as np

from allhands.mgwfbp import measured, optimal, rules
from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket
from allhands.mgwfbp.schedule import simulate
from allhands.trace import diagrams, draw
from allhands.trace.events import read_events
from allhands.trace.summary import read_metrics

SLIDES = Path(__file__).resolve().parent
RECORDED = SLIDES / "recorded"


def lab1_seq2seq_model() -> draw.Picture:
    """The encoder-decoder of lab 1; the attention weights are invented."""
    return diagrams.encoder_decoder(
        ["twenty", "four", "EOS"], ["二", "十", "四", "EOS"], [0.1, 0.8, 0.1], looking=2
    )


def lab1_seq2seq_curve() -> draw.Picture:
    """Learning curves of lab1_cpu, three seeds."""
    runs = {f"seed {seed}": RECORDED / f"lab1_cpu_seed{seed}" for seed in (0, 1, 2)}
    metrics = {name: read_metrics(folder) for name, folder in runs.items()}
    return draw.learning_curve(metrics, "lab1_cpu: one CPU core")


def lab1_seq2seq_steps() -> draw.Picture:
    """Three steps of lab1_cpu on one CPU core."""
    events = read_events(RECORDED / "lab1_cpu_seed0" / "events.rank0.jsonl")
    return draw.gantt(events, "three steps of lab1_cpu on one CPU core")


def _googlenet_plans(cost) -> dict[str, Plan]:
    googlenet = measured.googlenet_k80()
    return {
        "one per gradient": one_per_gradient(len(googlenet)),
        "single bucket": single_bucket(len(googlenet)),
        "MG-WFBP as published": rules.mg_wfbp(googlenet, cost),
        "send when ready": rules.send_when_ready(googlenet, cost),
        "optimum": optimal.fewest_messages(googlenet, cost),
    }


def lab4_mgwfbp_timelines() -> draw.Picture:
    """GoogLeNet on 64 workers, simulated from the authors' trace and link."""
    googlenet, cost = measured.googlenet_k80(), measured.k80_10gbe(64)
    plans = {
        name: simulate(googlenet, plan, cost).events()
        for name, plan in _googlenet_plans(cost).items()
        if name != "send when ready"
    }
    return draw.timelines(plans, "GoogLeNet, 64 workers (simulated)")


def lab4_mgwfbp_gap() -> draw.Picture:
    """How much longer than the optimum, over the start-up of the link."""
    googlenet, link = measured.googlenet_k80(), measured.k80_10gbe(64)
    startups_s = np.geomspace(1e-5, 1e-1, 80)
    lines: dict[str, list[float]] = {}
    for startup_s in startups_s:
        cost = AffineCost(startup_s, link.s_per_byte)
        plans = _googlenet_plans(cost)
        best_s = finish_s(googlenet, plans.pop("optimum"), cost)
        for name, plan in plans.items():
            lines.setdefault(name, []).append(finish_s(googlenet, plan, cost) / best_s)
    title = "GoogLeNet: time over the optimum's (simulated)"
    return draw.curves(
        1e3 * startups_s, lines, title, x="start-up (ms)", y="time / optimum", y_max=2
    )


def lab4_mgwfbp_speedup() -> draw.Picture:
    """Weak scaling: how many times the images of one worker, from 4 to 65,536 workers."""
    googlenet = measured.googlenet_k80()
    workers = [4**power for power in range(1, 9)]
    lines: dict[str, list[float]] = {"ideal": [1.0] * len(workers)}
    for n_workers in workers:
        cost = measured.k80_10gbe(n_workers)
        for name, plan in _googlenet_plans(cost).items():
            share = googlenet.compute_s / finish_s(googlenet, plan, cost)
            lines.setdefault(name, []).append(share)
    title = "GoogLeNet: share of the ideal speed-up (simulated)"
    return draw.curves(workers, lines, title, x="workers", y="efficiency", markers=True)


FIGURES = (
    lab1_seq2seq_model,
    lab1_seq2seq_curve,
    lab1_seq2seq_steps,
    lab4_mgwfbp_timelines,
    lab4_mgwfbp_gap,
    lab4_mgwfbp_speedup,
)


def build(folder: Path) -> None:
    """Write `<figure>.svg` for every figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in FIGURES:
        draw.save_svg(figure(), folder / f"{figure.__name__}.svg")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else SLIDES / "figures")
