"""Greedy and beam search, on models that are small enough to know the best sentence by counting."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allhands.data.batch import collate
from allhands.data.vocab import BOS, EOS, PAD, UNK
from allhands.model.decode import alignment, beam, greedy, length_penalty_factor
from allhands.model.seq2seq import ModelSize, Seq2Seq

A, B = 4, 5
N_TARGET = 6


@dataclass(frozen=True)
class TableState:
    sentence_b: np.ndarray  # which sentence's table each row reads
    before_b: np.ndarray  # the token before the last one
    time: int

    def select(self, rows) -> "TableState":
        return TableState(self.sentence_b[rows], self.before_b[rows], self.time)


class TableModel:
    """A model that is a table of probabilities: p[sentence, time, token before, last token, next].

    So it remembers one token more than it is told, as a recurrent network does.
    """

    def __init__(self, p: np.ndarray) -> None:
        self.p = p
        self.n_steps = 0

    def start(self, source_bt) -> TableState:
        n_rows = len(source_bt)
        return TableState(np.arange(n_rows), np.full(n_rows, BOS), 0)

    def step(self, state: TableState, token_b):
        self.n_steps += 1
        log_prob_bv = np.log(self.p[state.sentence_b, state.time, state.before_b, token_b])
        return TableState(state.sentence_b, token_b, state.time + 1), log_prob_bv

    def sources(self) -> np.ndarray:
        return np.full((len(self.p), 1), EOS, dtype=np.int32)

    def log_prob(self, sentence: int, tokens) -> float:
        """Of a sequence as it was said, with EOS if it has one."""
        triples = zip((BOS, BOS, *tokens), (BOS, *tokens), tokens, strict=False)
        return sum(np.log(self.p[sentence, t, *triple]) for t, triple in enumerate(triples))


def random_table(seed: int, n_sentences: int, max_length: int) -> TableModel:
    shape = (n_sentences, max_length, N_TARGET, N_TARGET)
    weights = [0.5, 0.5, 0.2, 1, 1, 1]  # EOS is rare, so that most sentences are long
    p = np.random.default_rng(seed).dirichlet(weights, size=shape)
    return TableModel(np.maximum(p, 1e-12))


def table(steps: dict[int, dict[int, float]], max_length: int = 4) -> TableModel:
    """One sentence; steps[last token] = {next token: probability}, whatever was said before."""
    p = np.full((1, max_length, N_TARGET, N_TARGET, N_TARGET), 1e-9)
    for last, row in steps.items():
        for token, probability in row.items():
            p[..., last, token] = probability
    return TableModel(p)


def all_sequences(max_length: int):
    """Every sequence that may be said: ended by EOS, or cut after max_length tokens."""
    words = (UNK, A, B)
    for n in range(max_length):
        for tokens in itertools.product(words, repeat=n):
            yield (*tokens, EOS)
    yield from itertools.product(words, repeat=max_length)


def score(model: TableModel, sentence: int, tokens, alpha: float) -> float:
    return model.log_prob(sentence, tokens) / ((5 + len(tokens)) / 6) ** alpha


def as_said(tokens: list[int], max_length: int) -> tuple[int, ...]:
    return tuple(tokens) if len(tokens) == max_length else (*tokens, EOS)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    n_sentences=st.integers(1, 3),
    max_length=st.integers(1, 4),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_a_wide_beam_finds_the_best_sequence(seed, n_sentences, max_length, alpha):
    model = random_table(seed, n_sentences, max_length)
    said = beam(model, model.sources(), max_length, width=130, length_penalty=alpha)
    for sentence, tokens in enumerate(said):
        best = max(score(model, sentence, seq, alpha) for seq in all_sequences(max_length))
        found = score(model, sentence, as_said(tokens, max_length), alpha)
        assert found == pytest.approx(best, rel=1e-9)


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    n_sentences=st.integers(1, 4),
    max_length=st.integers(1, 6),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_a_beam_of_width_1_is_greedy(seed, n_sentences, max_length, alpha):
    model = random_table(seed, n_sentences, max_length)
    expected = greedy(model, model.sources(), max_length)
    assert beam(model, model.sources(), max_length, 1, alpha) == expected


def test_greedy_misses_what_a_beam_of_2_finds():
    """A looks better at first (0.6), but A's best end has 0.6 x 0.4; B's has 0.4 x 0.9."""
    model = table({BOS: {A: 0.6, B: 0.4}, A: {EOS: 0.4, A: 0.3, B: 0.3}, B: {EOS: 0.9, A: 0.1}})
    assert greedy(model, model.sources(), 4)[0][0] == A
    assert beam(model, model.sources(), 4, width=2, length_penalty=0.0) == [[B]]


def test_the_length_penalty_decides_between_short_and_long():
    """[] has p = 0.5 and [A, B] has p = 0.45; lp(1) = 1 and lp(3) = (8 / 6) ** alpha."""
    model = table({BOS: {EOS: 0.5, A: 0.45}, A: {B: 1.0}, B: {EOS: 1.0}})
    assert beam(model, model.sources(), 4, width=3, length_penalty=0.0) == [[]]
    # log(0.45) / lp = log(0.5) where lp = 1.152, so between alpha = 0.4 and alpha = 0.6
    assert beam(model, model.sources(), 4, width=3, length_penalty=0.4) == [[]]
    assert beam(model, model.sources(), 4, width=3, length_penalty=0.6) == [[A, B]]


def test_length_penalty_factor_by_hand():
    assert length_penalty_factor(1, 0.6) == 1
    assert length_penalty_factor(7, 1.0) == 2
    assert length_penalty_factor(19, 0.5) == 2
    assert length_penalty_factor(30, 0.0) == 1


def search_both(model, source_bt, max_length):
    yield greedy(model, source_bt, max_length)
    yield beam(model, source_bt, max_length, width=3)


def test_pad_and_bos_are_never_said():
    model = table({BOS: {PAD: 0.5, BOS: 0.4, A: 0.1}, A: {PAD: 0.6, BOS: 0.3, EOS: 0.1}})
    assert list(search_both(model, model.sources(), 4)) == [[[A]], [[A]]]


def test_max_length_cuts_a_sentence_that_does_not_end():
    model = table({BOS: {A: 1.0}, A: {A: 1.0}}, max_length=5)
    for max_length in (1, 3, 5):
        expected = [[A] * max_length]
        assert list(search_both(model, model.sources(), max_length)) == [expected, expected]


def test_the_search_stops_when_every_row_has_ended():
    model = table({BOS: {A: 1.0}, A: {EOS: 1.0}}, max_length=30)
    assert greedy(model, model.sources(), 30) == [[A]]
    assert model.n_steps == 2


@pytest.mark.parametrize("search", [greedy, lambda *args: beam(*args, width=3)])
def test_a_batch_gives_what_each_sentence_gives_alone(search):
    together = random_table(seed=1, n_sentences=8, max_length=9)
    said = search(together, together.sources(), 9)
    assert len({len(tokens) for tokens in said}) > 2  # rows end at different times
    for sentence, tokens in enumerate(said):
        alone = TableModel(together.p[sentence : sentence + 1])
        assert search(alone, alone.sources(), 9) == [tokens]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda m: greedy(m, m.sources(), 0), "max_length"),
        (lambda m: beam(m, m.sources(), 0, width=2), "max_length"),
        (lambda m: beam(m, m.sources(), 4, width=0), "width"),
    ],
)
def test_a_search_of_nothing_is_refused(call, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        call(random_table(0, 1, 4))


def test_alignment_has_a_row_for_each_token_said_and_a_column_for_each_token_read():
    model = Seq2Seq(ModelSize(9, N_TARGET, 3, 4), seed=0)
    weights_ts = alignment(model, source=[4, 8], target=[A, B, A])
    assert weights_ts.shape == (4, 3)
    np.testing.assert_allclose(weights_ts.sum(axis=1), 1, rtol=1e-5)
    batch = collate([([4, 8], [A, B, A])])
    np.testing.assert_array_equal(
        weights_ts, model.alignment(batch.source_bt, batch.target_in_bt)[0]
    )
