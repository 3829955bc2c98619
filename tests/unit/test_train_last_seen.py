"""Notes of calls: written around each call, read back, and compared over the ranks."""

import faulthandler

import pytest

from allhands.train import last_seen
from allhands.train.last_seen import Call, Noted


class Silent:
    """One rank, whose broadcast never comes back."""

    rank, size = 0, 1

    def allreduce(self, value):
        return value

    def bcast(self, value):
        raise TimeoutError


def test_a_call_is_noted_before_it_begins_and_after_it_has_ended(tmp_path):
    comm = Noted(Silent(), tmp_path)
    comm.allreduce(3)
    with pytest.raises(TimeoutError):
        comm.bcast(3)
    (calls,) = last_seen.read(tmp_path)
    assert calls == [
        Call("allreduce", "comm.allreduce(3)", True),
        Call("bcast", "comm.bcast(3)", False),
    ]
    assert comm.size == 1
    assert "WAITS IN bcast" in last_seen.table([calls])


def test_a_half_written_note_is_left_out(tmp_path):
    (tmp_path / "rank1.calls").write_text('{"began": "Send", "line": "x", "at_s": 1}\n{"end')
    assert last_seen.read(tmp_path) == [[], [Call("Send", "x", False)]]


def call(name, line="x"):
    return Call(name, line, True)


@pytest.mark.parametrize(
    ("calls", "number"),
    [
        ([[call("a")], [call("a")]], None),
        ([[], []], None),
        ([[call("a")], []], 0),
        ([[call("a"), call("b")], [call("a"), call("c")]], 1),
        ([[call("a", "here")], [call("a", "there")]], 0),
        ([[call("a")] * 3, [call("a")] * 2], 2),
    ],
)
def test_the_first_difference_is_found_by_name_line_and_number(calls, number):
    assert last_seen.first_difference(calls) == number


def test_a_hanging_program_writes_its_stack_and_goes_on(tmp_path):
    last_seen.dump_stack_after(0.05, tmp_path, rank=3)
    stack = tmp_path / "rank3.stack"
    while "most recent call first" not in stack.read_text():
        pass
    faulthandler.cancel_dump_traceback_later()
    assert "test_a_hanging_program_writes_its_stack" in stack.read_text()
