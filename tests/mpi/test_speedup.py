"""The speed-up on real ranks: all worlds train the same steps; the numbers are the events'."""

import statistics

import pytest
from mpi4py import MPI

from allhands import launch
from allhands.trace import scaling
from allhands.train import speedup, speedup_ranks
from allhands.train.speedup import Plan

SMALL = {"batch_size": 8, "steps": 3, "rounds": 2}


@pytest.fixture(scope="module", params=speedup.MODES)
def found(request, tmp_path_factory):
    """(mode, folder, results) of a small measurement of 1 and 2 ranks."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, speedup.measure((1, 2), mode=request.param, out=folder, **SMALL)


def test_each_world_is_measured_in_each_round(found):
    mode, folder, measured = found
    assert [(one.ranks, one.mode) for one in measured] == [(1, mode), (2, mode)]
    assert all(len(one.samples_per_s) == SMALL["rounds"] for one in measured)
    assert speedup.read(folder) == measured


def test_weak_keeps_the_batch_of_a_rank_and_strong_the_batch_of_all(found):
    mode, _, measured = found
    assert [one.batch_size for one in measured] == {"weak": [8, 8], "strong": [8, 4]}[mode]


def test_the_numbers_are_those_of_the_events(found):
    _, folder, measured = found
    for one in measured:
        for number in range(SMALL["rounds"]):
            events = speedup.events(folder, one.ranks, number)
            assert {event.rank for event in events} == set(range(one.ranks))
            assert {event.step for event in events} == set(range(scaling.WARM_UP + SMALL["steps"]))
            step_s = statistics.median(scaling.step_times_s(events))
            assert one.step_s[number] == pytest.approx(step_s)
            assert one.samples_per_s[number] == pytest.approx(one.batch_size * one.ranks / step_s)
            shares = scaling.shares(events)
            assert (one.wait_share[number], one.transfer_share[number]) == pytest.approx(
                (shares.wait, shares.transfer)
            )


def test_shares_are_shares_and_one_rank_waits_for_nobody(found):
    _, _, [one, two] = found
    assert set(one.wait_share) == {0}
    assert all(0 < share < 1 for share in two.transfer_share)
    assert all(0 <= share < 1 for share in two.wait_share)
    assert all(share > 0 for share in one.core_share + two.core_share)


def test_in_the_ranks_of_a_job_it_measures_there_and_rank_0_speaks():
    words = ("--ranks=2,1", "--batch=8", "--steps=1", "--rounds=1")
    done = launch.mpirun("allhands.train.speedup", *words, ranks=2, time_limit_s=120)
    table = done.text(rank=0).splitlines()
    assert table[0].startswith("weak scaling: medians of 1 round")
    assert [int(line.split()[0]) for line in table[2:]] == [2, 1]
    assert done.text(rank=1) == ""


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options", [{}, {"allreduce_dtype": "float16"}, {"double_buffering": True}]
)
def test_on_a_gpu_nccl_sends_half_numbers_and_beside_the_next_step(options):
    how = SMALL | {"communicator": "pure_nccl"} | options
    [one] = speedup.measure((1,), **how)
    assert all(speed > 0 for speed in one.samples_per_s)
    beside = "double_buffering" in options  # then no event says when the exchange runs
    assert all((share == 0) == beside for share in one.transfer_share)


def test_more_ranks_than_the_job_has_are_refused():
    with pytest.raises(ValueError, match="measures 2 ranks, and this job has 1"):
        speedup_ranks.measure_here(Plan((1, 2)), MPI.COMM_SELF, None)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"mode": "fast"}, "weak or strong; saw 'fast'"),
        ({"ranks": ()}, "different numbers from 1 on"),
        ({"ranks": (2, 2)}, "different numbers from 1 on"),
        ({"ranks": (0, 1)}, "different numbers from 1 on"),
        ({"rounds": 0}, "at least 1"),
        ({"mode": "strong", "ranks": (1, 3)}, "64 pairs cannot be cut into 3"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Plan(**fields)


def test_in_weak_scaling_a_rank_has_the_same_part_of_the_same_batch_in_every_world():
    plan = Plan((1, 2, 4), "weak", 16)
    assert {plan.cut(n) for n in plan.ranks} == {(64, 4)}
    assert [plan.samples_per_step(n) for n in plan.ranks] == [16, 32, 64]


def test_in_strong_scaling_all_ranks_share_one_batch():
    plan = Plan((1, 2, 4), "strong", 16)
    assert [plan.cut(n) for n in plan.ranks] == [(16, 1), (16, 2), (16, 4)]
    assert {plan.samples_per_step(n) for n in plan.ranks} == {16}
