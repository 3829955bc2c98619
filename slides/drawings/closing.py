"""The figures of the closing talk."""

import json
from pathlib import Path

from allhands.mgwfbp import measured, optimal
from allhands.mgwfbp.plan import finish_s, one_per_gradient, single_bucket
from allhands.trace import draw, scaling
from allhands.trace.talks import closing as pictures
from allhands.trace.talks import merging

RECORDED = Path(__file__).resolve().parents[1] / "recorded"


def closing_recipes() -> draw.Picture:
    """Three of lab 3's recipes on three seeds."""
    outcomes = json.loads((RECORDED / "lab3_table.json").read_text(encoding="utf-8"))["outcomes"]
    titles = {"fp32": "FP32", "mixed": "FP16, all\nof the recipe", "bf16": "BF16, FP32\nweights"}
    found = {
        title: [one["test_exact"] for one in outcomes if one["recipe"] == name]
        for name, title in titles.items()
    }
    return pictures.recognised(found)


def closing_speedup() -> draw.Picture:
    """Lab 2's measured speed-ups."""
    folder = RECORDED / "lab2_dataparallel"
    cores = json.loads((folder / "about.json").read_text(encoding="utf-8"))["cores"]
    points = {
        f"{mode} scaling": scaling.speedups(scaling.read(folder / f"{mode}.json"))
        for mode in ("weak", "strong")
    }
    return pictures.speedups(points, cores)


def closing_merging() -> draw.Picture:
    """Three plans for GoogLeNet over the number of workers, and the bound of all."""
    googlenet, workers = measured.googlenet_k80(), [4**power for power in range(1, 7)]
    links = [measured.k80_10gbe(n) for n in workers]
    n = len(googlenet)
    plans_of = {
        "one message each": lambda link: one_per_gradient(n),
        "one message for all": lambda link: single_bucket(n),
        "the best plan": lambda link: optimal.fewest_messages(googlenet, link),
    }
    shares = {
        name: [googlenet.compute_s / finish_s(googlenet, plan(one), one) for one in links]
        for name, plan in plans_of.items()
    }
    bound = [googlenet.compute_s / optimal.lower_bound_s(googlenet, one) for one in links]
    return merging.efficiency(workers, shares, bound)


FIGURES = (closing_recipes, closing_speedup, closing_merging)
