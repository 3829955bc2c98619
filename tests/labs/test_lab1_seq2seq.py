"""Lab 1: checks refuse likely mistakes with the sentence meant for them; the seeded fault shows."""

import dataclasses
import itertools

import chainer
import chainer.functions as F
import numpy as np
import pytest

from allhands import config as configs
from allhands.data import batch
from allhands.data.batch import BatchIterator
from allhands.data.vocab import BOS, EOS, PAD
from allhands.grade.checks import lab1_seq2seq as checks
from allhands.grade.desk import Desk, judge
from allhands.model import seq2seq
from allhands.trace.events import Event, Recorder
from allhands.train.build import open_corpus
from allhands.train.by_hand import train_by_hand
from allhands.train.recorder import FunctionSpans
from allhands.train.translator import Translator


@pytest.fixture
def desk() -> Desk:
    return Desk("lab1_seq2seq")


@pytest.fixture(scope="module")
def corpus():
    return open_corpus(configs.lab1_cpu())


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# --- pad -----------------------------------------------------------------------------------------


def array(rows, width, dtype=np.int32, fill=PAD, left=False):
    out = np.full((len(rows), width), fill, dtype)
    for line, row in zip(out, rows, strict=True):
        row = list(row)[:width]
        if row:
            line[width - len(row) if left else 0 :][: len(row)] = row
    return out


def longest(rows):
    return max(map(len, rows))


PAD_MISTAKES = {
    "on the left": (lambda rows: array(rows, longest(rows), left=True), "put PAD after the row"),
    "with -1": (lambda rows: array(rows, longest(rows), fill=-1), "fill with PAD, which is 0"),
    "to the shortest": (
        lambda rows: array(rows, min(map(len, rows))),
        "not the shortest or the first row",
    ),
    "to the first": (
        lambda rows: array(rows, len(rows[0])),
        "not the shortest or the first row",
    ),
    "int64": (lambda rows: array(rows, longest(rows), np.int64), "dtype=np.int32"),
    "a list": (lambda rows: array(rows, longest(rows)).tolist(), "a NumPy array"),
    "only lists": (
        lambda rows: np.array([r + [PAD] * (longest(rows) - len(r)) for r in rows], np.int32),
        "Seen:",
    ),
}


@pytest.mark.parametrize("mistake", PAD_MISTAKES)
def test_pad_refuses(desk, mistake):
    answer, sentence = PAD_MISTAKES[mistake]
    refused(desk.check("pad", answer), sentence)


def test_pad_takes_the_package_s(desk):
    assert desk.check("pad", batch.pad).full


# --- waste ---------------------------------------------------------------------------------------


def shares(store, count):
    found = {}
    for name, pool in (("by chance", 1), ("pooled", 20)):
        batches = list(BatchIterator(store, 64, seed=0, repeat=False, pool=pool))
        cells = sum(b.target_out_bt.size for b in batches)
        found[name] = count(cells, sum(b.n_tokens for b in batches))
    return found


WASTE_MISTAKES = {
    "percent": (lambda cells, tokens: 100 * (1 - tokens / cells), "not percent"),
    "of the tokens": (lambda cells, tokens: (cells - tokens) / tokens, "divide by all cells"),
    "the rest": (lambda cells, tokens: tokens / cells, "that is the share of tokens"),
}


@pytest.mark.parametrize("mistake", WASTE_MISTAKES)
def test_waste_refuses(desk, corpus, mistake):
    count, sentence = WASTE_MISTAKES[mistake]
    refused(desk.check("waste", shares(corpus.train, count), corpus.train), sentence)


def test_waste_refuses_both_shares_exchanged_and_a_missing_one(desk, corpus):
    right = shares(corpus.train, lambda cells, tokens: 1 - tokens / cells)
    exchanged = {"by chance": right["pooled"], "pooled": right["by chance"]}
    refused(desk.check("waste", exchanged, corpus.train), "the two shares have changed places")
    refused(desk.check("waste", {"pooled": 0.1}, corpus.train), 'the keys "by chance"')
    assert desk.check("waste", right, corpus.train).full


# --- shift ---------------------------------------------------------------------------------------


def right_shift(rows):
    return [[BOS, *row] for row in rows], [[*row, EOS] for row in rows]


def seeded_fault(rows):
    return [[*row, EOS] for row in rows], [[*row, EOS] for row in rows]


SHIFT_MISTAKES = {
    "the fault itself": (seeded_fault, "the decoder reads the answer"),
    "too short": (
        lambda rows: ([list(row) for row in rows], right_shift(rows)[1]),
        "must have the same length",
    ),
    "begins with PAD": (
        lambda rows: ([[PAD, *row] for row in rows], right_shift(rows)[1]),
        "give it BOS",
    ),
    "outputs changed": (
        lambda rows: (right_shift(rows)[0], [list(row) for row in rows]),
        "mend the inputs",
    ),
}


@pytest.mark.parametrize("mistake", SHIFT_MISTAKES)
def test_shift_refuses(desk, mistake):
    answer, sentence = SHIFT_MISTAKES[mistake]
    refused(desk.check("shift", answer), sentence)
    assert desk.check("shift", right_shift).full


def test_shift_takes_a_list_of_the_two_lists(desk):
    assert desk.check("shift", lambda rows: list(right_shift(rows))).full


def exact_of_20(corpus, shift) -> tuple[float, int]:
    """Train by hand; return the loss per token in the end and how many of 20 are translated."""
    translator = Translator.new(configs.lab1_cpu(), corpus.source_vocab, corpus.target_vocab)
    pairs = [(corpus.train.source(i), corpus.train.target(i)) for i in range(len(corpus.train))]
    losses = train_by_hand(
        translator.model, pairs, 150, pad=batch.pad, shift=shift, masked_loss=seq2seq.masked_loss
    )
    asked = corpus.valid[:20]
    answers = translator.translate([pair.source for pair in asked])
    right = sum(a == pair.target for a, pair in zip(answers, asked, strict=True))
    return float(np.mean(losses[-10:])), right


@pytest.mark.slow
def test_the_seeded_fault_shows_its_symptom_and_the_repair_removes_it(corpus):
    loss, right = exact_of_20(corpus, seeded_fault)
    assert loss < 0.02
    assert right == 0
    loss, right = exact_of_20(corpus, right_shift)
    assert loss > 0.02
    assert right >= 5


# --- masked_loss ---------------------------------------------------------------------------------


def nll_bt(logits_btv, target_bt, **options):
    n, t, v = logits_btv.shape
    flat = F.reshape(logits_btv, (n * t, v))
    losses = F.softmax_cross_entropy(flat, target_bt.ravel(), reduce="no", **options)
    return F.reshape(losses, (n, t))


LOSS_MISTAKES = {
    "by tokens": (
        lambda x, t: F.sum(nll_bt(x, t, ignore_label=PAD)) / (t != PAD).sum(),
        "divide by sentences, not by tokens",
    ),
    "mean of all": (lambda x, t: F.mean(nll_bt(x, t)), "leave PAD out, and divide by sentences"),
    "with PAD": (lambda x, t: F.sum(nll_bt(x, t)) / len(t), "leave PAD out: ignore_label"),
    "by all cells": (
        lambda x, t: F.sum(nll_bt(x, t, ignore_label=PAD)) / t.size,
        "not by all cells of the rectangle",
    ),
    "wrong sign": (
        lambda x, t: -F.sum(nll_bt(x, t, ignore_label=PAD)) / len(t),
        "it is minus the logarithm",
    ),
    "not added up": (
        lambda x, t: F.sum(nll_bt(x, t, ignore_label=PAD), axis=1) / len(t),
        "add up with F.sum",
    ),
    "not divided": (
        lambda x, t: F.sum(nll_bt(x, t, ignore_label=PAD)),
        "divide by the number of sentences",
    ),
    "a float": (
        lambda x, t: float(seq2seq.masked_loss(x, t).array),
        "stay with chainer.functions",
    ),
    "without graph": (
        lambda x, t: chainer.Variable(seq2seq.masked_loss(x, t).array),
        "no gradient",
    ),
}


@pytest.mark.parametrize("mistake", LOSS_MISTAKES)
def test_masked_loss_refuses(desk, mistake):
    answer, sentence = LOSS_MISTAKES[mistake]
    refused(desk.check("masked_loss", answer), sentence)


def test_masked_loss_takes_the_package_s(desk):
    assert desk.check("masked_loss", seq2seq.masked_loss).full


# --- curve ---------------------------------------------------------------------------------------


def test_curve_answers_each_wrong_choice_with_its_own_sentence(desk):
    replies = [desk.check("curve", letter).said for letter in "acd"]
    assert len(set(replies)) == 3
    assert not any(desk.check("curve", letter).full for letter in "acd")
    assert desk.check("curve", " B. ").full
    refused(desk.check("curve", "z"), "one of the letters a, b, c, d")


# --- greedy --------------------------------------------------------------------------------------


def search(first=BOS, *, keep_eos=False, stop=True, carry=True, bound=True, pick=np.argmax):
    def greedy(model, source_bt, max_length):
        state = model.start(source_bt)
        token, said = first, []
        for _ in range(max_length if bound else 8):
            after, log_prob_bv = model.step(state, np.array([token], np.int32))
            state = after if carry else state
            token = int(pick(log_prob_bv[0]))
            if token == EOS and stop:
                return [*said, EOS] if keep_eos else said
            said.append(token)
        return said

    return greedy


GREEDY_MISTAKES = {
    "keeps EOS": (search(keep_eos=True), "EOS ends the answer"),
    "goes on after EOS": (search(stop=False), "stop as soon as the token is EOS"),
    "begins with EOS": (search(EOS), "is BOS, not EOS"),
    "begins with PAD": (search(PAD), "is BOS, not PAD"),
    "forgets the state": (search(carry=False), "give the new state"),
    "takes the least": (search(pick=np.argmin), "argmax"),
    "no limit": (search(bound=False), "loop over range(max_length)"),
    "keeps BOS": (lambda *args: [BOS, *search()(*args)], "BOS is given to the decoder"),
    "an array": (lambda *args: np.array(search()(*args)), "answer.tolist()"),
}


@pytest.mark.parametrize("mistake", GREEDY_MISTAKES)
def test_greedy_refuses(desk, mistake):
    answer, sentence = GREEDY_MISTAKES[mistake]
    refused(desk.check("greedy", answer), sentence)


def test_greedy_takes_a_right_search(desk):
    assert desk.check("greedy", search()).full


def test_greedy_ends_an_endless_loop_with_a_sentence(desk):
    def endless(model, source_bt, max_length):
        while True:
            pass

    exercise = dataclasses.replace(desk.lab.exercise("greedy"), limit_s=0.2)
    verdict, _ = judge(exercise, checks.greedy, (endless,))
    refused(verdict, "a loop that never ends")


# --- time and gradient_mb ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """Thirty forward calls of 1 s, then ten backward calls of 9 s."""
    forward = [Event(i, i + 1, 0, "forward", "LSTM") for i in range(30)]
    backward = [Event(30 + 9 * i, 39 + 9 * i, 0, "backward", "Tanh") for i in range(10)]
    return forward + backward


TIME_MISTAKES = {
    "percent": ({"slowest": "backward Tanh", "backward share": 75}, "not percent"),
    "forward": ({"slowest": "backward Tanh", "backward share": 0.25}, "that is forward"),
    "seconds": ({"slowest": "backward Tanh", "backward share": 90.0}, "in seconds"),
    "half a name": ({"slowest": "Tanh", "backward share": 0.75}, "write both words"),
    "words exchanged": (
        {"slowest": "Tanh Backward", "backward share": 0.75},
        "write it as the figure does: `backward Tanh`",
    ),
    "the other": ({"slowest": "forward LSTM", "backward share": 0.75}, "the first entry"),
    "no dict": (0.75, 'the keys "slowest"'),
}


@pytest.mark.parametrize("mistake", TIME_MISTAKES)
def test_time_refuses(desk, events, mistake):
    answer, sentence = TIME_MISTAKES[mistake]
    refused(desk.check("time", answer, events), sentence)


def test_time_takes_what_the_events_say(desk, events):
    assert desk.check("time", {"slowest": "backward Tanh", "backward share": 0.75}, events).full


def test_function_spans_never_overlap_and_name_what_ran(corpus):
    translator = Translator.new(configs.lab1_cpu(), corpus.source_vocab, corpus.target_vocab)
    recorder = Recorder()
    with FunctionSpans(recorder):
        translator.model.loss(next(BatchIterator(corpus.train, 4, seed=0))).backward()
    spans = sorted(recorder.events)
    assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(spans))
    assert {span.what for span in spans} == {"forward", "backward"}
    assert {"LSTM", "LinearFunction"} <= {span.name for span in spans}


def linear_model() -> chainer.Link:
    """100 x 2,500 + 2,500 parameters in FP32: 252,500 numbers, 1.01 MB."""
    return chainer.links.Linear(100, 2500)


MB_MISTAKES = {
    "numbers": (252_500, "each number takes 4 bytes"),
    "bytes": (1_010_000, "divide by 1,000,000"),
    "FP64": (2.02, "FP32 takes 4 bytes, not 8"),
    "millions": (0.2525, "times 4 bytes"),
    "text": ("one", "a number of megabytes"),
    "MiB": (1_010_000 / 2**20, "that is in MiB"),
}


@pytest.mark.parametrize("mistake", MB_MISTAKES)
def test_gradient_mb_refuses(desk, mistake):
    answer, sentence = MB_MISTAKES[mistake]
    refused(desk.check("gradient_mb", answer, linear_model()), sentence)
    assert desk.check("gradient_mb", 1.01, linear_model()).full


# --- the preset ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_lab1_cpu_translates_95_percent_and_does_not_drop_at_the_end(seed, tmp_path):
    from allhands.trace.summary import read_metrics
    from allhands.train import run

    config = configs.override(configs.lab1_cpu(), [f"seed={seed}"])
    result = run.train(config, tmp_path / "run")
    exact = [line["valid_exact_match"] for line in read_metrics(tmp_path / "run").evaluations]
    assert result.test.quality.exact_match >= 95
    assert exact[-1] >= max(exact) - 2
