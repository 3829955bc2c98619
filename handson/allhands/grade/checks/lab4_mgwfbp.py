"""The checks of lab 4: one function for each exercise, named by its id.

The oracle is brute force over all plans, written here once more and differently, on random cases
with fixed seeds; for real networks it is the package's exact planner, which is tested against the
same."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from allhands.grade.check import Marker, likely, show
from allhands.mgwfbp import measured, optimal, rules
from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, finish_s, single_bucket

THREE = Gradients(ready_s=(0, 4, 9), n_bytes=(4, 1, 1))
SLOW_LINK = AffineCost(5, 1)
WINDOW_BYTES = (1e4, 1.1e6)
TARGET_MS = 368.5


def cases(n_cases: int, seed: int) -> list[tuple[Gradients, AffineCost]]:
    """Random small cases, some with ties and zeros."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(n_cases):
        n = int(random.integers(1, 8))
        if number % 3 == 0:
            times, sizes = random.integers(0, 4, n), random.integers(0, 4, n)
        else:
            times, sizes = random.random(n), random.random(n)
        cost = AffineCost(float(random.integers(0, 4)), float(random.random()))
        found.append((Gradients.from_backward(times, sizes, forward_s=1.0), cost))
    return found


def least_of_all(gradients: Gradients, cost: AffineCost) -> float:
    """The least finish time over all plans, by recursion over the last group."""

    def through(n: int) -> list[float]:
        """Finish times of all plans of the first n gradients."""
        if n == 0:
            return [0.0]
        ready_s, before = gradients.ready_s[n - 1], gradients.bytes_before
        return [
            max(free_s, ready_s) + cost(before[n] - before[j])
            for j in range(n)
            for free_s in through(j)
        ]

    return min(through(len(gradients)))


def link(mark: Marker, link: Mapping, sizes: Sequence[float], times_s: Sequence[float]) -> None:
    keys = {"startup_us", "ns_per_byte"}
    mark.need(
        isinstance(link, Mapping) and keys <= set(link),
        'a dict with the keys "startup_us" and "ns_per_byte"',
        show(link),
    )
    cost = fit(sizes, times_s, window_bytes=WINDOW_BYTES).cost
    everything = fit(sizes, times_s).cost
    for key, right, other, unit_s in (
        ("startup_us", 1e6 * cost.startup_s, 1e6 * everything.startup_s, 1e-6),
        ("ns_per_byte", 1e9 * cost.s_per_byte, 1e9 * everything.s_per_byte, 1e-9),
    ):
        got = float(link[key])
        mark.require(
            abs(got - right) <= 0.02 * right,
            1,
            f"{key} of the sizes from 10,000 to 1,100,000 bytes",
            show(got),
            likely(
                (abs(got - other) <= 0.02 * other, "that is the fit of all sizes: window_bytes"),
                (abs(got - right * unit_s) <= 0.02 * right * unit_s, "that is in seconds"),
                otherwise="fit(sizes, times_s, window_bytes=(1e4, 1.1e6)).cost",
            ),
        )


def published(mark: Marker, published: Callable) -> None:
    got = mark.run(published, THREE, SLOW_LINK)
    mark.need(isinstance(got, Plan), "a Plan", type(got).__name__, "return Plan.from_ends(ends)")
    mark.require(
        got.groups == ((0, 1), (2, 2)),
        1,
        "for the three gradients, the groups (0, 1) and (2, 2)",
        show(got.groups),
        likely(
            (got.n_groups == 3, "gradient 1 comes 4 after 0 could start, and 4 < 5: merge them"),
            (got.n_groups == 1, "9 - 4 is 5, and 5 < 5 is false: gradient 2 is not merged"),
            (got.groups == ((0, 0), (1, 2)), "that is the optimum; the published rule is greedy"),
            otherwise="compare the next one's ready time with this one's start, not its end",
        ),
    )
    wrong = 0
    for gradients, cost in cases(300, seed=2):
        wrong += mark.run(published, gradients, cost) != rules.mg_wfbp_recomputed(gradients, cost)
    mark.require(
        wrong == 0,
        2,
        "the plan of the authors' own form on 300 random cases",
        f"another plan in {wrong} of them",
        "is free_s the end of the last closed group? Does the group's size count all its bytes?",
    )


def by_hand(mark: Marker, by_hand: Mapping) -> None:
    mark.need(
        isinstance(by_hand, Mapping) and {"groups", "ends"} <= set(by_hand),
        'a dict with the keys "groups" and "ends"',
        show(by_hand),
    )
    groups = tuple((int(first), int(last)) for first, last in by_hand["groups"])
    try:
        plan = Plan(groups)
        mark.need(plan.n_gradients == 3, "a plan of three gradients", show(by_hand["groups"]))
    except ValueError as error:
        mark.need(False, "groups of neighbours that cover 0, 1 and 2", str(error))
    really_s = finish_s(THREE, plan, SLOW_LINK)
    mark.require(
        really_s == least_of_all(THREE, SLOW_LINK),
        1,
        "the plan that ends first",
        f"{show(by_hand['groups'])}, which ends at {really_s:g}",
        likely(
            (plan == single_bucket(3), "one bucket waits for gradient 2 and hides nothing"),
            (groups == ((0, 1), (2, 2)), "that is the published plan; another is better"),
            otherwise="try all four: each cut is there or not",
        ),
    )
    mark.require(
        float(by_hand["ends"]) == really_s,
        1,
        "the time at which your plan ends",
        show(by_hand["ends"]),
        "a group starts when its last gradient is ready and the group before is through; then "
        "5 + its bytes",
    )


def brute_force(mark: Marker, brute_force: Callable) -> None:
    got_s = float(mark.run(brute_force, THREE, SLOW_LINK))
    mark.require(
        got_s == 16,
        1,
        "16 for the three gradients",
        show(got_s),
        likely(
            (got_s == 20, "not only the simple plans: every way to cut"),
            (got_s > 16, "a plan is missing: there are four"),
            otherwise="each plan must hold all gradients: its last end is L - 1",
        ),
    )
    wrong = sum(
        not np.isclose(float(mark.run(brute_force, *case)), least_of_all(*case))
        for case in cases(60, seed=3)
    )
    mark.require(
        wrong == 0,
        1,
        "the least time on 60 random cases, also of one gradient",
        f"another time in {wrong} of them",
        "one gradient has one plan; product(..., repeat=0) gives one empty tuple",
    )


def best_plan(mark: Marker, best_plan: Callable) -> None:
    got = mark.run(best_plan, THREE, SLOW_LINK)
    mark.need(isinstance(got, Plan), "a Plan", type(got).__name__, "return Plan.from_ends(ends)")
    wrong, first = 0, ""
    for gradients, cost in cases(100, seed=4):
        plan = mark.run(best_plan, gradients, cost)
        got_s, right_s = finish_s(gradients, plan, cost), least_of_all(gradients, cost)
        if not np.isclose(got_s, right_s):
            wrong, first = wrong + 1, first or f"{got_s:.4g} where {right_s:.4g} is possible"
    mark.require(
        wrong == 0,
        2,
        "the least time on 100 random cases",
        f"a later end in {wrong} of them, first {first}",
        "is it max(finish[j], ready_s[e - 1])? Do you walk back by the j that was best?",
    )
    googlenet, cost = measured.googlenet_k80(), measured.k80_10gbe(64)
    ends_ms = 1e3 * finish_s(googlenet, mark.run(best_plan, googlenet, cost), cost)
    mark.require(
        ends_ms <= TARGET_MS,
        2,
        f"GoogLeNet on 64 workers within {TARGET_MS} ms",
        f"{ends_ms:.2f} ms",
        likely(
            (abs(ends_ms - 482.97) < 0.01, "that is the published plan"),
            otherwise="the optimum ends at 368.46 ms",
        ),
    )


def fast(mark: Marker, fast: Callable) -> None:
    wrong = 0
    for gradients, cost in cases(200, seed=5):
        wrong += not np.isclose(
            float(mark.run(fast, gradients, cost)), least_of_all(gradients, cost)
        )
    small_s = float(mark.run(fast, THREE, SLOW_LINK))
    mark.require(
        wrong == 0,
        2,
        "the least time on 200 random cases",
        f"another time in {wrong} of them; for the three gradients {small_s:g}, and 16 is right",
        likely(
            (small_s > 16, "too late: a candidate is missing. Who queues behind the one before?"),
            otherwise="a group cannot start before the one before it is through",
        ),
    )
    random = np.random.default_rng(6)
    many = Gradients.from_backward(random.random(50_000), random.random(50_000), forward_s=0)
    cost = AffineCost(3.0, 0.4)
    best_s = finish_s(many, optimal.optimum(many, cost), cost)
    got_s = float(mark.run(fast, many, cost))
    mark.require(
        wrong == 0 and np.isclose(got_s, best_s),
        1,
        "the same for 50,000 gradients",
        f"{got_s:.6g} where {best_s:.6g} is right",
        "rounding apart, it must be the same time",
    )


def emulated(mark: Marker, emulated: Mapping, outcomes: Sequence) -> None:
    mark.need(
        isinstance(emulated, Mapping) and {"fastest", "median error"} <= set(emulated),
        'a dict with the keys "fastest" and "median error"',
        show(emulated),
    )
    fastest = min(outcomes, key=lambda one: one.measured_s).name
    promised = min(outcomes, key=lambda one: one.predicted_s).name
    mark.require(
        str(emulated["fastest"]) == fastest,
        1,
        "the plan with the shortest measured time",
        show(emulated["fastest"]),
        likely(
            (str(emulated["fastest"]) == promised, "that one was predicted; look at measured_s"),
            otherwise="min(result.outcomes, key=lambda one: one.measured_s).name",
        ),
    )
    errors = [one.error for one in outcomes]
    right, got = float(np.median(np.abs(errors))), float(emulated["median error"])
    mark.require(
        abs(got - right) < 1e-4,
        1,
        "the median of the absolute errors, as a share",
        show(got),
        likely(
            (abs(got - 100 * right) < 1e-2, "give a share, not percent"),
            (abs(got - float(np.median(errors))) < 1e-4, "take abs() of each error first"),
            (abs(got - float(np.mean(np.abs(errors)))) < 1e-4, "the median, not the mean"),
            otherwise="np.median([abs(one.error) for one in result.outcomes])",
        ),
    )


def collapse(mark: Marker, collapse_ms: float) -> None:
    googlenet, link = measured.googlenet_k80(), measured.k80_10gbe(64)

    def n_groups(startup_ms: float) -> int:
        return rules.mg_wfbp(googlenet, AffineCost(1e-3 * startup_ms, link.s_per_byte)).n_groups

    got_ms = float(collapse_ms)
    mark.need(0 < got_ms < 1000, "a start-up in milliseconds", show(got_ms))
    is_one = mark.require(
        n_groups(got_ms) == 1,
        1,
        "a start-up at which the published plan is one bucket",
        f"{n_groups(got_ms)} groups at {got_ms:g} ms",
        likely(
            (got_ms < 1 and n_groups(1e3 * got_ms) == 1, "give milliseconds, not seconds"),
            otherwise="go on to larger start-ups",
        ),
    )
    if is_one:
        mark.require(
            n_groups(got_ms - 1.0) > 1,
            1,
            "the smallest such start-up, within a millisecond",
            f"at {got_ms - 1:g} ms it is one bucket already",
            "go up in small steps, and stop at the first",
        )
