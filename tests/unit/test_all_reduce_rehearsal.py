"""Rehearsals: what hangs under MPI is named here, and so is what MPI would refuse."""

import threading

import numpy as np
import pytest

from allhands.train.rehearsal import Deadlock, rehearse
from allhands.train.traffic import Call, Message, Traffic, messages, traffic


def test_a_ring_of_sends_is_a_deadlock_that_says_who_waits_for_whom():
    def send_first(comm, array):
        received = np.empty_like(array)
        comm.Send(array, dest=(comm.rank + 1) % comm.size)
        comm.Recv(received, source=(comm.rank - 1) % comm.size)

    with pytest.raises(Deadlock) as error:
        rehearse(send_first, [np.ones(1)] * 3)
    assert "rank 0 sends to rank 1; rank 1 sends to rank 2; rank 2 sends to rank 0" in str(error)
    assert "use Sendrecv" in str(error)


def test_waiting_for_a_rank_that_has_ended_is_a_deadlock():
    def forget(comm, array):
        if comm.rank == 0:
            comm.Recv(array, source=1)

    with pytest.raises(Deadlock, match="rank 0 receives from rank 1; rank 1 has ended"):
        rehearse(forget, [np.ones(1)] * 2)


def test_a_rank_that_raises_ends_the_others_and_is_named():
    def fail(comm, array):
        if comm.rank == 1:
            raise KeyError("chunk")
        comm.Recv(array, source=1)

    before = threading.active_count()
    with pytest.raises(KeyError, match="chunk") as error:
        rehearse(fail, [np.ones(1)] * 3)
    assert error.value.__notes__ == ["That was rank 1 of 3."]
    assert threading.active_count() == before


def test_sending_halves_meet_receiving_halves_in_any_grouping_of_calls():
    """Sendrecv on one side, Recv and then Send on the other: MPI allows it."""

    def swap(comm, array):
        other = np.empty_like(array)
        if comm.rank == 0:
            comm.Sendrecv(array, dest=1, recvbuf=other, source=1)
        else:
            comm.Recv(other, source=0)
            comm.Send(array, dest=0)
        return other

    done = rehearse(swap, [np.zeros(2), np.ones(2)])
    assert [result.tolist() for result in done.results] == [[1, 1], [0, 0]]
    assert done.messages == (Message(1, 0, 1, 16), Message(2, 1, 0, 16))


def test_a_rank_may_send_to_itself_with_sendrecv_but_not_with_send():
    def alone(comm, array):
        received = np.empty_like(array)
        comm.Sendrecv(array, dest=0, recvbuf=received, source=0)
        return received

    done = rehearse(alone, [np.arange(3.0)])
    assert done.results[0].tolist() == [0, 1, 2]
    assert done.messages == (Message(1, 0, 0, 24),)
    with pytest.raises(Deadlock):
        rehearse(lambda comm, array: comm.Send(array, dest=0), [np.ones(1)])


def test_a_message_is_what_the_sender_had_when_it_sent():
    def send_and_overwrite(comm, array):
        if comm.rank == 0:
            comm.Send(array, dest=1)
            array[:] = -1
            comm.Send(array[:1], dest=1)
        else:
            received = np.empty_like(array)
            comm.Recv(received, source=0)
            comm.Recv(received[:1], source=0)
            return received.tolist()

    assert rehearse(send_and_overwrite, [np.ones(3), np.ones(3)]).results[1] == [-1, 1, 1]


def test_messages_with_a_tag_wait_for_a_receiver_with_that_tag():
    def tagged(comm, array):
        if comm.rank == 0:
            comm.Send(array, dest=1, tag=7)
        else:
            comm.Recv(array, source=0, tag=8)

    with pytest.raises(Deadlock):
        rehearse(tagged, [np.ones(1)] * 2)


def test_without_a_tag_any_message_of_the_source_fits_and_arguments_may_go_by_place():
    def swap(comm, array):
        received = np.empty_like(array)
        comm.Sendrecv(array, 1 - comm.rank, 5, received, 1 - comm.rank)
        return received

    done = rehearse(swap, [np.zeros(1), np.ones(1)])
    assert [result.tolist() for result in done.results] == [[1], [0]]
    assert str(done) == "step  1   0 to 1: 8 bytes   1 to 0: 8 bytes"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda comm, x: comm.Send(x, dest=comm.rank + 1), "there are ranks 0 to 0"),
        (lambda comm, x: comm.Recv(x), "does not say from whom"),
        (lambda comm, x: comm.Send([1.0], dest=0), "A message buffer is a NumPy array"),
        (lambda comm, x: comm.Send(x[::2], dest=0), "x\\[::2\\] does not"),
        (
            lambda comm, x: comm.Sendrecv(x, dest=0, recvbuf=np.empty(1), source=0),
            "a message of 32 bytes from rank 0, and its buffer has 8",
        ),
    ],
)
def test_what_mpi_would_refuse_is_refused_with_a_sentence(program, words):
    with pytest.raises(ValueError, match=words):
        rehearse(program, [np.ones(4)])


def test_what_is_not_counted_is_refused_by_name():
    with pytest.raises(AttributeError, match="asked for Allreduce: say it with those"):
        rehearse(lambda comm, x: comm.Allreduce(x, x), [np.ones(1)])


def test_steps_of_hand_made_records():
    """Rank 0 sends to 1 and 2, one after the other; 2 has a message from 1 only after that."""
    records = [
        [Call(dest=1, sent_bytes=8), Call(dest=2, sent_bytes=4)],
        [Call(source=0, received_bytes=8), Call(dest=2, sent_bytes=2)],
        [Call(source=0, received_bytes=4), Call(source=1, received_bytes=2)],
    ]
    assert messages(records) == [Message(1, 0, 1, 8), Message(2, 0, 2, 4), Message(3, 1, 2, 2)]
    assert [traffic(calls) for calls in records] == [
        Traffic(2, 12, 0),
        Traffic(2, 2, 8),
        Traffic(2, 0, 6),
    ]


def test_records_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="rank 0 waits in Call\\(dest=1"):
        messages([[Call(dest=1, sent_bytes=8)], []])
