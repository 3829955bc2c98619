"""The comparison: complete, in plain data for JSON, and a recommendation that fits the numbers."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.mgwfbp import measured
from allhands.mgwfbp.cost import AffineCost, TabulatedCost
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, finish_s
from allhands.mgwfbp.report import MEANING, compare, recommendation

COUNTER_EXAMPLE = Gradients((0, 4, 9), (4, 1, 1))
NUMBER = st.integers(0, 9)
PROBLEM = st.tuples(
    st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=8), NUMBER, NUMBER, NUMBER
)


def test_the_counter_example_for_json():
    comparison = compare(COUNTER_EXAMPLE, AffineCost(5, 1))
    data = {entry["name"]: entry for entry in json.loads(json.dumps(comparison.as_dicts()))}
    assert list(data) == list(MEANING)
    assert data["WFBP"] == {"name": "WFBP", "finish_s": 21, "groups": [[0, 0], [1, 1], [2, 2]]}
    assert data["SyncEASGD"] == {"name": "SyncEASGD", "finish_s": 20, "groups": [[0, 2]]}
    assert data["MG-WFBP"] == {"name": "MG-WFBP", "finish_s": 20, "groups": [[0, 1], [2, 2]]}
    assert data["optimum"]["finish_s"] == 16
    assert data["optimum-fewest"]["groups"] == [[0, 0], [1, 2]]


@given(PROBLEM)
def test_every_entry_is_a_whole_plan_and_its_own_finish_time(problem):
    pieces, forward_s, a, b = problem
    gradients = Gradients.from_backward(*zip(*pieces, strict=True), forward_s=forward_s)
    cost = AffineCost(a, b)
    comparison = compare(gradients, cost)
    for entry in comparison.as_dicts():
        plan = Plan(tuple(map(tuple, entry["groups"])))
        assert entry["finish_s"] == finish_s(gradients, plan, cost)
        assert entry["finish_s"] >= comparison.best.finish_s
    assert recommendation(comparison)
    assert len(str(comparison).splitlines()) == 1 + len(MEANING)


def test_a_cost_table_is_compared_too():
    cost = TabulatedCost((0, 2, 8), (5, 5, 20))
    comparison = compare(COUNTER_EXAMPLE, cost)
    assert [one.name for one in comparison.strategies] == list(MEANING)[:-1]
    assert comparison.best.name == "optimum"
    assert "optimum: " in recommendation(comparison)


def test_a_strategy_that_is_not_there_is_named_with_those_that_are():
    comparison = compare(COUNTER_EXAMPLE, AffineCost(5, 1))
    with pytest.raises(KeyError, match=r"no strategy 'P3'; there are \['WFBP'"):
        comparison["P3"]


def test_where_merging_pays_the_plan_and_its_gain_are_named():
    """GoogLeNet on 64 K80 nodes: the published rule takes 1.31 times the optimum."""
    comparison = compare(measured.googlenet_k80(), measured.k80_10gbe(64))
    words = recommendation(comparison)
    gain = comparison["DDP"].finish_s / comparison.best.finish_s
    assert "Use optimum-fewest: 5 all-reduces, 368.5 ms" in words
    assert f"default buckets ({gain:.2f} times)" in words
    assert "1.49 times over a single bucket, 1.93 times over one per gradient" in words
    assert "published rule is not enough here: with 2 all-reduces it takes 483.0 ms, 1.31" in words
    assert "16-bit" in words


def test_where_the_default_is_good_it_is_kept():
    comparison = compare(measured.resnet50_k80(), measured.k80_10gbe(64))
    words = recommendation(comparison)
    assert words.splitlines()[1].startswith("Keep PyTorch's default buckets (619.4 ms)")
    assert "published rule" not in words


def test_where_all_is_hidden_no_faster_link_is_advised():
    gradients = Gradients.from_backward([10.0] * 5, [1e6] * 5, forward_s=10.0)
    words = recommendation(compare(gradients, AffineCost(1e-6, 1e-12)))
    assert "a faster link cannot gain more than that" in words
    assert "16-bit" not in words


def test_the_table_names_every_strategy_with_its_time_and_messages():
    comparison = compare(measured.googlenet_k80(), measured.k80_10gbe(64))
    lines = str(comparison).splitlines()[1:]
    for line, one in zip(lines, comparison.strategies, strict=True):
        name, time_ms, _, ratio, messages = re.split(r"\s+", line)[:5]
        assert (name, int(messages)) == (one.name, one.plan.n_groups)
        assert float(time_ms) == pytest.approx(1e3 * one.finish_s, abs=0.005)
        assert float(ratio[:-1]) >= 1


def test_gradients_that_take_no_time_at_all_are_compared():
    comparison = compare(Gradients([0, 0], [0, 0]), AffineCost(0, 0))
    assert {one.finish_s for one in comparison.strategies} == {0.0}
    assert "Keep" in recommendation(comparison)
