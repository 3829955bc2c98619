"""Speed-up from events: cases worked by hand, a clock that looks, and the laws themselves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.trace import scaling
from allhands.trace.events import Event
from allhands.trace.scaling import Measured

# Two ranks, steps 0 to 2. Rank 1 enters the collective last in step 1, rank 0 in step 2.
#           step 1                              step 2
# rank 0    backward 2-5, communicate 5-9       backward 10-16, communicate 16-18
# rank 1    backward 2-7, communicate 7-10      backward 10-13, communicate 13-18
BY_HAND = [
    Event(0, 2, 0, "backward", step=0),
    Event(0, 1, 1, "backward", step=0),
    Event(2, 5, 0, "backward", step=1),
    Event(5, 9, 0, "communicate", "all", step=1),
    Event(2, 7, 1, "backward", step=1),
    Event(7, 10, 1, "communicate", "all", step=1),
    Event(10, 16, 0, "backward", step=2),
    Event(16, 18, 0, "communicate", "all", step=2),
    Event(10, 13, 1, "backward", step=2),
    Event(13, 18, 1, "communicate", "all", step=2),
]


def world(ranks, *speeds):
    zeros = (0.0,) * len(speeds)
    return Measured(ranks, "weak", 64, speeds, tuple(1 / s for s in speeds), zeros, zeros)


def test_a_step_ends_when_the_slowest_rank_ends():
    assert scaling.step_times_s(BY_HAND, warm_up=1) == [8, 8]  # 2 to 10, and 10 to 18
    assert scaling.step_times_s(BY_HAND, warm_up=2) == [8]


def test_throughput_is_of_all_ranks_over_the_median_step():
    ends_s = [0, 1, 3, 4, 14]  # steps of 1, 2, 1 and 10 s: the median is 1.5 s
    events = [Event(end_s, end_s, 0, "update", step=k) for k, end_s in enumerate(ends_s)]
    assert scaling.samples_per_s(events, 30, warm_up=1) == 20


def test_the_wait_ends_when_the_last_rank_has_entered():
    parts = [(e.rank, e.what, e.start_s, e.end_s) for e in scaling.split_waits(BY_HAND[2:])]
    assert sorted(part for part in parts if part[1] != "backward") == [
        (0, "communicate", 7, 9),
        (0, "communicate", 16, 18),
        (0, "wait", 5, 7),
        (1, "communicate", 7, 10),
        (1, "communicate", 16, 18),
        (1, "wait", 13, 16),
    ]


def test_shares_are_means_over_the_ranks():
    shares = scaling.shares(BY_HAND, warm_up=1)
    assert shares.wait == (2 + 3) / (2 * 16)
    assert shares.transfer == ((2 + 2) + (3 + 2)) / (2 * 16)


def test_one_rank_never_waits():
    alone = [event for event in BY_HAND if event.rank == 0]
    assert scaling.split_waits(alone) == sorted(alone)
    assert scaling.shares(alone, warm_up=1).wait == 0


def test_a_rank_that_left_before_the_last_one_came_has_waited_all_the_time():
    left = Event(0, 1, 0, "communicate")
    late = Event(2, 3, 1, "communicate")
    assert [(e.what, e.start_s, e.end_s) for e in scaling.split_waits([left, late])] == [
        ("wait", 0, 1),
        ("communicate", 2, 3),
    ]


spans = st.lists(st.integers(0, 9), min_size=3, max_size=3)


@given(st.lists(st.tuples(spans, spans), min_size=2, max_size=4))
def test_shares_agree_with_a_clock_that_looks_at_every_moment(steps):
    """The oracle stands at the middle of each unit of time and asks what each rank is doing."""
    events, free = [Event(0, 0, rank, "update", step=0) for rank in (0, 1)], [0, 0]
    for step, both in enumerate(steps, start=1):
        for rank, (compute, inside, after) in enumerate(both):
            entered = free[rank] + compute
            left = entered + inside
            events += [
                Event(free[rank], entered, rank, "backward", step=step),
                Event(entered, left, rank, "communicate", step=step),
                Event(left, left + after, rank, "update", step=step),
            ]
            free[rank] = left + after
    ends = [max(e.end_s for e in events if e.step == step) for step in range(len(steps) + 1)]
    if ends[-1] == 0:
        return
    seen = {"wait": 0, "transfer": 0}
    for tick in range(int(ends[-1])):
        for event in events:
            if event.what == "communicate" and event.start_s < tick + 0.5 < event.end_s:
                entries = [
                    e.start_s for e in events if (e.what, e.step) == ("communicate", event.step)
                ]
                seen["wait" if tick + 0.5 < max(entries) else "transfer"] += 1
    shares = scaling.shares(events, warm_up=1)
    assert shares.wait == pytest.approx(seen["wait"] / (2 * ends[-1]))
    assert shares.transfer == pytest.approx(seen["transfer"] / (2 * ends[-1]))


def test_what_cannot_be_a_whole_run_is_refused():
    with pytest.raises(ValueError, match="more than 3 steps"):
        scaling.step_times_s(BY_HAND, warm_up=3)
    with pytest.raises(ValueError, match="warm_up is 0"):
        scaling.step_times_s(BY_HAND, warm_up=0)
    with pytest.raises(ValueError, match="Step 2 has no events of rank 1"):
        scaling.step_times_s(BY_HAND[:-2], warm_up=1)
    with pytest.raises(ValueError, match=r"in step 2 .* \{0: 1, 1: 0\}"):
        scaling.split_waits(BY_HAND[:-1])


def test_speedups_are_ratios_within_a_round():
    # Round 1 is disturbed: both worlds run at half their speed, and the ratio stays.
    one, two = world(1, 100.0, 50.0, 100.0), world(2, 190.0, 95.0, 180.0)
    [alone, pair] = scaling.speedups([one, two])
    assert (alone.median, alone.lowest, alone.highest) == (1, 1, 1)
    assert (pair.median, pair.lowest, pair.highest) == (1.9, 1.8, 1.9)
    assert pair.efficiency == 0.95


def test_a_speedup_without_one_rank_or_with_other_rounds_is_refused():
    with pytest.raises(ValueError, match="against one rank"):
        scaling.speedups([world(2, 1.0)])
    with pytest.raises(ValueError, match="same rounds"):
        scaling.speedups([world(1, 1.0, 1.0), world(2, 1.0)])


def test_wait_and_transfer_make_up_the_communication_of_a_round():
    one = Measured(2, "weak", 64, (1.0,) * 3, (1.0,) * 3, (0.1, 0.5, 0.2), (0.3, 0.1, 0.2))
    assert one.median_wait_share == 0.2
    assert one.median_communicate_share == pytest.approx(0.4)  # of 0.4, 0.6 and 0.4


def test_quiet_rounds_are_those_in_which_no_rank_lost_its_core():
    one = Measured(1, "weak", 8, (10.0, 5.0, 11.0), *[(0.0,) * 3] * 3, (0.99, 0.6, 1.0))
    two = Measured(2, "weak", 8, (19.0, 9.0, 12.0), *[(0.0,) * 3] * 3, (0.98, 0.9, 0.7))
    four = Measured(4, "weak", 8, (7.0, 8.0, 9.0), *[(0.0,) * 3] * 3, (0.5, 0.5, 0.5))
    kept = scaling.quiet_rounds([one, two, four], cores=2)
    assert [world.samples_per_s for world in kept] == [(10,), (19,), (7,)]
    assert [world.core_share for world in kept] == [(0.99,), (0.98,), (0.5,)]
    assert scaling.quiet_rounds([one, two, four], cores=4)[0].samples_per_s == ()


def test_what_is_written_is_read_again(tmp_path):
    worlds = [
        Measured(n, "strong", 64 // n, (9.0, 8.0), (1.0, 2.0), (0.0, 0.1), (0.2, 0.3), (1.0, 0.5))
        for n in (1, 2)
    ]
    scaling.write(worlds, tmp_path / "measured.json")
    assert scaling.read(tmp_path / "measured.json") == worlds


@pytest.mark.parametrize("text", ["", "[1]", "[{}]", '{"ranks": 1}'])
def test_a_file_of_something_else_is_refused_by_name(tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(ValueError, match=r"other\.json does not hold measured worlds"):
        scaling.read(tmp_path / "other.json")
    with pytest.raises(ValueError, match=r"none\.json does not hold measured worlds"):
        scaling.read(tmp_path / "none.json")


def test_amdahl_by_hand():
    assert scaling.amdahl(1, 0.3) == pytest.approx(1)
    assert scaling.amdahl(2, 0.5) == pytest.approx(4 / 3)
    assert scaling.amdahl(8, 0) == 8
    assert scaling.amdahl(10**9, 0.25) == pytest.approx(4)  # 1 / s at the most


def test_gustafson_by_hand():
    assert scaling.gustafson(1, 0.3) == 1
    assert scaling.gustafson(5, 0.25) == 4
    assert scaling.gustafson(5, 1) == 1


@given(st.floats(0, 1), st.lists(st.integers(1, 64), min_size=1, max_size=5))
def test_a_law_is_found_again_from_its_own_points(serial, ranks):
    ranks = [*ranks, 2]
    for law, fit in (
        (scaling.amdahl, scaling.fit_amdahl),
        (scaling.gustafson, scaling.fit_gustafson),
    ):
        found = fit(ranks, [law(n, serial) for n in ranks])
        assert found.serial == pytest.approx(serial, abs=1e-9)
        assert found.largest_error == pytest.approx(0, abs=1e-6)


@given(st.lists(st.floats(0.9, 2.2), min_size=1, max_size=4))
def test_no_serial_share_fits_better_than_the_fitted_one(speeds):
    """The oracle tries ten thousand shares."""
    ranks = [2, 3, 4, 8][: len(speeds)]
    try:
        found = scaling.fit_amdahl(ranks, speeds)
    except ValueError:
        return  # the bounds have a test of their own
    tried = np.linspace(0, 1, 10_001)
    squares = sum(
        (1 / s - (tried + (1 - tried) / n)) ** 2 for n, s in zip(ranks, speeds, strict=True)
    )
    assert abs(tried[squares.argmin()] - found.serial) <= 1e-4


def test_noise_beyond_a_bound_is_cut_off_and_more_is_refused():
    assert scaling.fit_amdahl([1, 2], [1, 2.02]).serial == 0
    assert scaling.fit_amdahl([1, 2], [1, 0.98]).serial == 1
    with pytest.raises(ValueError, match="more than one rank's speed each"):
        scaling.fit_amdahl([1, 2], [1, 3])
    with pytest.raises(ValueError, match="less than one rank alone"):
        scaling.fit_amdahl([1, 2, 4], [1, 0.7, 0.5])


@pytest.mark.parametrize(
    ("ranks", "speeds", "words"),
    [
        ([1, 1], [1, 1], "without more than one rank"),
        ([2], [0], "above 0"),
        ([2], [float("nan")], "above 0"),
        ([0, 2], [1, 2], "at least 1"),
    ],
)
def test_points_that_say_nothing_are_refused(ranks, speeds, words):
    for fit in (scaling.fit_amdahl, scaling.fit_gustafson):
        with pytest.raises(ValueError, match=words):
            fit(ranks, speeds)
