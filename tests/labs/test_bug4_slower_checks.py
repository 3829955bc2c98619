"""The lab bug4: the checks refuse likely mistakes with the sentence meant for each; they take the
repaired readings, and other right ways.
"""

import inspect
import json

import numpy as np
import pytest

from allhands.grade.checks import bug4_slower as checks
from allhands.grade.desk import Desk
from allhands.labs import COURSE
from allhands.trace.critical_path import critical_path_s
from allhands.train.faults import bug4_slower
from allhands.train.faults.readings import faulty_source, readings

ALL = {name for name, _ in inspect.getmembers(bug4_slower, inspect.isfunction)}


def reading(name: str, which: str):
    return readings(f"bug4_slower:{name}").named(which)


@pytest.fixture
def desk() -> Desk:
    return Desk("bug4_slower")


def refused(verdict, sentence: str) -> None:
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


def test_every_fault_is_refused_and_every_repair_is_taken(desk):
    groups = {
        "fair": ("step_s", "speed_up"),
        "cores": ("threads", "batch_of_rank"),
        "data": ("numbers",),
        "shared": ("load", "evaluate"),
    }
    assert {name for names in groups.values() for name in names} == ALL
    for id, names in groups.items():
        assert desk.check(id, *(reading(name, "repaired") for name in names)).full
        blank = desk.check(id, *(reading(name, "faulty") for name in names))
        assert blank.score == 0, blank.said
        for broken in names:
            answer = [reading(n, "faulty" if n == broken else "repaired") for n in names]
            assert not desk.check(id, *answer).full


def test_a_blank_repair_cell_shows_the_faulty_reading():
    cells = json.loads((COURSE.notebooks / "bug4_slower.ipynb").read_text(encoding="utf-8"))[
        "cells"
    ]
    given = "\n".join("".join(cell["source"]) for cell in cells)
    for name in ALL:
        body = faulty_source(getattr(bug4_slower, name)).rpartition('"""')[2].strip("\n")
        assert f'"""\n{body}\n' in given + "\n", name


def median_from_third(times_s):
    return np.median(times_s[3:])


FAIR = {
    "a mean of all": (np.mean, None, "the first included"),
    "a median of all": (np.median, None, "the first three steps do not count"),
    "without the first alone": (lambda t: np.median(t[1:]), None, "leave out the first three"),
    "no return": (lambda t: print(np.median(t[3:])), None, "does it end with `return"),
    "a list": (lambda t: [np.median(t[3:])], None, "return one number"),
    "a mean of the rest": (lambda t: np.mean(t[3:]), None, "spoils a mean"),
    "steps a second": (None, lambda a, t: a.step_s / t.step_s, "steps a second"),
    "upside down": (
        None,
        lambda a, t: (a.samples_per_step / a.step_s) / (t.samples_per_step / t.step_s),
        "the other way round",
    ),
}


@pytest.mark.parametrize("mistake", FAIR)
def test_fair_refuses(desk, mistake):
    step_s, speed_up, sentence = FAIR[mistake]
    answer = step_s or median_from_third, speed_up or bug4_slower.speed_up
    refused(desk.check("fair", *answer), sentence)


def path(events, transfer_s, *, over=max, leave=("communicate",), once=False):
    steps = {e.step for e in events}
    ranks = {e.rank for e in events}
    spent_s = [
        over(
            sum(e.duration_s for e in events if e.step == s and e.rank == r and e.what not in leave)
            for r in ranks
        )
        for s in steps
    ]
    return sum(spent_s) + transfer_s * (1 if once else len(steps))


PATHS = {
    "sums over ranks": (lambda e, t: path(e, t, over=sum), "no sum"),
    "one rank's sum": (
        lambda e, t: max(
            sum(x.duration_s for x in e if x.rank == r and x.what != "communicate") for r in (0, 1)
        ),
        "the slowest changes from step to step",
    ),
    "counts the waiting": (lambda e, t: path(e, t, leave=()), "waiting is no work"),
    "once in all": (lambda e, t: path(e, t, once=True), "not once for the run"),
    "no exchange": (lambda e, t: path(e, 0), "add transfer_s for each step"),
    "leaves evaluation out": (
        lambda e, t: path(e, t, leave=("communicate", "evaluate")),
        "not only batch, forward, backward and update",
    ),
}


@pytest.mark.parametrize("mistake", PATHS)
def test_critical_path_refuses(desk, mistake):
    answer, sentence = PATHS[mistake]
    refused(desk.check("critical_path", answer), sentence)


def test_critical_path_takes_another_right_one(desk):
    assert desk.check("critical_path", path).full
    assert desk.check("critical_path", critical_path_s).full


def test_evidence_refuses_what_does_not_tell_causes_apart_and_times(desk):
    right = {cause: min(rows) for cause, rows in checks.CAUSES.items()}
    assert desk.check("evidence", right).full
    refused(desk.check("evidence", right | {"data": "steps of an epoch"}), "two causes change")
    refused(desk.check("evidence", right | {"loader": "ms: batch"}), "no time")
    refused(desk.check("evidence", right | {"threads": "switches of a step"}), "the cause itself")
    refused(desk.check("evidence", {"data": "threads"}), "a dict with the keys")


DATA = {
    "not scattered": (lambda n, c, e: np.arange(n), "every size-th number"),
    "drops the remainder": (
        lambda n, c, e: np.random.default_rng(e).permutation(n)[: n // c.size * c.size][
            c.rank :: c.size
        ],
        "on no rank",
    ),
    "a seed a rank": (
        lambda n, c, e: np.random.default_rng(e + c.rank).permutation(n)[c.rank :: c.size],
        "the same order",
    ),
    "always one order": (
        lambda n, c, e: np.random.default_rng(0).permutation(n)[c.rank :: c.size],
        "the epoch is the seed",
    ),
}


def order_of_rank_0(n_samples, comm, epoch):
    """The order is made on rank 0 and sent: more than is needed, and right."""
    order = np.random.default_rng(epoch).permutation(n_samples) if comm.Get_rank() == 0 else None
    return comm.bcast(order)[comm.Get_rank() :: comm.Get_size()]


def parts_of_rank_0(n_samples, comm, epoch):
    parts = None
    if comm.rank == 0:
        parts = np.array_split(np.random.default_rng(epoch + 5).permutation(n_samples), comm.size)
    return comm.scatter(parts, root=0)


@pytest.mark.parametrize("numbers", [order_of_rank_0, parts_of_rank_0])
def test_data_takes_an_order_that_rank_0_sends(desk, numbers):
    assert desk.check("data", numbers).full


@pytest.mark.parametrize("mistake", DATA)
def test_data_refuses(desk, mistake):
    answer, sentence = DATA[mistake]
    refused(desk.check("data", answer), sentence)


def counts_on_rank_0(count_right, n_images, comm):
    share = count_right(np.arange(n_images)) / n_images if comm.rank == 0 else None
    share = comm.bcast(share)
    if comm.rank == 0:
        print(share)
    return 0.5


def prints_everywhere(count_right, n_images, comm):
    mine = np.arange(comm.rank, n_images, comm.size)
    share = comm.allreduce(count_right(mine)) / n_images
    print(share)
    return share


def own_share(count_right, n_images, comm):
    mine = np.arange(comm.rank, n_images, comm.size)
    if comm.rank == 0:
        print("own")
    return count_right(mine) / len(mine)


def mean_of_shares(count_right, n_images, comm):
    mine = np.arange(comm.rank, n_images, comm.size)
    share = comm.allreduce(count_right(mine) / len(mine)) / comm.size
    if comm.rank == 0:
        print(share)
    return share


def sum_on_rank_0(count_right, n_images, comm):
    mine = count_right(np.arange(comm.rank, n_images, comm.size))
    if comm.rank == 0:
        mine = comm.allreduce(mine)
        print(mine)
    return mine / n_images


def returns_numbers(read, numbers, comm):
    read(numbers)
    return numbers


def summed_by_name(count_right, n_images, comm):
    from mpi4py import MPI

    total = comm.allreduce(count_right(range(comm.rank, n_images, comm.size)), op=MPI.SUM)
    if comm.rank == 0:
        print(total)
    return total / n_images


def reduced_and_sent(count_right, n_images, comm):
    mine = np.array_split(np.arange(n_images), comm.Get_size())[comm.Get_rank()]
    total = comm.reduce(count_right(mine), root=0)
    if comm.rank == 0:
        print(f"{total / n_images:.1%} right")
    return comm.bcast(total / n_images if comm.rank == 0 else None, root=0)


def gathered_one_by_one(count_right, n_images, comm):
    mine = sum(count_right([i]) for i in range(comm.rank, n_images, comm.size))
    share = sum(comm.allgather(mine)) / n_images
    if comm.rank == 0:
        print(share)
    return share


def in_a_buffer(count_right, n_images, comm):
    total = np.zeros(1)
    comm.Allreduce(np.array([float(count_right(range(comm.rank, n_images, comm.size)))]), total)
    if comm.rank == 0:
        print(total)
    return float(total[0]) / n_images


@pytest.mark.parametrize(
    "evaluate", [summed_by_name, reduced_and_sent, gathered_one_by_one, in_a_buffer]
)
def test_shared_takes_other_ways_to_add_up(desk, evaluate):
    assert desk.check("shared", bug4_slower.load, evaluate).full


def test_shared_takes_the_samples_as_a_list(desk):
    load = lambda read, numbers, comm: list(read(numbers))  # noqa: E731
    assert desk.check("shared", load, bug4_slower.evaluate).full


def gathers_needlessly(read, numbers, comm):
    comm.gather(numbers)
    return read(numbers)


SHARED = {
    "rank 0 reads": (reading("load", "faulty"), None, "rank 1 reads nothing itself"),
    "a needless collective": (gathers_needlessly, None, "no collective is needed"),
    "all count all": (None, reading("evaluate", "faulty"), "each rank counts all of them"),
    "rank 0 counts": (None, counts_on_rank_0, "rank 0 counts all of them"),
    "all print": (None, prints_everywhere, "only rank 0 prints"),
    "no sum": (None, own_share, "add up the counts of all ranks"),
    "a mean of shares": (None, mean_of_shares, "divide the sum of the counts by n_images"),
    "a sum on rank 0 alone": (None, sum_on_rank_0, "on real ranks it hangs"),
    "the numbers, not the samples": (returns_numbers, None, "return what `read` gives"),
    "no samples": (lambda read, numbers, comm: print(read(numbers)), None, "return them"),
}


@pytest.mark.parametrize("mistake", SHARED)
def test_shared_refuses(desk, mistake):
    load, evaluate, sentence = SHARED[mistake]
    answer = load or bug4_slower.load, evaluate or bug4_slower.evaluate
    refused(desk.check("shared", *answer), sentence)


CORES = {
    "no thread": (lambda c, r: c // r, None, "0 threads"),
    "all cores": (lambda c, r: c, None, "four threads on two cores"),
    "half a thread": (lambda c, r: max(1, c / r), None, "a whole number"),
    "cut": (None, lambda b, c: b // c.size, "more than half the time"),
    "grown": (None, lambda b, c: b * c.size, "grows by itself"),
}


@pytest.mark.parametrize("mistake", CORES)
def test_cores_refuses(desk, mistake):
    threads, batch_of_rank, sentence = CORES[mistake]
    answer = threads or bug4_slower.threads, batch_of_rank or bug4_slower.batch_of_rank
    refused(desk.check("cores", *answer), sentence)


def test_diagnosis_answers_each_wrong_choice_with_its_own_sentence(desk):
    assert len({desk.check("diagnosis", letter).said for letter in "acd"}) == 3
    assert not any(desk.check("diagnosis", letter).full for letter in "acd")
    assert desk.check("diagnosis", "b").full
