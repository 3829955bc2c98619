"""Merged all-reduce on real gloo ranks, which run merged_ranks.py, against PyTorch's own DDP.

With two ranks a sum has one order, so gradients must be equal to the last bit. With four the order
depends on the plan; see the tolerance at the test.
"""

from pathlib import Path

import pytest
import torch

from allhands import launch
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, one_per_gradient

RANKS = Path(__file__).with_name("merged_ranks.py")
THREE_GROUPS = Plan(((0, 0), (1, 4), (5, 7)))  # as there


def run(ranks: int, folder: Path) -> list[dict]:
    launch.torchrun(RANKS, folder, ranks=ranks, time_limit_s=240)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(ranks)]


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[dict]:
    return run(2, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory) -> list[dict]:
    return run(4, tmp_path_factory.mktemp("four"))


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(
        value is other[name] if value is None else torch.equal(value, other[name])
        for name, value in one.items()
    )


COMPARED = [
    "case_plain",
    "case_shared_and_frozen",
    "case_used_on_one_rank_only",
    "case_used_nowhere",
    "case_order_differs_between_ranks",
    "case_several_types",
    "case_accumulation",
    "case_accumulation_with_a_parameter_that_the_last_pass_does_not_use",
    "case_checkpoint",
    "case_four_steps_with_clipping",
]


@pytest.mark.parametrize("case", COMPARED)
def test_two_ranks_have_the_bits_of_ddp(two, case):
    for rank, results in enumerate(two):
        expected = results[case]["ddp"]
        assert any(value is not None and value.any() for value in expected.values())
        for plan, seen in results[case].items():
            assert same(seen, expected), f"rank {rank}, {plan}"
    assert same(two[0][case]["ddp"], two[1][case]["ddp"])


def test_the_cases_are_what_they_say(two):
    """A parameter that one rank uses is averaged with zeros; one that none uses keeps None."""
    one_rank = two[0]["case_used_on_one_rank_only"]["3 groups"]
    assert all(one_rank[f"branches.{i}.weight"].any() for i in range(4))
    nowhere = two[0]["case_used_nowhere"]["3 groups"]
    assert [nowhere[f"branches.{i}.weight"] is None for i in range(4)] == [False, True, True, False]
    tied = two[0]["case_shared_and_frozen"]["1 groups"]
    assert [name for name, value in tied.items() if value is None] == ["fixed.weight", "fixed.bias"]


def test_an_unused_parameter_gets_zeros_unless_find_unused_is_asked(two):
    for results in two:
        seen = results["case_unused_gets_zeros_unless_asked"]
        assert all((value != 0).any() == (name[9] in "03") for name, value in seen.items())


def test_four_ranks_agree_with_the_exact_mean_and_with_ddp(four):
    """In any order, the sum of 4 numbers of 24 bits is off by at most 3 * 2^-24 of the sum of their
    absolute values (Higham, Accuracy and Stability of Numerical Algorithms, 4.2); so is the mean,
    as a division by 4 is exact. Two sums differ by twice that at most.
    """
    exact, size = four[0]["case_exact_mean"]["mean"], four[0]["case_exact_mean"]["size"]
    expected = four[0]["case_plain"]["ddp"]
    for results in four:
        for seen in results["case_plain"].values():
            for name, value in seen.items():
                unit = 1.001 * 2.0**-24 * size[name]  # 1.001: terms of higher order
                assert ((value.double() - exact[name]).abs() <= 3 * unit).all()
                assert ((value - expected[name]).abs() <= 6 * unit).all()


@pytest.mark.parametrize("case", COMPARED)
def test_four_ranks_have_equal_gradients(four, case):
    for results in four[1:]:
        for plan, seen in results[case].items():
            assert same(seen, four[0][case][plan])


def test_ddp_runs_the_plan_by_its_bucket_sizes(two):
    for results in two:
        seen = results["case_ddp_runs_the_plan"]
        order = seen["order"]
        expected = [set(order[first : last + 1]) for first, last in THREE_GROUPS.groups]
        assert [set(bucket) for bucket in seen["buckets"]] == expected
        assert same(seen["gradients"], results["case_plain"]["ddp"])


def test_ranks_that_disagree_are_named_on_all_ranks(four):
    sentences = [results["case_ranks_disagree"] for results in four]
    assert all(sentence == sentences[0] for sentence in sentences)
    for what in ("plan", "parameters"):
        assert f"must have the same {what}," in sentences[0][what]
        assert "ranks 0, 1, 2 have " in sentences[0][what]
        assert "; rank 3 has " in sentences[0][what]
    assert "must have the same plan," in sentences[0]["order"]
    assert sentences[0]["same"] == "nothing"


def test_ranks_agree_on_the_slowest_time_of_each_gradient(two):
    """The slowest forward pass takes 10; a comes 4 after it, b 5, c 3."""
    for results in two:
        assert results["case_agree"]["gradients"] == Gradients(
            (13, 14, 15), (12, 4, 8), 10.0, ("c", "a", "b")
        )


def test_probe_fit_plan_and_tuner_give_the_same_on_all_ranks(two):
    seen = [results["case_probe_fit_plan_train_tune"] for results in two]
    assert seen[0]["shared"] == seen[1]["shared"]
    gradients, (sizes, times_s), decisions, _ = seen[0]["shared"]
    assert sorted(gradients.names) == sorted(two[0]["case_plain"]["ddp"])
    assert sizes == [64, 4096, 262144]
    assert all(time_s > 0 for time_s in times_s)
    assert [one.new_plan for one in decisions] == [one_per_gradient(8), THREE_GROUPS]
    for results, rank in zip(seen, two, strict=True):
        for step in results["gradients"].values():
            assert same(step, rank["case_plain"]["ddp"])
