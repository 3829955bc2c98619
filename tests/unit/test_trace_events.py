"""Events: what a span records, and that files survive a run that was killed."""

import pytest

from allhands.trace.events import Event, Recorder, read_events, write_events


class HandClock:
    """A clock that a test turns by hand."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def test_a_span_lasts_as_long_as_its_block():
    clock = HandClock()
    recorder = Recorder(rank=3, clock=clock)
    recorder.step = 7
    clock.s = 101.0
    with recorder.span("forward", "LSTM"):
        clock.s = 103.5
    assert recorder.events == [Event(1.0, 3.5, 3, "forward", "LSTM", 7)]
    assert recorder.events[0].duration_s == 2.5


def test_a_span_is_recorded_when_its_block_raises():
    recorder = Recorder(clock=HandClock())
    with pytest.raises(KeyError), recorder.span("backward"):
        raise KeyError
    assert [event.what for event in recorder.events] == ["backward"]


def test_a_resumed_clock_goes_on_where_the_run_was_left():
    clock = HandClock()
    recorder = Recorder(clock=clock, start_s=40.0)
    clock.s += 2
    assert recorder.now_s() == 42.0


def test_an_event_that_ends_before_it_starts_is_refused():
    with pytest.raises(ValueError, match=r"'wait' starts at 2.0 s and ends at 1.0 s"):
        Event(2.0, 1.0, 0, "wait")
    with pytest.raises(ValueError, match="must not end before"):
        Event(0.0, float("nan"), 0, "wait")


def test_what_is_written_is_read(tmp_path):
    events = [Event(0.1, 0.2, 0, "batch"), Event(0.2, 0.4, 1, "communicate", "group 0", 5)]
    write_events(tmp_path / "events", events)
    assert read_events(tmp_path / "events") == events


def test_flush_appends_and_empties_the_memory(tmp_path):
    recorder = Recorder(clock=HandClock(), path=tmp_path / "events")
    for what in ("forward", "backward"):
        with recorder.span(what):
            pass
        recorder.flush()
    assert recorder.events == []
    assert [event.what for event in read_events(tmp_path / "events")] == ["forward", "backward"]


def test_a_last_line_cut_short_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "events"
    write_events(path, [Event(0.0, 1.0, 0, "forward"), Event(1.0, 2.0, 0, "backward")])
    path.write_text(path.read_text()[:-20])
    assert [event.what for event in read_events(path)] == ["forward"]


@pytest.mark.parametrize("line", ["nonsense", "[1, 2]", '{"start_s": 1}', '{"colour": 1}'])
def test_any_other_line_that_is_no_event_is_refused_with_its_place(tmp_path, line):
    path = tmp_path / "events"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"events:1 is not an event"):
        read_events(path)
