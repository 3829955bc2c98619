"""Seq2Seq: gradients against finite differences, and padding that never changes a result."""

import chainer
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allhands.data.batch import Batch, collate
from allhands.data.vocab import PAD
from allhands.model.decode import greedy
from allhands.model.seq2seq import ModelSize, Seq2Seq, full_precision, masked_loss

SIZE = ModelSize(n_source=9, n_target=8, n_embed=3, n_hidden=4)
PAIRS = [([4, 5, 8], [4, 7]), ([6], [5, 6, 4, 7, 7]), ([], []), ([8, 7, 6, 5, 4], [6])]

sentences = st.lists(st.integers(4, 7), max_size=6)
pairs = st.tuples(sentences, sentences)


def make_model(dtype=np.float64, seed: int = 0, size: ModelSize = SIZE) -> Seq2Seq:
    with chainer.using_config("dtype", dtype):
        return Seq2Seq(size, seed=seed)


def test_gradients_agree_with_finite_differences():
    model, batch, step = make_model(), collate(PAIRS), 1e-5
    model.cleargrads()
    model.loss(batch).backward()
    for name, param in model.namedparams():
        numeric = np.zeros_like(param.array)
        for index in np.ndindex(param.shape):
            value = param.array[index]
            losses = []
            for nearby in (value + step, value - step):
                param.array[index] = nearby
                losses.append(float(model.loss(batch).array))
            param.array[index] = value
            numeric[index] = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose(param.grad, numeric, rtol=1e-6, atol=1e-8, err_msg=name)


@settings(deadline=None, max_examples=40)
@given(one=pairs, others=st.lists(pairs, max_size=4), place=st.integers(0, 4))
def test_a_sentence_does_not_feel_the_rest_of_its_batch(one, others, place):
    model = make_model()
    alone = collate([one])
    place = min(place, len(others))
    batch = collate([*others[:place], one, *others[place:]])
    n_steps = alone.target_in_bt.shape[1]
    expected = model(alone.source_bt, alone.target_in_bt).array[0]
    seen = model(batch.source_bt, batch.target_in_bt).array[place, :n_steps]
    np.testing.assert_allclose(seen, expected, rtol=1e-10, atol=1e-12)


def test_columns_of_padding_change_neither_loss_nor_gradient():
    model, batch = make_model(), collate(PAIRS)
    wide = Batch(
        *(
            np.pad(array, ((0, 0), (0, 3)), constant_values=PAD)
            for array in (batch.source_bt, batch.target_in_bt, batch.target_out_bt)
        ),
        n_tokens=batch.n_tokens,
    )
    results = []
    for each in (batch, wide):
        model.cleargrads()
        loss = model.loss(each)
        loss.backward()
        results.append([loss.array, *(param.grad for param in model.params())])
    for narrow, padded in zip(*results, strict=True):
        np.testing.assert_allclose(padded, narrow, rtol=1e-10, atol=1e-12)


def test_the_embedding_of_pad_gets_no_gradient():
    model = make_model()
    model.cleargrads()
    model.loss(collate(PAIRS)).backward()
    assert not model.source_embed.W.grad[PAD].any()
    assert not model.target_embed.W.grad[PAD].any()
    assert model.source_embed.W.grad[4].any()


def test_the_mean_over_equal_shards_is_the_loss_of_the_whole_batch():
    model = make_model()
    whole = model.loss(collate(PAIRS)).array
    shards = [model.loss(collate(shard)).array for shard in (PAIRS[:2], PAIRS[2:])]
    assert np.mean(shards) == pytest.approx(float(whole), rel=1e-12)


def test_masked_loss_of_a_model_that_knows_nothing():
    """Equal logits give every token probability 1/V; 4 tokens in 2 sentences: 4 log(V) / 2."""
    target_out_bt = np.array([[4, 5, 2], [2, PAD, PAD]], dtype=np.int32)
    loss = masked_loss(np.zeros((2, 3, 8), dtype=np.float32), target_out_bt)
    assert float(loss.array) == pytest.approx(4 * np.log(8) / 2)


def test_the_loss_of_half_precision_logits_does_not_overflow_in_full_precision():
    n_rows, n_steps, n_target = 1, 20_000, 100  # 20,000 log(100) is more than float16 can hold
    target_out_bt = np.full((n_rows, n_steps), 4, dtype=np.int32)
    half_btv = chainer.Variable(np.zeros((n_rows, n_steps, n_target), dtype=np.float16))
    loss = masked_loss(full_precision(half_btv), target_out_bt)
    assert float(loss.array) == pytest.approx(n_steps * np.log(n_target), rel=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, chainer.mixed16])
def test_attention_looks_at_tokens_only(dtype):
    model, batch = make_model(dtype), collate(PAIRS)
    weights_bts = model.alignment(batch.source_bt, batch.target_in_bt)
    assert weights_bts.shape == (*batch.target_in_bt.shape, batch.source_bt.shape[1])
    np.testing.assert_allclose(weights_bts.sum(axis=2), 1, rtol=5e-3)
    is_pad_bts = np.broadcast_to((batch.source_bt == PAD)[:, None], weights_bts.shape)
    assert not weights_bts[is_pad_bts].any()
    assert weights_bts[~is_pad_bts].all()


@pytest.mark.parametrize("dtype", [np.float16, chainer.mixed16])
def test_half_precision_is_near_single_precision(dtype):
    batch = collate(PAIRS)
    half, single = make_model(dtype), make_model(np.float32)
    assert {param.dtype for param in half.params()} == {np.dtype(np.float16)}
    assert float(half.loss(batch).array) == pytest.approx(float(single.loss(batch).array), rel=1e-2)


def test_speaking_step_by_step_is_teacher_forcing():
    model, batch = make_model(), collate(PAIRS)
    logits_btv = model(batch.source_bt, batch.target_in_bt)
    expected_btv = chainer.functions.log_softmax(logits_btv, axis=2).array
    state = model.start(batch.source_bt)
    for t in range(batch.target_in_bt.shape[1]):
        state, log_prob_bv = model.step(state, batch.target_in_bt[:, t])
        np.testing.assert_allclose(log_prob_bv, expected_btv[:, t], rtol=1e-9)


def test_select_gives_rows_in_the_order_asked_for():
    model, batch = make_model(), collate(PAIRS)
    rows, token_b = np.array([3, 0, 0]), np.array([4, 5, 6, 7], dtype=np.int32)
    state, _ = model.step(model.start(batch.source_bt), token_b)
    _, log_prob_bv = model.step(state, token_b)
    _, of_rows = model.step(state.select(rows), token_b[rows])
    np.testing.assert_allclose(of_rows, log_prob_bv[rows], rtol=1e-9)


def test_speaking_builds_no_graph():
    state = make_model().start(collate(PAIRS).source_bt)
    for field in (state, state.select(np.array([0]))):
        assert field.h_bh.creator_node is None
        assert field.encoded_bsh.creator_node is None


def test_all_values_come_from_the_seed_alone():
    np.random.seed(1)
    one = make_model(seed=5)
    after_one = np.random.random()
    np.random.seed(1)
    assert np.random.random() == after_one  # building a model drew nothing from the global state
    np.random.seed(2)
    same, other = make_model(seed=5), make_model(seed=6)
    for (name, a), (_, b), (_, c) in zip(
        one.namedparams(), same.namedparams(), other.namedparams(), strict=True
    ):
        assert np.array_equal(a.array, b.array)
        assert np.array_equal(a.array, c.array) == name.endswith("/b"), name


def test_it_learns_what_it_is_shown():
    size = ModelSize(n_source=9, n_target=8, n_embed=8, n_hidden=16)
    model, batch = make_model(np.float32, size=size), collate(PAIRS)
    optimizer = chainer.optimizers.Adam(0.02).setup(model)
    for _ in range(100):
        optimizer.update(model.loss, batch)
    assert greedy(model, batch.source_bt, 10) == [target for _, target in PAIRS]


@pytest.mark.gpu
def test_a_gpu_gives_what_the_cpu_gives():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    model, batch = make_model(np.float32), collate(PAIRS)
    said = greedy(model, batch.source_bt, 6)
    loss = float(model.loss(batch).array)
    model.to_device("@cupy:0")
    arrays = (batch.source_bt, batch.target_in_bt, batch.target_out_bt)
    on_gpu = Batch(*(cupy.asarray(array) for array in arrays), n_tokens=batch.n_tokens)
    assert float(model.loss(on_gpu).array) == pytest.approx(loss, rel=1e-4)
    assert greedy(model, batch.source_bt, 6) == said
