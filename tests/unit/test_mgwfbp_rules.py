"""The rules of known systems: cases worked by hand, and what each of them promises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.optimal import lower_bound_s, optimum
from allhands.mgwfbp.plan import finish_s, one_per_gradient, single_bucket
from allhands.mgwfbp.rules import (
    by_size,
    horovod,
    mg_wfbp,
    mg_wfbp_recomputed,
    send_when_ready,
)


def problems(number, most=30):
    """Gradients and a cost; small whole numbers, so that zeros and ties are common."""
    pieces = st.lists(st.tuples(number, number), min_size=1, max_size=most)
    return st.builds(
        lambda pieces, forward_s, a, b: (
            Gradients.from_backward(*zip(*pieces, strict=True), forward_s=forward_s),
            AffineCost(a, b),
        ),
        pieces,
        number,
        number,
        number,
    )


WHOLE = problems(st.integers(0, 5))
REAL = problems(st.floats(0, 5, allow_subnormal=False))


def sizes(*n_bytes):
    return Gradients([0] * len(n_bytes), n_bytes)


def test_a_bucket_closes_when_it_reaches_its_cap():
    plan = by_size(sizes(1, 1, 1, 3, 5, 1), caps_bytes=(2, 4))
    assert plan.groups == ((0, 1), (2, 3), (4, 4), (5, 5))


def test_ddp_has_a_small_first_bucket_and_25_mib_after_it():
    mib = 2**20
    plan = by_size(sizes(mib // 2, mib // 2, 24 * mib, mib, 10 * mib, 10 * mib))
    assert plan.groups == ((0, 1), (2, 3), (4, 5))


@given(WHOLE, st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_every_closed_bucket_holds_its_cap_and_would_not_without_its_last(problem, caps):
    gradients, _ = problem
    groups = by_size(gradients, caps).groups
    for k, (first, last) in enumerate(groups):
        cap = caps[min(k, len(caps) - 1)]
        assert sum(gradients.n_bytes[first:last]) < cap
        if k < len(groups) - 1:
            assert sum(gradients.n_bytes[first : last + 1]) >= cap


@pytest.mark.parametrize("caps", [(), (0,), (2, -1)])
def test_a_cap_that_holds_nothing_is_refused(caps):
    with pytest.raises(ValueError, match="more than 0 bytes"):
        by_size(sizes(1, 2), caps)


def test_what_is_ready_is_sent_when_the_link_is_free():
    """Sent alone: 0, until 3; ready by then: 1, 2, until 3 + 1 + 4 = 8; then 3, at its own 9."""
    gradients = Gradients((0, 2, 3, 9), (2, 2, 2, 2))
    plan = send_when_ready(gradients, AffineCost(1, 1))
    assert plan.groups == ((0, 0), (1, 2), (3, 3))
    assert finish_s(gradients, plan, AffineCost(1, 1)) == 12


def test_horovod_waits_for_the_tick_and_fills_up_to_the_threshold():
    """Ticks at 0, 2, 4, ...: 0 and 1 are ready at 2; then 2 and 3, but only 4 bytes fit."""
    gradients = Gradients((1, 2, 3, 3), (2, 2, 3, 3))
    sent = horovod(gradients, AffineCost(1, 1), threshold_bytes=4, cycle_s=2)
    assert sent.plan.groups == ((0, 1), (2, 2), (3, 3))
    assert sent.not_before_s == (2, 8, 12)


def test_horovod_sends_a_gradient_that_is_larger_than_the_threshold_alone():
    sent = horovod(sizes(1, 9, 1), AffineCost(1, 1), threshold_bytes=4, cycle_s=0)
    assert sent.plan.groups == ((0, 0), (1, 1), (2, 2))


@pytest.mark.parametrize("settings_", [{"cycle_s": -1}, {"threshold_bytes": 0}])
def test_horovod_settings_that_cannot_be_are_refused(settings_):
    with pytest.raises(ValueError, match="Horovod needs"):
        horovod(sizes(1), AffineCost(1, 1), **settings_)


@given(WHOLE)
def test_sending_when_ready_never_leaves_the_link_idle_with_work(problem):
    gradients, cost = problem
    free_s = 0.0
    for first, last in send_when_ready(gradients, cost).groups:
        start_s = max(free_s, gradients.ready_s[last])
        assert start_s == max(free_s, gradients.ready_s[first])
        following = gradients.ready_s[last + 1 : last + 2]
        assert all(ready > start_s for ready in following)
        free_s = start_s + cost(sum(gradients.n_bytes[first : last + 1]))


def test_the_published_rule_loses_with_three_gradients():
    gradients, cost = Gradients((0, 4, 9), (4, 1, 1)), AffineCost(5, 1)
    published = mg_wfbp(gradients, cost)
    assert published.groups == ((0, 1), (2, 2))
    assert finish_s(gradients, published, cost) == 20
    assert finish_s(gradients, optimum(gradients, cost), cost) == 16


def test_the_published_rule_merges_only_what_comes_less_than_one_start_up_later():
    gradients = Gradients((0, 5), (1, 1))
    assert mg_wfbp(gradients, AffineCost(5, 1)) == one_per_gradient(2)
    assert mg_wfbp(gradients, AffineCost(5.01, 1)) == single_bucket(2)


@settings(max_examples=1000)
@given(WHOLE)
def test_one_pass_gives_the_plan_of_the_published_form(problem):
    assert mg_wfbp(*problem) == mg_wfbp_recomputed(*problem)


@settings(max_examples=1000)
@given(WHOLE)
def test_the_published_rule_is_never_worse_than_a_single_bucket(problem):
    gradients, cost = problem
    single_s = finish_s(gradients, single_bucket(len(gradients)), cost)
    assert finish_s(gradients, mg_wfbp(gradients, cost), cost) <= single_s


@settings(max_examples=1000)
@given(WHOLE)
def test_the_published_rule_takes_at_most_twice_the_optimum(problem):
    gradients, cost = problem
    best_s = finish_s(gradients, optimum(gradients, cost), cost)
    assert finish_s(gradients, mg_wfbp(gradients, cost), cost) <= 2 * best_s
    assert finish_s(gradients, single_bucket(len(gradients)), cost) <= 2 * best_s


@pytest.mark.parametrize(("n", "expected"), [(10, 1.37), (100, 1.73), (1000, 1.91)])
def test_a_uniform_chain_brings_the_published_rule_near_to_twice_the_optimum(n, expected):
    """Each gradient comes 0.9 start-ups after the last and takes 0.9 start-ups to send.

    The rule merges all of them: (0.9 n + 1 + 0.9 n) start-ups. The optimum hides most of it. The
    expected ratios were computed by another program.
    """
    gradients = Gradients.from_backward([0.9] * n, [0.9] * n, forward_s=0.0)
    cost = AffineCost(1.0, 1.0)
    assert mg_wfbp(gradients, cost) == single_bucket(n)
    published_s = finish_s(gradients, single_bucket(n), cost)
    assert published_s == pytest.approx(1.8 * n + 1)
    ratio = published_s / finish_s(gradients, optimum(gradients, cost), cost)
    assert ratio == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize("problem", [WHOLE, REAL], ids=["whole", "real"])
def test_no_rule_beats_the_optimum_and_nothing_the_lower_bound(problem):
    @settings(max_examples=500)
    @given(problem)
    def check(one):
        gradients, cost = one
        best_s = finish_s(gradients, optimum(gradients, cost), cost)
        assert best_s >= lower_bound_s(gradients, cost) * (1 - 1e-12)
        for plan in (
            one_per_gradient(len(gradients)),
            single_bucket(len(gradients)),
            by_size(gradients, (3, 10)),
            horovod(gradients, cost, threshold_bytes=10, cycle_s=0.5).plan,
            send_when_ready(gradients, cost),
            mg_wfbp(gradients, cost),
        ):
            assert best_s <= finish_s(gradients, plan, cost) * (1 + 1e-12)

    check()
