"""How long does planning take, does it grow linearly, and what do 65,536 workers cost?

    OMP_NUM_THREADS=1 python tests/bench/bench_planner.py [--rounds 15]

Prints medians in milliseconds of CPU time, and ratios, of one run on this machine. The cases of a
table take turns in each round, so that a busy machine slows all of them alike.

- size: each planner on chains of 161 (ResNet-50), 467 (ResNet-152) and up to 100,000 gradients. The
  published form of MG-WFBP, which computes all starts again after each merge, and the O(L^2) form
  of the optimum (NumPy) stop at 1,000. `per gradient` is the time divided by L, relative to L =
  1,000: it stays near 1 for a linear planner, and nears L / 1,000 for a quadratic one.
- link: L = 467, with slow and fast links, because a rule's work depends on how much it merges.
- workers: one simulated iteration of 467 gradients with stragglers among N workers.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.optimal import fewest_messages, optimum, optimum_any_cost
from allhands.mgwfbp.plan import finish_s
from allhands.mgwfbp.rules import mg_wfbp, mg_wfbp_recomputed, send_when_ready
from allhands.mgwfbp.schedule import simulate, stragglers

LENGTHS = (161, 467, 1_000, 10_000, 100_000)
PLANNERS = {
    "optimum": optimum,
    "fewest messages": fewest_messages,
    "MG-WFBP, one pass": mg_wfbp,
    "send when ready": send_when_ready,
    "MG-WFBP, published form": mg_wfbp_recomputed,
    "optimum, O(L^2)": optimum_any_cost,
}
QUADRATIC = ("MG-WFBP, published form", "optimum, O(L^2)")
COST = AffineCost(startup_s=1e-3, s_per_byte=1e-9)


def chain(n_gradients: int) -> Gradients:
    """Backward times of 1 ms and sizes of 1 MB on average, as random as in a convolution net."""
    random = np.random.default_rng(n_gradients)
    sizes = random.lognormal(mean=np.log(1e6) - 2, sigma=2, size=n_gradients)
    return Gradients.from_backward(random.exponential(1e-3, n_gradients), np.floor(sizes))


def median_ms(cases: Mapping[object, Callable[[], object]], rounds: int) -> dict[object, float]:
    """Median CPU milliseconds of each case; the cases take turns, the first round warms up."""
    times_ms: dict[object, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, case in cases.items():
            start_s = time.process_time()
            case()
            if number:
                times_ms[name].append(1e3 * (time.process_time() - start_s))
    return {name: statistics.median(values) for name, values in times_ms.items()}


def bench_sizes(rounds: int) -> None:
    chains = {n: chain(n) for n in LENGTHS}
    cases = {
        (name, n): lambda plan=planner, gradients=gradients: plan(gradients, COST)
        for name, planner in PLANNERS.items()
        for n, gradients in chains.items()
        if n <= 1_000 or name not in QUADRATIC
    }
    medians = median_ms(cases, rounds)
    for (name, n), value_ms in medians.items():
        per_gradient = value_ms / n / (medians[name, 1_000] / 1_000)
        line = f"size    {name:24} L={n:<7} {value_ms:10.3f} ms   per gradient x{per_gradient:.2f}"
        if n <= 1_000 and name not in QUADRATIC:
            published = medians["MG-WFBP, published form", n] / value_ms
            line += f"   published form takes x{published:.0f}"
        print(line)


def bench_links(rounds: int) -> None:
    gradients = chain(467)
    for startup_s in (1e-5, 1e-3, 1e-1):
        for s_per_byte in (1e-10, 1e-9, 1e-8):
            cost = AffineCost(startup_s, s_per_byte)
            cases = {
                name: lambda plan=planner, cost=cost: plan(gradients, cost)
                for name, planner in PLANNERS.items()
                if name != "optimum, O(L^2)"
            }
            medians = median_ms(cases, rounds)
            fastest_s = finish_s(gradients, optimum(gradients, cost), cost)
            gap = finish_s(gradients, mg_wfbp(gradients, cost), cost) / fastest_s
            print(
                f"link    a={startup_s:.0e} b={s_per_byte:.0e}  "
                f"optimum {medians['optimum']:.3f} ms, fewest {medians['fewest messages']:.3f} ms, "
                f"published form {medians['MG-WFBP, published form']:7.3f} ms; "
                f"published rule finishes at x{gap:.3f} of the optimum"
            )


def bench_workers(rounds: int) -> None:
    gradients = chain(467)
    plan = fewest_messages(gradients, COST)

    def case(n_workers: int) -> Callable[[], object]:
        def run() -> object:
            slow_down = stragglers(n_workers, seed=0, share=0.01, factor=1.5, jitter=0.02)
            schedule = simulate(gradients, plan, COST, slow_down=slow_down)
            return schedule.finish_s, schedule.events([0, n_workers - 1])

        return run

    medians = median_ms({n: case(n) for n in (64, 1_024, 65_536)}, rounds)
    for n, value_ms in medians.items():
        print(f"workers {n:<7} {value_ms:10.3f} ms   x{value_ms / medians[64]:.1f} of 64 workers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    bench_sizes(rounds)
    bench_links(rounds)
    bench_workers(rounds)


if __name__ == "__main__":
    main()
