"""The lab bug4: each fault shows in what can be counted, and is gone in the repaired reading; the
checks refuse likely mistakes with the sentence meant for them.
"""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from allhands.doctor.run_findings import diagnose
from allhands.grade.checks import bug4_slower as checks
from allhands.grade.desk import Desk
from allhands.trace.critical_path import critical_path_s
from allhands.trace.summary import read_metrics_lines
from allhands.train import slower
from allhands.train.faults import bug4_slower
from allhands.train.faults.readings import readings

N_SAMPLES, N_HELD_OUT, BATCH = 1437, 360, 64
ALL = {name for name, _ in inspect.getmembers(bug4_slower, inspect.isfunction)}


def reading(name: str, which: str):
    return readings(f"bug4_slower:{name}").named(which)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Real runs of an epoch on two ranks: mended, and with each fault alone; and alone, mended."""
    folder = tmp_path_factory.mktemp("slower")
    programs = {"mended": slower.MENDED} | {name: slower.faulty(name) for name in slower.PARTS}
    small = {"batch_size": BATCH, "epochs": 1}
    found = slower.measure(programs, 2, folder, **small)
    found["alone"] = slower.run(slower.MENDED, 1, folder / "alone", threads=1, **small)
    found["alone, faulty"] = slower.run(
        slower.riddle(), 1, folder / "alone-faulty", threads=1, **small
    )
    return found


def of_ranks(run, name):
    return [getattr(one, name) for one in run.facts]


def test_data_not_scattered_each_rank_trains_on_all_and_an_epoch_keeps_its_steps(runs):
    assert sum(of_ranks(runs["mended"], "n_mine")) == N_SAMPLES
    assert of_ranks(runs["numbers"], "n_mine") == [N_SAMPLES, N_SAMPLES]
    assert runs["alone"].n_steps == runs["numbers"].n_steps == -(-N_SAMPLES // BATCH)
    assert runs["mended"].n_steps == -(-719 // BATCH)


def test_a_cut_batch_keeps_the_steps_and_each_costs_more_than_half(runs):
    assert of_ranks(runs["batch_of_rank"], "batch_size") == [BATCH // 2, BATCH // 2]
    assert runs["batch_of_rank"].n_steps == runs["alone"].n_steps
    assert of_ranks(runs["mended"], "batch_size") == [BATCH, BATCH]


def test_a_loader_on_rank_0_reads_for_all(runs):
    assert of_ranks(runs["load"], "n_read") == [N_SAMPLES, 0]
    assert of_ranks(runs["mended"], "n_read") == [719, 718]
    cpu_s = {
        name: sum(
            event.duration_s
            for event in runs[name].cpu_events
            if event.rank == 0 and event.what == "batch" and event.name != "open"
        )
        for name in ("load", "mended")
    }
    assert cpu_s["load"] > 1.3 * cpu_s["mended"]  # it reads twice as much


def test_evaluation_on_all_ranks_takes_twice_the_work_and_prints_twice(runs):
    assert of_ranks(runs["evaluate"], "n_held_out_mine") == [N_HELD_OUT, N_HELD_OUT]
    assert of_ranks(runs["mended"], "n_held_out_mine") == [N_HELD_OUT / 2, N_HELD_OUT / 2]
    assert runs["mended"].n_lines() == [5, 0]
    assert runs["evaluate"].n_lines() == [5, 5]
    ratio = max(runs["evaluate"].cpu_s("evaluate")) / max(runs["mended"].cpu_s("evaluate"))
    assert ratio > 1.3


def test_too_many_threads_take_the_cores_from_each_other(runs):
    cores = runs["mended"].facts[0].cores
    if not 2 <= cores <= 8:
        pytest.skip(f"measured on few cores; this machine has {cores}")
    assert sum(of_ranks(runs["mended"], "threads")) <= cores
    assert sum(of_ranks(runs["threads"], "threads")) > cores
    switches = {name: sum(of_ranks(runs[name], "n_switches")) for name in ("mended", "threads")}
    assert switches["threads"] > 1.5 * switches["mended"], switches


def test_the_first_step_spoils_a_mean(runs):
    times_s = runs["mended"].times_s
    right, faulty = (reading("step_s", which)(times_s) for which in ("repaired", "faulty"))
    assert times_s[0] > 1.5 * right
    assert faulty > right


def test_steps_do_not_compare_where_samples_do(runs):
    step = SimpleNamespace(step_s=1.0, samples_per_step=64)
    both = SimpleNamespace(step_s=1.0, samples_per_step=128)
    assert reading("speed_up", "faulty")(step, both) == 1.0
    assert reading("speed_up", "repaired")(step, both) == 2.0
    assert runs["mended"].samples_per_step == 2 * runs["alone"].samples_per_step


def test_with_one_rank_no_fault_of_the_program_shows(runs):
    """But threads: there `alone` was given one."""
    right, faulty = runs["alone"], runs["alone, faulty"]
    assert faulty.n_steps == right.n_steps
    assert faulty.n_lines() == right.n_lines()
    for name in ("n_mine", "n_read", "n_held_out_mine", "batch_size", "threads"):
        assert of_ranks(faulty, name) == of_ranks(right, name)
    np.testing.assert_array_equal(*(np.load(r.folder / "parameters.npy") for r in (right, faulty)))


def test_the_mended_program_is_right_on_two_ranks(runs):
    """Each step's gradient is that of the samples of both ranks: the first loss says so."""
    first = read_metrics_lines(runs["mended"].folder / "metrics.jsonl")[0]
    assert first["n_samples"] == 2 * BATCH
    order = np.random.default_rng(0).permutation(N_SAMPLES)
    from allhands.train import slower_ranks  # imports MPI: not where ranks are started from

    images, network = slower_ranks.Images(), slower_ranks.Network(256)
    images.open()
    pixels, digits = images.read(order[: 2 * BATCH])
    loss, _ = network.loss(network.forward(pixels)[-1], digits)
    assert first["loss"] == pytest.approx(loss / (2 * BATCH), rel=1e-4)


NAMED = {
    "numbers": {"data", "steps"},
    "batch_of_rank": {"steps"},
    "load": {"loader"},
    "evaluate": {"evaluation"},
    "threads": {"threads"},
}


@pytest.mark.parametrize("fault", NAMED)
def test_the_doctor_names_the_cause_of_each_real_run(runs, fault):
    found = diagnose(runs[fault].folder, runs["alone"].folder)
    assert NAMED[fault] <= {one.name for one in found if one.status == "bad"}
    if fault == "batch_of_rank":
        assert "cut batch" in {one.name for one in found if one.status != "good"}
    counted = {"data", "threads", "loader", "evaluation", "work"} - NAMED[fault]
    assert not {one.name for one in found if one.status == "bad"} & counted


def test_the_doctor_finds_no_cause_in_the_mended_run(runs):
    found = diagnose(runs["mended"].folder, runs["alone"].folder)
    assert {one.name for one in found if one.status == "bad"} <= {"speed"}  # a busy machine


def test_the_table_shows_what_the_lab_asks_for(runs):
    rows = slower.table({"alone": runs["alone"], "load": runs["load"]}).splitlines()
    titles = {row.partition("  ")[0] for row in rows}
    assert set().union(*checks.CAUSES.values()) <= titles
    assert "steps of an epoch" in titles


def test_a_function_of_a_notebook_reaches_the_ranks(tmp_path):
    def evaluate(count_right, n_images, comm):
        return comm.rank + 0.25

    run = slower.run(slower.with_(slower.MENDED, evaluate=evaluate), 1, tmp_path, batch_size=512)
    lines = read_metrics_lines(run.folder / "metrics.jsonl")
    assert {one["valid_accuracy"] for one in lines if "valid_accuracy" in one} == {0.25}
    with pytest.raises(ValueError, match="has no source"):
        slower.run(slower.with_(slower.MENDED, load=len), 1, tmp_path)


# The checks.


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


def median_from_third(times_s):
    return np.median(times_s[3:])


FAIR = {
    "a mean of all": (np.mean, None, "the first included"),
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
