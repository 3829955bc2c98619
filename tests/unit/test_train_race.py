"""The race: five plans on one link; the prediction is the simulator's, the measurement a median."""

import pytest
import torch

from allhands.mgwfbp.plan import finish_s, single_bucket
from allhands.train import race as races


@pytest.fixture(scope="module")
def result() -> races.Race:
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4)))
    x = torch.randn(256, 512)
    return races.race(races.Case(model, lambda model: model(x).sum()), rounds=2)


def test_every_plan_runs_and_covers_all_gradients(result):
    names = [one.name for one in result.outcomes]
    assert names == ["WFBP", "single", "DDP 25 MiB", "MG-WFBP", "optimum"]
    assert all(one.plan.n_gradients == 8 for one in result.outcomes)
    assert all(len(one.seconds) >= 2 for one in result.outcomes)


def test_the_prediction_is_the_simulator_s_and_no_step_beats_the_sleep_of_its_messages(result):
    for one in result.outcomes:
        assert one.predicted_s == finish_s(result.gradients, one.plan, result.cost)
        sleeps_s = result.cost.startup_s * one.plan.n_groups
        sleeps_s += result.cost.s_per_byte * result.gradients.total_bytes
        assert min(one.seconds) >= sleeps_s


def test_the_median_and_the_error_by_hand():
    one = races.Outcome("a", single_bucket(1), predicted_s=2.0, seconds=(1.0, 2.2, 9.0))
    assert one.measured_s == 2.2
    assert one.error == pytest.approx(0.1)


def test_a_race_without_a_step_that_counts_says_so(monkeypatch):
    monkeypatch.setattr(races, "TAKEN_AWAY", -1.0)  # no step has twice the time of the clock
    monkeypatch.setattr(races, "PATIENCE_S", 0.0)
    model = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    with pytest.raises(RuntimeError, match="No step could be timed in 10 rounds"):
        races.race(races.Case(model, lambda model: model(x).sum()), rounds=1)
