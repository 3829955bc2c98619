"""ChainerMN on real ranks: one message a step, after the backward pass, on every rank."""

import pytest

from allhands import launch
from allhands.trace.events import read_events


@pytest.fixture(scope="module", params=[2, 4])
def by_rank(request, tmp_path_factory):
    """The events of each rank, after three steps."""
    folder = tmp_path_factory.mktemp("exchange")
    words = ("--out", folder, "--steps", 3)
    launch.mpirun("allhands.train.exchange", *words, ranks=request.param, time_limit_s=200)
    return [read_events(folder / f"events.rank{rank}.jsonl") for rank in range(request.param)]


def test_each_step_sends_one_message_and_the_first_call_none(by_rank):
    for events in by_rank:
        assert [event.step for event in events if event.what == "communicate"] == [1, 2, 3]


def test_the_message_starts_when_the_backward_pass_is_over(by_rank):
    for events in by_rank:
        for step in (1, 2, 3):
            one = {event.what: event for event in events if event.step == step}
            assert one["communicate"].start_s >= one["backward"].end_s
