"""The opening talk's small models: cases worked by hand, and what theory says about them."""

import math

import pytest

from allhands.trace.talks import opening_models as models


@pytest.mark.parametrize(("n_ranks", "n_micro"), [(4, 1), (4, 8), (3, 5)])
def test_a_pipeline_is_busy_as_gpipe_says(n_ranks, n_micro):
    """m / (m + p - 1) of the time, for p ranks and m pieces (Huang et al. 2019)."""
    events = models.pipeline(n_ranks, n_micro, forward_s=1.0, backward_s=2.0)
    end_s = max(event.end_s for event in events)
    busy_s = sum(event.duration_s for event in events)
    assert busy_s == pytest.approx(3.0 * n_ranks)
    assert busy_s / (n_ranks * end_s) == pytest.approx(n_micro / (n_micro + n_ranks - 1))


def test_synchronous_ranks_exchange_when_the_slowest_is_ready():
    events = models.synchronous([[1.0, 2.0], [3.0, 1.0]], exchange_s=0.5)
    waits = [(e.rank, e.start_s, e.end_s) for e in events if e.what == "wait"]
    assert waits == [(0, 1.0, 3.0), (1, 4.5, 5.5)]
    assert max(event.end_s for event in events) == 6.0


def test_asynchronous_ranks_miss_the_updates_of_the_others():
    """Rank 0 updates at 1, 2 and 3; rank 1 fetched at 0 and comes at 3.5: it missed three."""
    events = models.asynchronous([[1.0, 1.0, 1.0], [3.5]], exchange_s=0.0)
    stale = [(e.start_s, e.rank, e.name) for e in events if e.what == "communicate"]
    assert stale == [(1.0, 0, "0"), (2.0, 0, "0"), (3.0, 0, "0"), (3.5, 1, "3")]


def test_the_server_serves_one_rank_at_a_time():
    events = models.asynchronous([[1.0], [1.0]], exchange_s=0.25)
    served = [(e.start_s, e.end_s) for e in events if e.what == "communicate"]
    assert served == [(1.0, 1.25), (1.25, 1.5)]
    assert [(e.rank, e.duration_s) for e in events if e.what == "wait"] == [(1, 0.25)]


def test_the_slower_of_two_normal_times_is_one_over_root_pi_late():
    assert models.slowest_of(1, 0.1) == pytest.approx(1.0)
    assert models.slowest_of(2, 0.1) == pytest.approx(1.0 + 0.1 / math.sqrt(math.pi), rel=1e-4)


def test_rare_pauses_become_certain():
    assert models.slowest_with_pauses(1, share=0.01, pause=1.0) == pytest.approx(1.01)
    assert models.slowest_with_pauses(10_000, share=0.01, pause=1.0) == pytest.approx(2.0)


def test_a_ring_of_two_sends_the_array_once_in_all():
    link = {"n_bytes": 1e6, "bytes_per_s": 1e6, "startup_s": 0.0}
    assert models.ring_s(2, **link) == pytest.approx(1.0)
    assert models.ring_s(1000, **link) < 2.0
    assert models.server_s(1000, **link) == pytest.approx(2000.0)


@pytest.mark.parametrize("delay", [0, 1, 3, 6])
def test_late_gradients_converge_exactly_below_the_known_rate(delay):
    limit = 2 * math.sin(math.pi / (2 * (2 * delay + 1)))
    below = models.delayed_descent(0.95 * limit, delay, 3000)
    above = models.delayed_descent(1.05 * limit, delay, 3000)
    assert max(map(abs, below[-50:])) < 1e-3
    assert max(map(abs, above[-50:])) > 1e3


def test_without_noise_the_loss_is_plain_descent():
    losses = models.expected_loss([(0.1, 1, 3)], [2.0], noise=0.0)
    assert losses == pytest.approx([0.8 ** (2 * t) for t in range(4)])


def test_the_noise_that_is_left_goes_with_rate_over_batch():
    """At rest E[x²] = rate noise / (batch (2 h - rate h²)), so for a small rate as rate / batch."""
    small = models.expected_loss([(0.001, 1, 20_000)], [1.0])[-1]
    assert small == pytest.approx(0.5 * 0.001 / (2 - 0.001), rel=1e-3)
    assert models.expected_loss([(0.004, 4, 20_000)], [1.0])[-1] == pytest.approx(small, rel=5e-3)
