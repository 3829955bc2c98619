"""All-reduces by hand, in rehearsal: any number of ranks, any length; steps and bytes of theory."""

import numpy as np
import pytest

from allhands.mgwfbp import theory
from allhands.train.all_reduce import BY_HAND, gather_broadcast, recursive_doubling, ring
from allhands.train.all_reduce_times import THEORY
from allhands.train.rehearsal import rehearse

RANKS = range(1, 10)
all_algorithms = pytest.mark.parametrize("all_reduce", BY_HAND.values(), ids=list(BY_HAND))


def arrays(n_ranks, shape, dtype, seed=0):
    """Whole numbers, so that every order of adding gives the same sum."""
    numbers = np.random.default_rng(seed)
    return [numbers.integers(-9, 9, shape).astype(dtype) for _ in range(n_ranks)]


@all_algorithms
@pytest.mark.parametrize("n_ranks", RANKS)
def test_every_rank_gets_the_sum_for_any_length(all_reduce, n_ranks):
    for length in (0, 1, 2, 3, n_ranks - 1, n_ranks, n_ranks + 1, 31):
        given = arrays(n_ranks, length, np.float32)
        for result in rehearse(all_reduce, given).results:
            np.testing.assert_array_equal(result, sum(given))


@all_algorithms
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "complex64"])
def test_shape_and_type_are_those_of_the_input(all_reduce, dtype):
    for shape in [(), (5,), (2, 3), (3, 0), (2, 1, 4)]:
        given = arrays(3, shape, dtype)
        for result in rehearse(all_reduce, given).results:
            assert (result.shape, result.dtype) == (shape, np.dtype(dtype))
            np.testing.assert_array_equal(result, sum(given))


@all_algorithms
def test_the_input_is_left_as_it_is_and_the_result_shares_no_memory_with_it(all_reduce):
    given = arrays(3, (4, 2), np.float32)
    for array in given:
        array.flags.writeable = False
    for array, result in zip(given, rehearse(all_reduce, given).results, strict=True):
        assert not np.shares_memory(array, result)
    alone = np.ones(3)
    assert not np.shares_memory(alone, rehearse(all_reduce, [alone]).results[0])


@all_algorithms
def test_an_array_with_gaps_in_memory_is_summed_as_any_other(all_reduce):
    given = [array[:, ::2] for array in arrays(3, (4, 6), np.float32)]
    for result in rehearse(all_reduce, given).results:
        np.testing.assert_array_equal(result, sum(given))


@all_algorithms
@pytest.mark.parametrize("n_ranks", RANKS)
def test_all_ranks_have_the_same_bits_although_rounding_depends_on_the_order(all_reduce, n_ranks):
    numbers = np.random.default_rng(n_ranks)
    given = [numbers.normal(size=50).astype(np.float32) for _ in range(n_ranks)]
    first, *others = rehearse(all_reduce, given).results
    for result in others:
        assert result.tobytes() == first.tobytes()
    # n-1 roundings of partial sums, each of which is at most the sum of the sizes
    bound = n_ranks * np.finfo(np.float32).eps * sum(np.abs(array) for array in given)
    assert np.all(np.abs(first - np.sum(given, axis=0, dtype=np.float64)) <= bound)


@all_algorithms
@pytest.mark.parametrize("n_ranks", RANKS)
def test_steps_are_the_startups_of_theory(name_of, all_reduce, n_ranks):
    """With a latency of 1 and nothing else, theory's time is the number of steps."""
    done = rehearse(all_reduce, arrays(n_ranks, 40, np.float32))
    theirs = THEORY[name_of(all_reduce)](n_ranks, theory.Wire(1.0, 0.0))
    assert done.n_steps == theirs.startup_s


@pytest.fixture
def name_of():
    names = {function: name for name, function in BY_HAND.items()}
    return names.get


@pytest.mark.parametrize("n_ranks", RANKS)
def test_ring_sends_the_bytes_of_theory_from_every_rank_in_equal_pieces(n_ranks):
    n_bytes = 4 * 6 * n_ranks
    done = rehearse(ring, arrays(n_ranks, n_bytes // 4, np.float32))
    share = theory.ring(n_ranks, theory.Wire(0.0, 1.0)).s_per_byte
    for rank in done.traffic:
        assert rank.sent_bytes == rank.received_bytes == pytest.approx(share * n_bytes)
    assert {message.n_bytes for message in done.messages} <= {n_bytes // n_ranks}
    for message in done.messages:
        assert message.dest == (message.source + 1) % n_ranks
    # every rank sends once in every step
    where = [(message.step, message.source) for message in done.messages]
    assert where == [(t + 1, r) for t in range(2 * (n_ranks - 1)) for r in range(n_ranks)]


def test_no_all_reduce_of_equal_pieces_sends_fewer_bytes_than_the_ring():
    """The bound of Patarasuk and Yuan: 2(N-1)/N of the bytes, from some rank."""
    for n_ranks in RANKS:
        given = arrays(n_ranks, 12 * n_ranks, np.float32)
        most = {f: max(r.sent_bytes for r in rehearse(f, given).traffic) for f in BY_HAND.values()}
        assert most[ring] == min(most.values())


@pytest.mark.parametrize("n_ranks", RANKS)
def test_gather_broadcast_goes_through_rank_0_alone(n_ranks):
    done = rehearse(gather_broadcast, arrays(n_ranks, 10, np.float32))
    root, *others = done.traffic
    assert root.sent_bytes == root.received_bytes == (n_ranks - 1) * 40
    assert all(rank.sent_bytes == rank.received_bytes == 40 for rank in others)
    assert all(0 in (message.source, message.dest) for message in done.messages)


@pytest.mark.parametrize(("n_ranks", "log2"), [(2, 1), (4, 2), (8, 3)])
def test_doubling_sends_all_bytes_log2_times_to_partners_at_distance_1_2_4(n_ranks, log2):
    done = rehearse(recursive_doubling, arrays(n_ranks, 10, np.float32))
    assert all(rank.sent_bytes == log2 * 40 for rank in done.traffic)
    for message in done.messages:
        assert abs(message.source - message.dest) == 2 ** (message.step - 1)


def test_doubling_of_five_ranks_by_hand():
    done = rehearse(recursive_doubling, arrays(5, 1, np.float64))
    told = [(message.step, message.source, message.dest) for message in done.messages]
    first, last = [(1, 4, 0)], [(4, 0, 4)]
    near = [(2, 0, 1), (2, 1, 0), (1, 2, 3), (1, 3, 2)]  # 0 is late by its guest
    far = [(3, 0, 2), (3, 2, 0), (3, 1, 3), (3, 3, 1)]
    assert sorted(told) == sorted(first + near + far + last)
