"""All-reduces by hand on real ranks: as MPI's for all types and sizes, also for large messages."""

import json

import numpy as np
import pytest

from allhands import launch
from allhands.train import all_reduce, half_all_reduce
from allhands.train.all_reduce_times import Measured

# What each rank does: every algorithm against MPI's own, on whole numbers, so that sums are exact.
PROGRAM = """
import json, sys
import numpy as np
from mpi4py import MPI
from allhands import launch
from allhands.train.all_reduce import BY_HAND
from allhands.train.excepthook import end_job_on_error
from allhands.train.traffic import Counted, messages

comm = MPI.COMM_WORLD
end_job_on_error(comm)
launch.expect_world(comm)
numbers = np.random.default_rng(comm.rank)
wrong = []
for dtype in ("float64", "float32", "int64", "int32", "complex128"):
    for shape in ((0,), (1,), (comm.size - 1,), (2, 3), (1003,)):
        mine = numbers.integers(-99, 99, shape).astype(dtype)
        before, expected = mine.copy(), np.empty_like(mine)
        comm.Allreduce(mine, expected)
        for name, function in BY_HAND.items():
            result = function(comm, mine)
            same = np.array_equal(result, expected) and np.array_equal(mine, before)
            if not same or (result.shape, result.dtype) != (mine.shape, mine.dtype):
                wrong.append([name, dtype, shape])
steps = {}
large = np.full(600_011, comm.rank + 1, np.float32)  # beyond any buffer of MPI's for short messages
for name, function in BY_HAND.items():
    counted = Counted(comm)
    if not np.all(function(counted, large) == comm.size * (comm.size + 1) / 2):
        wrong.append([name, "large"])
    everyone = comm.gather(counted.calls)
    if comm.rank == 0:
        found = messages(everyone)
        sent = [sum(m.n_bytes for m in found if m.source == r) for r in range(comm.size)]
        steps[name] = [max((m.step for m in found), default=0), max(sent, default=0)]
all_wrong = comm.gather(wrong)
if comm.rank == 0:
    print(json.dumps({"wrong": all_wrong, "steps": steps}))
"""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_sums_are_those_of_mpi_and_steps_and_bytes_those_of_theory(tmp_path, ranks):
    script = tmp_path / "compare.py"
    script.write_text(PROGRAM)
    done = launch.mpirun(script, ranks=ranks, time_limit_s=120)
    seen = json.loads(done.text(rank=0))
    assert seen["wrong"] == [[]] * ranks
    n_bytes = 4 * 600_011
    steps = seen["steps"]
    assert steps["gather-broadcast"] == [2 * (ranks - 1), (ranks - 1) * n_bytes]
    assert steps["ring"][0] == 2 * (ranks - 1)
    share = 2 * (ranks - 1) / ranks * n_bytes
    assert abs(steps["ring"][1] - share) <= 4 * 2 * ranks  # chunks differ by one number at most
    power = ranks.bit_length() - 1
    extra = ranks > 2**power
    assert steps["recursive doubling"] == [power + 2 * extra, (power + extra) * n_bytes]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measured")
    words = ("--out", folder, "--repeats", 3)
    done = launch.mpirun("allhands.train.all_reduce", *words, ranks=2, time_limit_s=120)
    return Measured.load(folder), done, folder


def test_the_program_measures_every_algorithm_at_every_size(measured):
    found, done, folder = measured
    assert found.n_ranks == 2
    assert list(found.times_s) == list(all_reduce.ALGORITHMS)
    assert found.sizes_bytes == all_reduce.SIZES_BYTES
    for times_s in (*found.times_s.values(), found.message_s):
        assert len(times_s) == len(found.sizes_bytes)
        assert np.all(np.array(times_s) > 0)
    assert done.text(rank=0).strip() == str(found)
    assert done.text(rank=1) == ""  # rank 0 alone speaks
    assert len(list(folder.glob("*.csv"))) == len(all_reduce.ALGORITHMS) + 1


def test_16_bits_on_real_ranks_are_those_of_the_rehearsal():
    from allhands.train.rehearsal import rehearse

    def program(comm, _):
        return half_all_reduce.outcomes_of(comm)

    assert half_all_reduce.run(ranks=3) == rehearse(program, [None] * 3).results[0]


def test_sizes_and_worlds_that_cannot_be_measured_are_refused():
    from mpi4py import MPI

    from allhands.train.all_reduce_times import measure_wire

    with pytest.raises(ValueError, match="multiples of 4 bytes"):
        all_reduce.measure(MPI.COMM_SELF, sizes_bytes=[6])
    with pytest.raises(ValueError, match="start 2 or more"):
        measure_wire(MPI.COMM_SELF, [4])
