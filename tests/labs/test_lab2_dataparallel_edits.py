"""Lab 2's eight edits: checks refuse likely mistakes with the sentence meant for them."""

import types

import chainer
import chainermn
import numpy as np
import pytest

from allhands.grade.desk import Desk
from allhands.train import eight_edits, parallel
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
    "number on the node": (lambda n, c, s: shuffled(n, s)[c.intra_rank :: c.size], "within a node"),
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


# --- devices: a machine without GPUs, and two nodes of two --------------------------------------


def usable():
    from allhands.train.device import gpu_is_usable

    return gpu_is_usable()


def communicator():
    return chainermn.create_communicator("pure_nccl" if usable() else "naive")


def device_of(comm):
    return f"@cupy:{comm.intra_rank}" if usable() else "@numpy"


DEVICES_MISTAKES = {
    "always naive": (lambda: chainermn.create_communicator("naive"), device_of, "gpu_is_usable()"),
    "a name": (lambda: "naive", device_of, "return chainermn.create_communicator(name)"),
    "rank": (
        communicator,
        lambda comm: f"@cupy:{comm.rank}" if usable() else "@numpy",
        "a node counts its own GPUs from 0 on",
    ),
    "one GPU": (communicator, lambda comm: "@cupy:0" if usable() else "@numpy", "on one GPU"),
    "always a GPU": (communicator, lambda comm: f"@cupy:{comm.intra_rank}", "ask gpu_is_usable()"),
}


@pytest.mark.parametrize("mistake", DEVICES_MISTAKES)
def test_devices_refuses(desk, mistake):
    *answers, sentence = DEVICES_MISTAKES[mistake]
    verdict = desk.check("devices", *answers)
    assert verdict.score == 1
    refused(verdict, sentence)


def test_devices_takes_the_right_functions_and_leaves_the_machine_as_it_was(desk):
    create_communicator = chainermn.create_communicator
    assert desk.check("devices", communicator, device_of).full
    assert desk.check("devices", parallel.communicator, parallel.device_of).full
    assert chainermn.create_communicator is create_communicator


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


def the_example(counts, comm):
    return {"exact_match": 1000 / 12, "loss_per_token": 2 / 60}


def test_the_figures_of_the_example_are_no_answer(desk):
    verdict = desk.check("metrics", the_example)
    assert verdict.score == 0
    refused(verdict, "the counts are new each time")


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
    monkeypatch.setattr("allhands.grade.checks.lab2_dataparallel_edits.HANG_S", (5.0, 20.0))
    verdict = desk.check("report", under_the_if)
    refused(verdict, "rank 0 was at `n_all = comm.allreduce(n_sentences)`")
    refused(verdict, "Take the call out of the `if`")
    monkeypatch.undo()
    assert desk.check("report", all_add_one_speaks).full


def says_it_twice(n_sentences, comm):
    n_all = comm.allreduce(n_sentences)
    if comm.rank == 0:
        print(f"{n_all} sentences")
        print(f"{n_all} in all")
    return n_all


def test_report_refuses_two_voices_two_lines_and_one_rank_s_number(desk):
    refused(desk.check("report", all_speak), "stays around the print")
    refused(desk.check("report", says_it_twice), "one line is enough")
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
        "allhands.grade.checks.lab2_dataparallel_edits.compare", lambda program, ranks: found
    )
    for changes, sentence in (
        ({"speaks": lambda comm: True}, "only one rank speaks"),
        ({"speaks": lambda comm: comm.intra_rank == 0}, "counts within a node"),
        ({"speaks": lambda comm: comm.inter_rank == 0}, "only one rank of all nodes"),
        ({"rate_factor": lambda rule, n: 1 / n}, "multiply, do not divide"),
        ({"rate_factor": lambda rule, n: float(n)}, "sqrt its square root"),
    ):
        verdict = desk.check("same_answer", *edits(**changes))
        assert verdict.score == 3
        refused(verdict, sentence)


# --- edit 8, and the whole program ---------------------------------------------------------------


def all_write(folder, things, comm):
    for name, thing in things.items():
        chainer.serializers.save_npz(folder / f"{name}.npz", thing)
    comm.mpi_comm.Barrier()


def nobody_waits(folder, things, comm):
    if comm.rank == 0:
        for name, thing in things.items():
            chainer.serializers.save_npz(folder / f"{name}.npz", thing)


def one_loads(folder, things, comm):
    if comm.rank == 0:
        for name, thing in things.items():
            chainer.serializers.load_npz(folder / f"{name}.npz", thing)


def only_the_model(folder, things, comm):
    chainer.serializers.load_npz(folder / "model.npz", things["model"])


def nothing(folder, things, comm): ...


RESUME_MISTAKES = {
    "all write": (all_write, eight_edits.load, 1, "two ranks write one file at once"),
    "nobody waits": (nobody_waits, eight_edits.load, 0, "comm.mpi_comm.Barrier()"),
    "one loads": (eight_edits.save, one_loads, 1, "all ranks must load"),
    "only the model": (eight_edits.save, only_the_model, 1, "Adam remembers"),
    "nothing": (eight_edits.save, nothing, 0, "not written yet"),
}


@pytest.mark.parametrize("mistake", RESUME_MISTAKES)
def test_resume_refuses(desk, mistake):
    save, load, points, sentence = RESUME_MISTAKES[mistake]
    verdict = desk.check("resume", save, load)
    assert verdict.score <= points
    refused(verdict, sentence)


def test_resume_takes_the_package_s_functions(desk):
    assert desk.check("resume", eight_edits.save, eight_edits.load).full


def stopped_and_resumed(comm):
    """Two epochs on one device, and on two ranks with a stop between; both models' parameters."""
    import dataclasses
    import tempfile
    from pathlib import Path

    from allhands import config as configs
    from allhands.train import eight_edits

    small = configs.override(eight_edits.small(), ["train=numbers_dates/valid", "batch_size=25"])
    edits = eight_edits.Edits(
        communicator=lambda: chainermn.create_communicator("naive"), device_of=lambda comm: "@numpy"
    )
    folder = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    eight_edits.many_ranks(edits, small, 1, folder, resume=False)
    eight_edits.many_ranks(edits, small, 2, folder, resume=True)
    twice = {"batch_size": 50, "learning_rate": 2 * small.learning_rate}
    eight_edits.one_device(dataclasses.replace(small, **twice), 2, folder / f"alone{comm.rank}")
    files = (folder / "model.npz", folder / f"alone{comm.rank}" / "model.npz")
    return [{name: array for name, array in np.load(file).items()} for file in files]


def test_two_ranks_that_stop_and_go_on_repeat_one_device_with_the_doubled_batch(capsys):
    for ranks, alone in on_ranks(stopped_and_resumed, ranks=2, time_limit_s=120):
        assert ranks.keys() == alone.keys()
        for name in alone:
            np.testing.assert_allclose(ranks[name], alone[name], atol=2e-3)
    said = [line.split("] ")[1] for line in capsys.readouterr().out.splitlines() if line[1] == "0"]
    assert len(said) == 4
    assert said[:2] == said[2:]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nofile.py", "--out", "out"], "There is no file nofile.py. Give a .py file with some"),
        (["mine.py", "--out", "mine.py"], "The folder mine.py cannot be written (File exists)"),
        (["mine.py", "--out", "out", "--resume"], "model.npz and optimizer.npz cannot be found"),
    ],
)
def test_the_program_of_the_edits_ends_with_a_sentence(
    words, sentence, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    monkeypatch.setattr("sys.argv", ["eight_edits", *words])
    for rank, lines in (("0", 1), ("1", 0)):
        monkeypatch.setenv("PMI_SIZE", "2")
        monkeypatch.setenv("PMI_RANK", rank)
        with pytest.raises(SystemExit) as ended:
            eight_edits.main()
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert said.count("\n") == lines
        assert sentence in said or rank == "1"
