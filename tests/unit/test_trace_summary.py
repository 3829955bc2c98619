"""Summaries: cases worked by hand."""

import pytest

from allhands.trace.events import Event, read_events
from allhands.trace.summary import median_step_s, read_metrics, step_times_s, time_by


def steps(*durations_s):
    """Steps of the given durations, half forward and half backward."""
    events, now = [], 0.0
    for number, duration_s in enumerate(durations_s, start=1):
        middle, end = now + duration_s / 2, now + duration_s
        events += [
            Event(now, middle, 0, "forward", "", number),
            Event(middle, end, 0, "backward", "", number),
        ]
        now = end
    return events


def test_time_is_added_up_by_kind_and_the_longest_comes_first():
    events = [
        Event(0, 1, 0, "forward"),
        Event(1, 4, 0, "backward"),
        Event(4, 5, 0, "forward"),
    ]
    first, second = time_by(events)
    assert (first.label, first.total_s, first.share, first.count) == ("backward", 3, 0.6, 1)
    assert (second.label, second.total_s, second.share, second.count) == ("forward", 2, 0.4, 2)


def test_named_time_tells_functions_apart():
    events = [Event(0, 1, 0, "forward", "LSTM"), Event(1, 3, 0, "forward", "Tanh")]
    assert [spent.label for spent in time_by(events, named=True)] == [
        "forward Tanh",
        "forward LSTM",
    ]


def test_no_events_take_no_time():
    assert time_by([]) == []


def test_a_step_is_the_sum_of_its_parts_and_evaluation_is_not_a_part():
    events = [*steps(2, 4), Event(6, 60, 0, "evaluate", "", 2)]
    assert step_times_s(events) == [2, 4]


def test_the_median_step_leaves_the_warm_up_out():
    assert median_step_s(steps(90, 80, 70, 1, 2, 30)) == 2
    with pytest.raises(ValueError, match="more than 3 training steps"):
        median_step_s(steps(1, 2, 3))


def test_metrics_tell_updates_from_evaluations_and_leave_a_cut_line_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        '{"update": 1, "loss": 2.5}\n{"update": 1, "valid_loss": 2.0}\n{"update": 2, "lo'
    )
    metrics = read_metrics(tmp_path)
    assert metrics.losses == [2.5]
    assert [line["valid_loss"] for line in metrics.evaluations] == [2.0]


@pytest.mark.parametrize(
    "line",
    [
        *('{"a": 1}', "[1]", '{"update": 2, "lo', '{"update": "2"}', '{"update": 2, "loss": "x"}'),
        *("", "\x00", '{"update": 2, "loss": null}'),
    ],
)
def test_a_line_that_is_no_metrics_is_named_with_its_number(tmp_path, line):
    good = '{"update": 1, "loss": 2.5}\n'
    (tmp_path / "metrics.jsonl").write_text(f"{good}{line}\n{good}")
    with pytest.raises(ValueError, match=r"metrics\.jsonl:2 is not a line of metrics"):
        read_metrics(tmp_path)


def test_a_folder_without_metrics_gets_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"metrics\.jsonl cannot be read: No such file.*Give the"):
        read_metrics(tmp_path / "nope")


@pytest.mark.parametrize(
    "line", [b"\xff\xfe\n", b'{"start_s": 0, "end_s": 1, "rank": 0, "what": "x", "step": "1"}\n']
)
def test_a_line_that_is_no_event_is_named_with_its_number(tmp_path, line):
    (tmp_path / "events").write_bytes(line)
    with pytest.raises(ValueError, match="events:1 is not an event"):
        read_events(tmp_path / "events")
