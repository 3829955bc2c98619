"""Functions of a notebook on real ranks: what they return, and how their failures are told."""

import re

import pytest

from allhands import launch
from allhands.train.on_ranks import on_ranks
from allhands.train.rungs import start


def leave_early(comm):
    import sys

    sys.exit(0)


def leave_at_once(comm):
    import os

    if comm.rank == 1:
        os._exit(0)
    comm.barrier()


def hand_out(comm):
    return lambda: comm.rank


def test_results_and_functions_travel():
    def double(n):
        return 2 * n

    def program(comm, double):
        return comm.allreduce(double(comm.rank))

    assert on_ranks(program, double, ranks=2) == [2, 2]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (leave_early, "ranks 0, 1 ended before the function returned"),
        (leave_at_once, "rank 1 ended with exit code 0 within its program"),
        (hand_out, "what the function returned cannot be sent: function"),
    ],
)
def test_a_program_without_a_result_is_told_in_a_sentence(program, said):
    with pytest.raises(launch.RanksFailed, match=re.escape(said)) as caught:
        start(program, ranks=2)
    assert "Traceback" not in str(caught.value)
    assert len(caught.value.calls) == len(caught.value.stacks) == 2
