"""Lab 2's all-reduces by hand: checks refuse likely mistakes with the sentence meant for them."""

import numpy as np
import pytest

from allhands.grade.desk import Desk
from allhands.train import all_reduce
from allhands.train.all_reduce_times import Measured


@pytest.fixture
def desk() -> Desk:
    return Desk("lab2_dataparallel")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# --- ring ----------------------------------------------------------------------------------------


def neighbours(comm):
    return (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size


def around(comm, array, *, gathers=True, adds_again=False, copies=True):
    """The ring, with one mistake or none."""
    total = array.flatten() if copies else array.reshape(-1)
    chunks = np.array_split(total, comm.size)
    after, before = neighbours(comm)
    for t in range(comm.size - 1):
        mine = chunks[(comm.rank - t - 1) % comm.size]
        received = np.empty_like(mine)
        sent = chunks[(comm.rank - t) % comm.size]
        comm.Sendrecv(sent, dest=after, recvbuf=received, source=before)
        mine += received
    for t in range(comm.size - 1 if gathers else 0):
        mine = chunks[(comm.rank - t) % comm.size]
        received = np.empty_like(mine)
        sent = chunks[(comm.rank + 1 - t) % comm.size]
        comm.Sendrecv(sent, dest=after, recvbuf=received, source=before)
        mine[:] = mine + received if adds_again else received
    return total.reshape(array.shape)


def all_send_first(comm, array):
    after, before = neighbours(comm)
    received = np.empty_like(array)
    comm.Send(array, dest=after)
    comm.Recv(received, source=before)
    return array + received


def whole_arrays(comm, array):
    """The right sum around a ring, but each step sends everything."""
    total, passed = array.copy(), array.copy()
    after, before = neighbours(comm)
    for _ in range(comm.size - 1):
        received = np.empty_like(passed)
        comm.Sendrecv(passed, dest=after, recvbuf=received, source=before)
        total, passed = total + received, received
    return total


def uses_a_name_of_the_notebook(comm, array):
    return around(comm, array)


RING_MISTAKES = {
    "no all-gather": (lambda c, a: around(c, a, gathers=False), "Now the second"),
    "adds twice": (lambda c, a: around(c, a, adds_again=True), "add only in the first loop"),
    "in place": (lambda c, a: around(c, a, copies=False), "array.flatten() makes one"),
    "flat": (lambda c, a: around(c, a).ravel(), "return total.reshape(array.shape)"),
    "sends first": (all_send_first, "If every rank sends first, nobody receives"),
    "whole arrays": (whole_arrays, "N-1 steps for reduce-scatter, and N-1 steps for all-gather"),
    "gather": (all_reduce.gather_broadcast, "send one chunk in a step, not the whole array"),
    "only its own": (lambda c, a: a.copy(), "print the chunk numbers"),
    "a list": (lambda c, a: around(c, a).tolist(), "a NumPy array on every rank"),
    "float64": (lambda c, a: around(c, a).astype(np.float64), "np.zeros and np.empty make float64"),
    "no modulo": (lambda c, a: c.Send(a, dest=c.rank + 1), "take the rank modulo the size"),
}


@pytest.mark.parametrize("mistake", RING_MISTAKES)
def test_ring_refuses(desk, mistake):
    answer, sentence = RING_MISTAKES[mistake]
    refused(desk.check("ring", answer), sentence)


def test_ring_on_real_ranks_says_which_names_are_there(desk):
    verdict = desk.check("ring", uses_a_name_of_the_notebook)
    assert verdict.score == 2
    refused(verdict, "name 'around' is not defined")
    refused(verdict, "other names of the notebook are not there")


# --- doubling ------------------------------------------------------------------------------------


def one_step_too_few(comm, array):
    total, received = array.copy(), np.empty_like(array)
    for distance in (1, 2):
        if comm.size > distance:
            partner = comm.rank ^ distance
            comm.Sendrecv(total, dest=partner, recvbuf=received, source=partner)
            total = total + received
    return total


def powers_of_two_only(comm, array):
    total, received, distance = array.flatten(), np.empty(array.size, array.dtype), 1
    while distance < comm.size:
        partner = comm.rank ^ distance
        comm.Sendrecv(total, dest=partner, recvbuf=received, source=partner)
        total = total + received
        distance *= 2
    return total.reshape(array.shape)


def beyond_the_last(comm, array):
    total, received = array.copy(), np.empty_like(array)
    for distance in (1, 2, 4, 8):
        partner = comm.rank ^ distance
        comm.Sendrecv(total, dest=partner, recvbuf=received, source=partner)
        total = total + received
    return total


DOUBLING_MISTAKES = {
    "too far": (beyond_the_last, "only ranks below P exchange, at distances below P"),
    "too few": (one_step_too_few, "go on while the distance is below P"),
    "a ring": (whole_arrays, "double the distance in each step"),
    "powers of two": (powers_of_two_only, "a rank r >= P sends to r - P at first"),
}


@pytest.mark.parametrize("mistake", DOUBLING_MISTAKES)
def test_doubling_refuses(desk, mistake):
    answer, sentence = DOUBLING_MISTAKES[mistake]
    refused(desk.check("doubling", answer), sentence)


def test_the_package_s_own_all_reduces_get_full_marks(desk):
    assert desk.check("ring", all_reduce.ring).full
    assert desk.check("doubling", all_reduce.recursive_doubling).full


# --- link ----------------------------------------------------------------------------------------


def test_link_refuses_seconds_swapped_figures_all_sizes_and_one_message(desk):
    sizes = tuple(4**k for k in range(1, 12))

    def line(a_us, bend_us=0.0):
        return tuple(1e-6 * (a_us + bend_us * (s > 2e6)) + 1e-10 * s for s in sizes)

    times_s = {"ring": line(8.0, 3e3), "recursive doubling": line(5.0)}
    measured = Measured(2, 2, sizes, times_s, line(2.0), 0.0)
    right = {"ring us": 8.0, "doubling us": 5.0, "theory us": 4.0}
    assert desk.check("link", right, measured).full
    for key, value, sentence in (
        ("ring us", 8e-6, "that is in seconds"),
        ("ring us", 5.0, "that is the figure of 'doubling us'"),
        ("theory us", 2.0, "a ring of N ranks sends 2(N-1)"),
        ("theory us", 4e-6, "that is in seconds"),
    ):
        refused(desk.check("link", {**right, key: value}, measured), sentence)
    swapped = {**right, "ring us": 5.0, "doubling us": 8.0}
    refused(desk.check("link", swapped, measured), "have changed places")
    refused(desk.check("link", {"ring us": 8.0}, measured), "a dict with the keys")
    refused(desk.check("link", {**right, "ring us": None}, measured), "a number for each key")


def test_link_says_why_plain_least_squares_are_something_else(desk):
    """A bend at 256 KiB pulls a plain line off the small messages, and a relative one hardly."""
    sizes = tuple(4**k for k in range(1, 12))
    bent = tuple(1e-6 * (8.0 + 50.0 * (s > 2e5)) + 1e-10 * s for s in sizes)
    line = tuple(2e-6 + 1e-10 * s for s in sizes)
    measured = Measured(2, 2, sizes, {"ring": bent, "recursive doubling": line}, line, 0.0)
    inside = [k for k, size in enumerate(sizes) if size <= 1.1e6]
    start_s = np.polyfit([sizes[k] for k in inside], [bent[k] for k in inside], 1)[1]
    answer = {"ring us": 1e6 * start_s, "doubling us": 2.0, "theory us": 4.0}
    refused(desk.check("link", answer, measured), "in which the largest messages decide")
