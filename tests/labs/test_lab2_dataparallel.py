"""Lab 2: checks refuse likely mistakes with the sentence meant for them; the seeded faults show."""

import types

import chainermn
import numpy as np
import pytest

from allhands.grade.desk import Desk
from allhands.labs import COURSE
from allhands.trace.events import Event
from allhands.trace.scaling import Measured
from allhands.train import parallel
from allhands.train.compare import compare_all
from allhands.train.on_ranks import on_ranks


@pytest.fixture
def desk() -> Desk:
    return Desk("lab2_dataparallel")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# --- shard ---------------------------------------------------------------------------------------


def dealt(order, comm):
    return order[comm.rank :: comm.size]


def shuffled(n, seed):
    return np.random.default_rng(seed).permutation(n)


def padded(n, comm, seed):
    share = -(-n // comm.size)
    order = np.concatenate([shuffled(n, seed), shuffled(n, seed)])
    return order[comm.rank * share : (comm.rank + 1) * share]


def unseeded(n, comm, seed):
    order = np.arange(n)
    np.random.shuffle(order)
    return dealt(order, comm)


def without_the_rest(n, comm, seed):
    share = n // comm.size
    return shuffled(n, seed)[comm.rank * share : (comm.rank + 1) * share]


def rest_on_the_last(n, comm, seed):
    share = n // comm.size
    end = n if comm.rank == comm.size - 1 else (comm.rank + 1) * share
    return shuffled(n, seed)[comm.rank * share : end]


SHARD_MISTAKES = {
    "own seed": (lambda n, c, s: dealt(shuffled(n, s + c.rank), c), "have different orders"),
    "no seed": (unseeded, "use the seed that is given"),
    "everything": (lambda n, c, s: shuffled(n, s), "every rank has all samples"),
    "equal length": (padded, "repeat no sample"),
    "rest lost": (without_the_rest, "103 is no multiple of 4"),
    "not shuffled": (lambda n, c, s: dealt(np.arange(n), c), "shuffle first"),
    "rest on the last": (rest_on_the_last, "deal the samples out like cards"),
    "another seed": (lambda n, c, s: dealt(shuffled(n, 0), c), "use the argument `seed`"),
    "floats": (lambda n, c, s: parallel.shard(n, c, s) / 1, "an array of whole numbers"),
}


@pytest.mark.parametrize("mistake", SHARD_MISTAKES)
def test_shard_refuses(desk, mistake):
    answer, sentence = SHARD_MISTAKES[mistake]
    refused(desk.check("shard", answer), sentence)


def test_shard_takes_contiguous_cuts_of_a_shuffled_order_too(desk):
    def cut(n, comm, seed):
        return np.array_split(np.random.RandomState(seed).permutation(n), comm.size)[comm.rank]

    assert desk.check("shard", cut).full
    assert desk.check("shard", parallel.shard).full


# --- metrics and report, on real ranks -----------------------------------------------------------


def mean_of_ratios(counts, comm):
    everyone = comm.allgather(counts)
    return {
        "exact_match": sum(100 * c["n_right"] / c["n_sentences"] for c in everyone) / comm.size,
        "loss_per_token": sum(c["loss"] / c["n_tokens"] for c in everyone) / comm.size,
    }


def own_share_and_loss_of_sums(counts, comm):
    loss = comm.allreduce(counts["loss"]) / comm.allreduce(counts["n_tokens"])
    own = 100 * counts["n_right"] / counts["n_sentences"]
    return {"exact_match": own, "loss_per_token": loss}


def ratio_of_sums(counts, comm):
    sums = {name: comm.allreduce(counts[name]) for name in sorted(counts)}
    return {
        "exact_match": 100 * sums["n_right"] / sums["n_sentences"],
        "loss_per_token": sums["loss"] / sums["n_tokens"],
    }


def test_the_seeded_fault_of_metrics_shows_and_its_repair_removes_it(desk):
    refused(desk.check("metrics", mean_of_ratios), "that is the mean of the ranks' ratios")
    assert desk.check("metrics", ratio_of_sums).full


def test_metrics_gives_a_point_for_each_figure(desk):
    verdict = desk.check("metrics", own_share_and_loss_of_sums)
    assert verdict.score == 1
    refused(verdict, "each rank gives its own ratio")


def under_the_if(n_sentences, comm):
    n_all = None
    if comm.rank == 0:
        n_all = comm.allreduce(n_sentences)
        print(f"{n_all} sentences")
    return n_all


def all_speak(n_sentences, comm):
    n_all = comm.allreduce(n_sentences)
    print(f"{n_all} sentences")
    return n_all


def only_its_own(n_sentences, comm):
    if comm.rank == 0:
        print(f"{n_sentences} sentences")
    return n_sentences


def all_add_one_speaks(n_sentences, comm):
    n_all = comm.allreduce(n_sentences)
    if comm.rank == 0:
        print(f"{n_all} sentences")
    return n_all


def test_the_seeded_fault_of_report_hangs_and_its_repair_does_not(desk, monkeypatch):
    monkeypatch.setattr("allhands.grade.checks.lab2_dataparallel.HANG_S", 5.0)
    verdict = desk.check("report", under_the_if)
    refused(verdict, "rank 0 was at `n_all = comm.allreduce(n_sentences)`")
    refused(verdict, "Take the call out of the `if`")
    monkeypatch.undo()
    assert desk.check("report", all_add_one_speaks).full


def test_report_refuses_two_voices_and_one_rank_s_number(desk):
    refused(desk.check("report", all_speak), "stays around the print")
    refused(desk.check("report", only_its_own), "the sum of both ranks")


# --- the whole program ---------------------------------------------------------------------------


def edits(**changes):
    """The arguments of the check of `same_answer`: the right functions, but for `changes`."""
    names = ("shard", "multi_node", "total", "speaks", "rate_factor")
    return [changes.get(name, getattr(parallel, name)) for name in names]


def multi_node(optimizer, comm):
    return chainermn.create_multi_node_optimizer(optimizer, comm)


def total(counts, comm):
    return {name: comm.allreduce_obj(counts[name]) for name in sorted(counts)}


def test_same_answer_takes_the_right_functions(desk):
    assert desk.check("same_answer", *edits(multi_node=multi_node, total=total)).full


FAULTY = {
    "no exchange": ("def multi_node(optimizer, comm):\n    return optimizer\n", "gradient"),
    "mean of counts": (
        "def total(counts, comm):\n"
        "    return {n: comm.allreduce_obj(counts[n]) / comm.size for n in sorted(counts)}\n",
        "counts",
    ),
}


@pytest.mark.parametrize("mistake", ["no exchange", "mean of counts"])
def test_same_answer_says_what_differs_first(desk, mistake, tmp_path):
    changes, stage = FAULTY[mistake]
    path = tmp_path / "cells.py"
    path.write_text(changes, encoding="utf-8")
    cells = {}
    exec(compile(changes, path, "exec"), cells)
    verdict = desk.check("same_answer", *edits(**{k: v for k, v in cells.items() if k[0] != "_"}))
    assert verdict.score == 1
    refused(verdict, f"the first difference is in `{stage}`")


def test_same_answer_says_what_is_wrong_with_the_small_functions(desk, monkeypatch):
    found = types.SimpleNamespace(difference=None)
    monkeypatch.setattr(
        "allhands.grade.checks.lab2_dataparallel.compare", lambda program, ranks: found
    )
    for changes, sentence in (
        ({"speaks": lambda comm: True}, "only one rank speaks"),
        ({"rate_factor": lambda rule, n: 1 / n}, "multiply, do not divide"),
        ({"rate_factor": lambda rule, n: float(n)}, "sqrt its square root"),
    ):
        verdict = desk.check("same_answer", *edits(**changes))
        assert verdict.score == 3
        refused(verdict, sentence)


# --- speed-up ------------------------------------------------------------------------------------


def world(ranks, mode, per_s, batch_size=64):
    step_s = ranks * batch_size / per_s
    return Measured(ranks, mode, batch_size, (per_s,), (step_s,), (0.0,), (0.1,))


def test_speedup_refuses_step_times_percent_swapped_modes_and_seconds(desk):
    weak = [world(1, "weak", 1000.0), world(2, "weak", 1900.0)]
    strong = [world(1, "strong", 1000.0), world(2, "strong", 1300.0, 32)]
    events = [Event(0.0, 0.9, 0, "backward"), Event(0.9, 1.2, 0, "communicate")]
    right = {"weak": 1.9, "strong": 1.3, "efficiency": 0.65, "communicate": 0.25}
    assert desk.check("speedup", right, weak, strong, events).full
    for changes, sentence in (
        ({"weak": 1.3, "strong": 1.9}, "weak and strong have changed places"),
        ({"weak": 0.95}, "that is the efficiency"),
        ({"strong": 1 / 1.3}, "two ranks / one, not one / two"),
        ({"efficiency": 65.0}, "give a share, not percent"),
        ({"efficiency": 0.95}, "that is the efficiency of weak scaling"),
        ({"efficiency": 1.3}, "that is the speed-up; divide by 2"),
        ({"communicate": 25.0}, "give a share, not percent"),
        ({"communicate": 0.3}, "that is in seconds"),
    ):
        refused(desk.check("speedup", {**right, **changes}, weak, strong, events), sentence)
    refused(desk.check("speedup", {"weak": 1.9}, weak, strong, events), "a dict with the keys")


@pytest.mark.parametrize(("id", "right"), [("strong", "b"), ("bucket", "c"), ("rate", "d")])
def test_each_wrong_choice_has_a_sentence_of_its_own(desk, id, right):
    wrong = [letter for letter in "abcd" if letter != right]
    assert len({desk.check(id, letter).said for letter in wrong}) == 3
    assert not any(desk.check(id, letter).full for letter in wrong)
    assert desk.check(id, right).full


# --- the bench -----------------------------------------------------------------------------------

BENCH = COURSE.labs_file.parent / "lab2_dataparallel" / "my_parallel.py"
BREAKS = {  # what the bench's README proposes, and what differs first
    "as it is": ("", "", None),
    "own seed": ("[SEED, number]", "[SEED + comm.rank, number]", "samples"),
    "no weight": ("return weight * model.loss", "return model.loss", "gradient"),
    "no sums": ("comm.allreduce_obj(counts[name])", "counts[name]", "counts"),
}


def test_the_bench_s_program_gives_one_answer_and_each_break_is_found(tmp_path):
    source = BENCH.read_text(encoding="utf-8")
    paths = []
    for number, (old, new, _) in enumerate(BREAKS.values()):
        assert old in source
        paths.append(tmp_path / f"program{number}.py")
        paths[-1].write_text(source.replace(old, new) if old else source, encoding="utf-8")
    found = [one.first_difference for one in compare_all(paths, ranks=3, time_limit_s=200)]
    assert found == [stage for _, _, stage in BREAKS.values()]


# --- what the text says, and the tool that the checks stand on -----------------------------------


def shards_of_five(comm):
    return list(chainermn.scatter_dataset(list(range(5)), comm))


def test_scatter_dataset_gives_a_sample_to_two_ranks_as_the_notebook_says():
    assert on_ranks(shards_of_five, ranks=2, chainermn=True) == [[0, 1, 2], [2, 3, 4]]


def speaks_and_fails(comm):
    print("before")
    if comm.rank == 1:
        raise KeyError("no such word")
    comm.Barrier()


def test_on_ranks_quotes_the_line_that_failed():
    with pytest.raises(Exception, match=r"rank 1 raised KeyError: 'no such word'") as caught:
        on_ranks(speaks_and_fails, ranks=2)
    assert '`raise KeyError("no such word")`' in str(caught.value)


def test_on_ranks_prints_what_each_rank_said_and_returns_its_result(capsys):
    with pytest.raises(ValueError, match="has no source"):
        on_ranks(print, ranks=2)
    assert on_ranks(tells_its_rank, ranks=2) == [1, 2]
    assert capsys.readouterr().out == "[0] rank 0\n[1] rank 1\n"


def tells_its_rank(comm):
    print(f"rank {comm.rank}")
    return comm.rank + 1
