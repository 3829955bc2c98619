"""Merged steps on real ranks: every group once a step, in the plan's order, and equal ranks."""

import json

from allhands import launch
from allhands.trace.events import read_events


def test_every_group_leaves_once_a_step_in_order_and_ranks_stay_equal(tmp_path):
    words = ("--out", tmp_path, "--steps", 2)
    launch.torchrun("allhands.train.merged.steps", *words, ranks=2, time_limit_s=200)
    found = json.loads((tmp_path / "plan.json").read_text())
    assert found["same_parameters_on_all_ranks"] is True
    names = [f"{first}-{last}" for first, last in found["groups"]]
    for rank in (0, 1):
        events = sorted(read_events(tmp_path / f"events.rank{rank}.jsonl"))
        for step in sorted({event.step for event in events}):
            sent = [e.name for e in events if e.step == step and e.what == "communicate"]
            assert sent == names
    assert len({event.step for event in events}) == 2
