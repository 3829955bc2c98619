"""hack_owncode: likely mistakes are refused, the sample trains alike, jobs and pages hold."""

import json
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler

import allhands
from allhands import launch, migrate
from allhands.grade.desk import Desk
from allhands.train import own_page, own_program

BENCH = Path(allhands.__file__).parents[1] / "hack_owncode"
ONE = own_program.Record(1, 64, [2.0, 1.0, 0.5], [9.0, 9.0, 9.0, 2.0, 2.0, 4.0], 0.5)
TWO = own_program.Record(2, 64, [2.0, 1.0, 0.5 + 1e-7], [9.0, 9.0, 9.0, 1.0, 1.0, 4.0], 0.5)


@pytest.fixture
def desk() -> Desk:
    return Desk("hack_owncode")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# measure


def rate(*, before=True, after=True, warm=True, inverse=False):
    def steps_per_s(step, wait, clock, n_steps, warm_up):
        for _ in range(warm_up if warm else 0):
            step()
        if before:
            wait()
        start_s = clock()
        for _ in range(n_steps):
            step()
        if after:
            wait()
        took_s = clock() - start_s
        return took_s / n_steps if inverse else n_steps / took_s

    return steps_per_s


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ({"after": False}, "steps that were asked for"),
        ({"before": False}, "three slow ones are in it"),
        ({"warm": False}, "the first steps count"),
        ({"before": False, "after": False}, "steps that were asked for"),
        ({"inverse": True}, "these are seconds a step"),
    ],
)
def test_a_speed_that_was_not_waited_for_is_refused(desk, mistake, sentence):
    refused(desk.check("measure", rate(**mistake)), sentence)


def test_each_way_to_measure_right_passes(desk):
    assert desk.check("measure", rate()).full
    assert desk.check("measure", own_program.steps_per_s).full


# findings


def test_findings_are_those_of_the_colleagues_program(desk):
    checked = migrate.check(BENCH / "in_haste.py")
    sure = [each.rule.rule_id for each in checked.of("sure")]
    hangs = next(each for each in checked.of("sure") if "all_reduce" in each.code)
    right = {"sure": sure, "line": hangs.line}
    assert desk.check("findings", right, checked).full
    code = (BENCH / "in_haste.py").read_text(encoding="utf-8").split("\n")
    branch = 1 + next(i for i, line in enumerate(code) if "if dist.get_rank() == 0" in line)
    wrong = {"sure": [*sure, "device-fixed"], "line": branch}
    refused(desk.check("findings", wrong, checked), "`likely` is no `sure`")
    refused(desk.check("findings", wrong, checked), "in which line does it then wait?")
    refused(desk.check("findings", right | {"sure": sure[:1]}, checked), "of them")
    in_words = {"sure": ", ".join(sure), "line": str(hangs.line)}
    assert desk.check("findings", in_words, checked).full
    objects = right | {"sure": checked.of("sure")}
    refused(desk.check("findings", objects, checked), "the name stands in brackets")
    other = {"sure": sure, "line": checked.of("likely")[0].line}
    refused(desk.check("findings", other, checked), "nobody waits there")


def test_the_colleagues_program_has_three_sure_faults_and_one_likely():
    found = migrate.check(BENCH / "in_haste.py")
    assert {each.rule.rule_id for each in found.of("sure")} == {
        *("collective-on-some-ranks", "set-epoch-missing", "files-of-all-ranks"),
    }
    assert {each.rule.rule_id for each in found.of("likely")} == {"device-fixed"}


def test_of_the_program_for_one_device_all_edits_are_shown():
    found = migrate.check(BENCH / "one_device.py").findings
    assert [int(each.rule.rule_id.split("-")[1]) for each in found] == [1, 2, 3, 4, 5, 6]


# share


def whole_batch(data, batch, rank, size):
    sampler = DistributedSampler(data, num_replicas=size, rank=rank)
    return DataLoader(data, batch_size=batch, sampler=sampler)


def all_data(data, batch, rank, size):
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    return DataLoader(data, batch_size=batch // size, sampler=sampler)


def own_order(data, batch, rank, size):
    sampler = DistributedSampler(data, num_replicas=size, rank=rank, seed=rank)
    return DataLoader(data, batch_size=batch // size, sampler=sampler)


def no_shuffle(data, batch, rank, size):
    sampler = DistributedSampler(data, num_replicas=size, rank=rank, shuffle=False)
    return DataLoader(data, batch_size=batch // size, sampler=sampler)


def always_rank_0(data, batch, rank, size):
    sampler = DistributedSampler(data, num_replicas=size, rank=0)
    return DataLoader(data, batch_size=batch // size, sampler=sampler)


def no_rank(data, batch, rank, size):
    return DataLoader(data, batch_size=batch // size, sampler=DistributedSampler(data))


def plain(data, batch, rank, size):
    return DataLoader(data, batch_size=batch // size, sampler=RandomSampler(data))


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (whole_batch, "divide it by `size`"),
        (all_data, "does the sampler know rank and size"),
        (own_order, "the ranks' orders differ"),
        (no_shuffle, "leave out shuffle=False"),
        (always_rank_0, "all ranks have the same share"),
        (no_rank, "give it num_replicas=size"),
        (plain, "whose sampler is a DistributedSampler"),
    ],
)
def test_a_share_that_is_none_is_refused(desk, mistake, sentence):
    refused(desk.check("share", mistake), sentence)


def test_the_batches_of_all_ranks_together_are_those_of_one():
    data = torch.arange(96)

    def batches(size):
        loaders = [own_program.share(data, 24, rank, size) for rank in range(size)]
        return [sorted(torch.cat(step).tolist()) for step in zip(*loaders, strict=True)]

    assert batches(1) == batches(2) == batches(3)


# same, speed, page


def test_same_wants_the_relative_difference_and_a_small_one(desk):
    assert desk.check("same", own_page.difference(ONE, TWO), ONE, TWO).full
    assert desk.check("same", torch.tensor(own_page.difference(ONE, TWO)), ONE, TWO).full
    refused(desk.check("same", "small", ONE, TWO), "Asked: a number")
    refused(desk.check("same", 1e-7, ONE, TWO), "divide by the loss of the one")
    other = own_program.Record(2, 64, [2.0, 1.1, 0.5], TWO.times_s, 0.5)
    refused(desk.check("same", 0.1, ONE, other), "losses that differ by 10.0%")
    fewer = own_program.Record(2, 64, [2.0], TWO.times_s, 0.5)
    refused(desk.check("same", 0.0, ONE, fewer), "two runs of equally many steps")


def test_speed_is_of_medians_without_the_first_steps(desk):
    assert own_page.speed_up(ONE, TWO) == 2.0
    assert desk.check("speed", {"speed_up": 2.0, "efficiency": 1.0}, ONE, TWO).full
    refused(desk.check("speed", {"speed_up": 0.5, "efficiency": 0.25}, ONE, TWO), "one over two")
    means = sum(ONE.times_s) / sum(TWO.times_s)
    refused(desk.check("speed", {"speed_up": means, "efficiency": 1}, ONE, TWO), "not the mean")
    refused(desk.check("speed", {"speed_up": 2.0, "efficiency": 2.0}, ONE, TWO), "two.ranks")
    refused(desk.check("speed", {"speed_up": "2", "efficiency": 1.0}, ONE, TWO), "two numbers")


WORDS = {"what": "From 1 to 2 ranks", "trouble": "It hung on rank 1", "next": "Two nodes, and more"}


def test_a_page_has_three_sentences_and_a_figure(desk):
    assert desk.check("page", WORDS, ONE, TWO).full
    japanese = {
        "what": "二つのランクで1.8倍",
        "trouble": "評価で止まった",
        "next": "次は大きなバッチ",
    }
    assert desk.check("page", japanese, ONE, TWO).full
    refused(desk.check("page", WORDS | {"next": "more"}, ONE, TWO), "too little for next")
    no_figure = WORDS | {"what": "It is much faster now"}
    refused(desk.check("page", no_figure, ONE, TWO), "a figure in `what`")


def test_the_page_is_filled_from_runs_and_has_gaps_for_the_rest(tmp_path, monkeypatch, capsys):
    assert (BENCH / "results.md").read_text(encoding="utf-8") == own_page.TEMPLATE
    whole = own_page.page(WORDS | {"group": "A"}, ONE, TWO, {"counts": {"sure": 1, "look": 0}})
    assert own_page.GAP not in whole
    assert "2.00 on 2 ranks" in whole
    assert "1 sure" in whole
    for name, record in (("one", ONE), ("two", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "record.json").write_text(json.dumps(vars(record)), encoding="utf-8")
    words = ["--one", tmp_path / "one", "--two", tmp_path / "two", "--out", tmp_path / "page.md"]
    fill = runpy.run_path(str(BENCH / "fill.py"))["main"]
    monkeypatch.setattr(sys, "argv", ["fill.py", *map(str, words)])
    assert fill() == 0
    assert "2.00 on 2 ranks" in (tmp_path / "page.md").read_text(encoding="utf-8")
    short = vars(TWO) | {"losses": [2.0], "times_s": [9.0]}
    (tmp_path / "two" / "record.json").write_text(json.dumps(short), encoding="utf-8")
    assert fill() == 2
    assert "A run of 1 steps" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["fill.py", "--check", "gone.json"])
    assert fill() == 2
    assert "gone.json" in capsys.readouterr().err


# The sample on real ranks


def total(n_right, n, dist):
    right, count = torch.tensor(n_right), torch.tensor(n)
    dist.all_reduce(right, op=dist.ReduceOp.SUM)
    dist.all_reduce(count)
    return (right / count).item()


@pytest.fixture
def alone(tmp_path):
    """A process group of this process alone."""
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_two_real_ranks_give_the_losses_of_one(tmp_path, alone):
    edits = own_program.write_edits(tmp_path / "edits.py", total)
    small = {"samples": 512, "batch": 64, "epochs": 2}
    words = [word for name, value in small.items() for word in (f"--{name}", value)]
    out = tmp_path / "two"
    words += ["--out", out, "--edits", edits]
    launch.torchrun("allhands.train.own_program", *words, ranks=2, time_limit_s=120)
    two = own_program.read(out)
    assert (out / "model.pt").exists()
    options = SimpleNamespace(**small, out=tmp_path)
    one = own_program.train(own_program.Edits(), torch.device("cpu"), options)
    assert (one.ranks, two.ranks) == (1, 2)
    assert len(one.losses) == 16
    assert own_page.difference(one, two) < 1e-4
    assert one.losses[-1] < one.losses[0]
    assert one.share_right == two.share_right


def test_a_blank_answer_is_not_written_yet(desk):
    verdicts = [
        desk.check("measure", lambda *_: None),
        desk.check("total", lambda n_right, n, dist: None),
        desk.check("page", ..., ONE, TWO),
        desk.check("same", ..., ONE, TWO),
        desk.check("speed", None, ONE, TWO),
        desk.check("findings", ..., SimpleNamespace()),
    ]
    assert all(verdict.score == 0 for verdict in verdicts)
