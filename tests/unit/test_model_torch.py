"""The PyTorch twin and the Chainer model: two implementations, one answer."""

import chainer
import numpy as np
import pytest
import torch

from allhands.data.batch import Batch, collate
from allhands.model.decode import alignment, beam, greedy
from allhands.model.seq2seq import ModelSize, Seq2Seq
from allhands.model.seq2seq_torch import TorchSeq2Seq, copy_weights, torch_layout

SIZE = ModelSize(n_source=12, n_target=10, n_embed=6, n_hidden=7)


def make_twins(seed: int, dtype=np.float64) -> tuple[Seq2Seq, TorchSeq2Seq]:
    """Both models, with values that no initializer would give (biases too)."""
    with chainer.using_config("dtype", dtype):
        model = Seq2Seq(SIZE, seed=seed)
        twin = TorchSeq2Seq(SIZE, seed=seed + 1)
    rng = np.random.RandomState(seed)
    for param in model.params():
        param.array[...] = rng.normal(size=param.shape)
    twin = twin.double() if dtype is np.float64 else twin
    copy_weights(model, twin)
    return model, twin


def make_batch(seed: int, n_rows: int = 5) -> Batch:
    rng = np.random.RandomState(seed)
    lengths = rng.randint(0, 7, size=(n_rows, 2))
    return collate([(rng.randint(4, 12, n), rng.randint(4, 10, m)) for n, m in lengths])


@pytest.mark.parametrize("seed", range(4))
def test_same_loss_and_same_gradients(seed):
    model, twin = make_twins(seed)
    batch = make_batch(seed)
    model.cleargrads()
    loss = model.loss(batch)
    loss.backward()
    twin_loss = twin.loss(batch)
    twin_loss.backward()
    assert twin_loss.item() == pytest.approx(float(loss.array), rel=1e-10)
    grads = torch_layout({name: param.grad for name, param in model.namedparams()})
    trained = {name: p for name, p in twin.named_parameters() if p.requires_grad}
    assert grads.keys() == trained.keys()
    for name, grad in grads.items():
        np.testing.assert_allclose(trained[name].grad, grad, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("seed", range(4))
def test_same_sentences(seed):
    model, twin = make_twins(seed)
    source_bt = make_batch(seed, n_rows=8).source_bt
    said = greedy(model, source_bt, 9)
    assert greedy(twin, source_bt, 9) == said
    assert beam(twin, source_bt, 9, width=4) == beam(model, source_bt, 9, width=4)
    np.testing.assert_allclose(
        alignment(twin, [4, 5, 6], [7, 8]), alignment(model, [4, 5, 6], [7, 8]), atol=1e-10
    )


def test_the_same_seed_gives_the_same_model():
    batch = make_batch(0)
    model, twin = Seq2Seq(SIZE, seed=3), TorchSeq2Seq(SIZE, seed=3)
    assert twin.loss(batch).item() == pytest.approx(float(model.loss(batch).array), rel=1e-5)


def test_building_a_twin_leaves_the_global_random_state_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    TorchSeq2Seq(SIZE, seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_the_twins_have_as_many_numbers_to_train():
    model, twin = make_twins(0)
    n_twin = sum(p.numel() for p in twin.parameters() if p.requires_grad)
    assert n_twin == model.count_params()
    for lstm in (twin.encoder, twin.decoder):
        assert not lstm.bias_hh_l0.any()


def test_training_both_gives_the_same_losses():
    model, twin = make_twins(0)
    optimizer = chainer.optimizers.SGD(0.1).setup(model)
    twin_optimizer = torch.optim.SGD([p for p in twin.parameters() if p.requires_grad], lr=0.1)
    for seed in range(5):
        batch = make_batch(seed)
        optimizer.update(model.loss, batch)
        twin_optimizer.zero_grad()
        twin.loss(batch).backward()
        twin_optimizer.step()
    batch = make_batch(9)
    assert twin.loss(batch).item() == pytest.approx(float(model.loss(batch).array), rel=1e-9)


def test_copying_between_different_sizes_is_refused():
    other = TorchSeq2Seq(ModelSize(12, 10, 6, 8), seed=0)
    with pytest.raises(ValueError, match="must have the same size"):
        copy_weights(Seq2Seq(SIZE, seed=0), other)
