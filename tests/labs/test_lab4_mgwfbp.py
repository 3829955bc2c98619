"""Lab 4: checks refuse likely mistakes with the sentence meant for them; the seeded fault shows."""

import itertools

import numpy as np
import pytest

from allhands.grade.checks import lab4_mgwfbp as checks
from allhands.grade.desk import Desk
from allhands.mgwfbp import measured, optimal, rules
from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket
from allhands.train.race import Outcome


@pytest.fixture
def desk() -> Desk:
    return Desk("lab4_mgwfbp")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


def as_link(cost, micro=1e6, nano=1e9):
    return {"startup_us": micro * cost.startup_s, "ns_per_byte": nano * cost.s_per_byte}


def test_link_refuses_all_sizes_seconds_and_a_missing_key(desk):
    table = measured.osu_allreduce_10gbe(8)
    right = fit(*table, window_bytes=(1e4, 1.1e6)).cost
    refused(desk.check("link", as_link(fit(*table).cost), *table), "the fit of all sizes")
    refused(desk.check("link", as_link(right, 1, 1), *table), "that is in seconds")
    refused(desk.check("link", {"startup_us": 1.0}, *table), 'the keys "startup_us"')
    assert desk.check("link", as_link(right), *table).full


PUBLISHED_MISTAKES = {
    "never merges": (lambda g, c: one_per_gradient(len(g)), "4 < 5: merge them"),
    "always merges": (lambda g, c: single_bucket(len(g)), "5 < 5 is false"),
    "the optimum": (optimal.optimum, "that is the optimum"),
    "no plan": (lambda g, c: [[0, 1], [2, 2]], "a Plan"),
}


@pytest.mark.parametrize("mistake", PUBLISHED_MISTAKES)
def test_published_refuses(desk, mistake):
    answer, sentence = PUBLISHED_MISTAKES[mistake]
    refused(desk.check("published", answer), sentence)


def forgets_the_link(gradients, cost):
    """Compares with the ready time, and forgets that the link may be busy."""
    ends, last = [], len(gradients) - 1
    for i, ready_s in enumerate(gradients.ready_s):
        if i == last or gradients.ready_s[i + 1] - ready_s >= cost.startup_s:
            ends.append(i)
    return Plan.from_ends(ends)


def test_published_refuses_a_rule_that_forgets_the_busy_link(desk):
    refused(
        desk.check("published", forgets_the_link), "is free_s the end of the last closed group?"
    )
    assert desk.check("published", rules.mg_wfbp).full


BY_HAND_MISTAKES = {
    "single bucket": ({"groups": [[0, 2]], "ends": 20}, "hides nothing"),
    "published": ({"groups": [[0, 1], [2, 2]], "ends": 20}, "that is the published plan"),
    "wrong time": ({"groups": [[0, 0], [1, 2]], "ends": 11}, "5 + its bytes"),
    "a gap": ({"groups": [[0, 0], [2, 2]], "ends": 16}, "without gap or overlap"),
    "two gradients": ({"groups": [[0, 1]], "ends": 16}, "a plan of three gradients"),
}


@pytest.mark.parametrize("mistake", BY_HAND_MISTAKES)
def test_by_hand_refuses(desk, mistake):
    answer, sentence = BY_HAND_MISTAKES[mistake]
    refused(desk.check("by_hand", answer), sentence)


def test_by_hand_takes_the_better_plan(desk):
    assert desk.check("by_hand", {"groups": [(0, 0), (1, 2)], "ends": 16.0}).full


def all_plans(gradients, cost, *, repeat=None):
    last = len(gradients) - 1
    times_s = []
    for cuts in itertools.product([False, True], repeat=last if repeat is None else repeat(last)):
        ends = sorted({i for i, cut in enumerate(cuts) if cut and i < last} | {last})
        times_s.append(finish_s(gradients, Plan.from_ends(ends), cost))
    return min(times_s)


def simple_plans(gradients, cost):
    n = len(gradients)
    return min(finish_s(gradients, plan(n), cost) for plan in (one_per_gradient, single_bucket))


def test_brute_force_refuses_simple_plans_only_and_an_end_without_start_up(desk):
    refused(desk.check("brute_force", simple_plans), "not only the simple plans")
    no_first_cut = lambda g, c: all_plans(g, c, repeat=lambda last: 0)  # noqa: E731
    refused(desk.check("brute_force", no_first_cut), "every way to cut")
    free = lambda g, c: all_plans(g, c) - c.startup_s  # noqa: E731
    refused(desk.check("brute_force", free), "another time in")
    assert desk.check("brute_force", all_plans).full


def test_best_plan_refuses_the_published_plan_and_one_bucket(desk):
    refused(desk.check("best_plan", rules.mg_wfbp), "that is the published plan")
    refused(desk.check("best_plan", lambda g, c: single_bucket(len(g))), "a later end in")
    refused(desk.check("best_plan", lambda g, c: 16), "a Plan")
    assert desk.check("best_plan", optimal.optimum).full
    assert desk.check("best_plan", optimal.optimum_any_cost).full


def fast(gradients, cost, *, queued: bool):
    a, b = cost.startup_s, cost.s_per_byte
    before, finish, j = gradients.bytes_before, [0.0], 0
    for e, ready in enumerate(gradients.ready_s, start=1):
        while j + 1 < e and finish[j + 1] <= ready:
            j += 1
        best = ready + a + b * (before[e] - before[j])
        if queued and j + 1 < e:
            best = min(best, finish[j + 1] + a + b * (before[e] - before[j + 1]))
        finish.append(best if queued else max(best, finish[-1]))
    return finish[-1]


def test_the_seeded_fault_of_fast_shows_and_the_repair_removes_it(desk):
    broken = [fast(*case, queued=False) for case in checks.cases(200, seed=5)]
    mended = [fast(*case, queued=True) for case in checks.cases(200, seed=5)]
    right = [checks.least_of_all(*case) for case in checks.cases(200, seed=5)]
    assert sum(b > r + 1e-9 for b, r in zip(broken, right, strict=True)) > 10
    np.testing.assert_allclose(mended, right)
    refused(desk.check("fast", lambda g, c: fast(g, c, queued=False)), "another time in")
    refused(desk.check("fast", lambda g, c: c(g.total_bytes)), "another time in")
    assert desk.check("fast", lambda g, c: fast(g, c, queued=True)).full


def test_collapse_refuses_too_small_too_large_and_seconds(desk):
    refused(desk.check("collapse", 5.0), "go on to larger start-ups")
    refused(desk.check("collapse", 80.0), "stop at the first")
    refused(desk.check("collapse", 0.0215), "milliseconds, not seconds")
    assert desk.check("collapse", 21.5).full


def outcome(name, predicted_s, measured_s):
    return Outcome(name, single_bucket(1), predicted_s, (measured_s,))


def test_emulated_refuses_the_predicted_winner_percent_signs_and_the_mean(desk):
    outcomes = (outcome("a", 1.0, 1.3), outcome("b", 1.1, 1.1), outcome("c", 2.0, 1.8))
    right = {"fastest": "b", "median error": 0.1}  # errors: +30 %, 0 %, -10 %
    assert desk.check("emulated", right, outcomes).full
    for key, value, sentence in (
        ("fastest", "a", "that one was predicted"),
        ("median error", 10.0, "give a share, not percent"),
        ("median error", 0.0, "take abs() of each error first"),
        ("median error", 0.4 / 3, "the median, not the mean"),
    ):
        refused(desk.check("emulated", {**right, key: value}, outcomes), sentence)
    refused(desk.check("emulated", "optimum", outcomes), 'the keys "fastest"')


def test_headline_answers_each_wrong_choice_with_its_own_sentence(desk):
    assert len({desk.check("headline", letter).said for letter in "acd"}) == 3
    assert not any(desk.check("headline", letter).full for letter in "acd")
    assert desk.check("headline", "b").full


def test_the_oracle_of_the_checks_agrees_with_the_package_s_planner():
    for gradients, cost in checks.cases(100, seed=9):
        best_s = finish_s(gradients, optimal.optimum(gradients, cost), cost)
        assert best_s == pytest.approx(checks.least_of_all(gradients, cost))
