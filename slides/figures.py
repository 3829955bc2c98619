"""Draw every figure of the slides, the README and the notebooks' text: `make figures`.

    python slides/figures.py [FOLDER]            default: slides/figures
    python slides/figures.py FOLDER opening_     only figures whose names begin so

A deck with figures of its own has them in `slides/drawings/<deck>.py`. Measured figures are drawn
from `slides/recorded/`, where each run keeps its date and machine. The same input gives the same
bytes; a test draws all of them again and compares.
"""

import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from allhands.mgwfbp import measured, optimal, rules
from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket
from allhands.mgwfbp.schedule import simulate
from allhands.mgwfbp.table import read_table
from allhands.precision import roofline
from allhands.precision.chips import chip
from allhands.precision.formats import BF16, FP16, FP32, TF32
from allhands.precision.roofline import Translator
from allhands.trace import (
    diagrams,
    diagrams_ladder,
    diagrams_machine,
    diagrams_parallel,
    diagrams_race,
    draw,
    draw_link,
    draw_precision,
    draw_roofline,
    draw_scaling,
    scaling,
)
from allhands.trace.events import read_events
from allhands.trace.summary import read_metrics
from allhands.train.all_reduce_times import Measured

SLIDES = Path(__file__).resolve().parent
RECORDED = SLIDES / "recorded"


def lab0_doctor_ranks() -> draw.Picture:
    """Four ranks on two nodes, in two ways: rank, local rank, device, and the link."""
    return diagrams_machine.ranks_on_nodes(
        {
            "ranks fill node after node": [[0, 1], [2, 3]],
            "ranks go round the nodes": [[0, 2], [1, 3]],
        }
    )


def lab0_doctor_link() -> draw.Picture:
    """One message: between two hosts with a shaped network, and between two ranks of a machine."""
    tables = {
        "two hosts, 1 Gbit/s and 250 us of delay": "lab0_box_link_1gbit_250us",
        "two ranks of one machine": "lab0_link_one_machine",
    }
    links = {}
    for name, folder in tables.items():
        sizes, times_s = read_table(RECORDED / folder / "message.csv")
        links[name] = draw_link.Measured(sizes, times_s, fit(sizes, times_s).cost)
    return draw_link.link(links, "one message between two ranks (MPICH)")


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


def lab2_dataparallel_ways() -> draw.Picture:
    """Synchronous or not, server or peers, data or model: the words of lab 2."""
    return diagrams_parallel.ways_to_share()


def lab2_dataparallel_ring() -> draw.Picture:
    """The ring all-reduce of four ranks, step by step."""
    return diagrams_parallel.ring_steps()


def lab2_dataparallel_allreduce() -> draw.Picture:
    """All-reduces by hand and MPI's own on 2 ranks, a core each, and what theory says."""
    return Measured.load(RECORDED / "lab2_all_reduce_2ranks").figure()


def lab3_mixedprec_numberline() -> draw.Picture:
    """FP32, TF32, BF16 and FP16: which sizes they hold, and how fine."""
    return draw_precision.number_line((FP32, TF32, BF16, FP16), "Which numbers does a format hold?")


def lab3_mixedprec_table() -> draw.Picture:
    """Six recipes of mixed precision on handwritten digits, three seeds, one CPU core."""
    found = json.loads((RECORDED / "lab3_table.json").read_text(encoding="utf-8"))
    return draw_precision.recipes(
        found["outcomes"], found["titles"], "one task, seven recipes, three seeds"
    )


def lab2_dataparallel_speedup() -> draw.Picture:
    """Weak and strong scaling of lab 2 as measured, the ideal line, and Amdahl's law."""
    folder = RECORDED / "lab2_dataparallel"
    cores = json.loads((folder / "about.json").read_text())["cores"]
    points = {
        mode: scaling.speedups(scaling.read(folder / f"{mode}.json")) for mode in ("weak", "strong")
    }
    fitted = [point for point in points["strong"] if point.ranks <= cores]
    law = None
    with contextlib.suppress(ValueError):  # ranks that slow each other down follow no such law
        law = scaling.fit_amdahl([one.ranks for one in fitted], [one.median for one in fitted])
    to = "strong, " + " and ".join(str(one.ranks) for one in fitted if one.ranks > 1) + " ranks"
    title = f"lab 2 on {cores} cores"
    return draw_scaling.speedup(points, law, title, fitted=to, cores=cores)


def lab2_dataparallel_steps() -> draw.Picture:
    """One step of two ranks: all gradients go in one bucket, after the backward pass."""
    events = read_events(RECORDED / "lab2_dataparallel" / "weak.events.jsonl")
    return draw_scaling.side_by_side(events, "one step of two ranks")


def lab3_mixedprec_roofline() -> draw.Picture:
    """Lab 1's translator on an A100 by its datasheet, and products measured on a CPU core."""
    a100, size = chip("A100"), Translator(72, 32, n_embed=256, n_hidden=512)
    points = []
    for dtype in ("FP32", "FP16"):
        shown = ("encoder inputs", "encoder step", "scores", "combine", "output")
        for product in roofline.translator(size, 256, 10, 10, dtype):
            if product.name in shown:
                rate = roofline.predict(product, a100).flops_per_s
                points.append(
                    draw_roofline.Point(product.name, dtype, product.intensity, predicted=rate)
                )
    peaks = {dtype: a100.peak(dtype) for dtype in ("FP32", "FP16")}
    title = "A100: the translator, predicted (batch 256, hidden 512)"
    paper = draw_roofline.Panel(title, a100.bytes_per_s, peaks, points)
    here = json.loads((RECORDED / "lab3_roofline_cpu.json").read_text(encoding="utf-8"))
    points = [
        draw_roofline.Point(
            *(one["name"], one["dtype"], flops / one["n_bytes"]),
            *(flops / one["predicted_s"], flops / one["measured_s"]),
        )
        for one in here["products"]
        for flops in [one["flops"]]
    ]
    title = "one CPU core: predicted (open), measured (full)"
    found = here["chip"]
    cpu = draw_roofline.Panel(title, found["bytes_per_s"], found["flops_per_s"], points)
    return draw_roofline.rooflines([paper, cpu])


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


def bug1_errorcount_race() -> draw.Picture:
    """Four ranks with the same fault, 0.3 s apart: an abort at once, and one that waits."""
    return diagrams_race.race(spread_s=0.3, writes_s=0.4, waits_s=(0.0, 1.5))


def bug2_singlegpu_ladder() -> draw.Picture:
    """The decision ladder: one process, two ranks, more ranks, two nodes."""
    return diagrams_ladder.ladder()


FIGURES = (
    lab0_doctor_ranks,
    lab0_doctor_link,
    lab1_seq2seq_model,
    lab1_seq2seq_curve,
    lab1_seq2seq_steps,
    lab2_dataparallel_ways,
    lab2_dataparallel_ring,
    lab2_dataparallel_allreduce,
    lab2_dataparallel_speedup,
    lab2_dataparallel_steps,
    lab3_mixedprec_numberline,
    lab3_mixedprec_table,
    lab3_mixedprec_roofline,
    lab4_mgwfbp_timelines,
    lab4_mgwfbp_gap,
    lab4_mgwfbp_speedup,
    bug1_errorcount_race,
    bug2_singlegpu_ladder,
)


def figures() -> list[Callable[[], draw.Picture]]:
    """All figures: those above, and those of `drawings/<deck>.py`."""
    found = list(FIGURES)
    for path in sorted((SLIDES / "drawings").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"drawings_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += module.FIGURES
    return found


def build(folder: Path, begins: str = "") -> None:
    """Write `<figure>.svg` for every figure whose name begins with `begins`."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in figures():
        if figure.__name__.startswith(begins):
            draw.save_svg(figure(), folder / f"{figure.__name__}.svg")


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else SLIDES / "figures", *sys.argv[2:3])
