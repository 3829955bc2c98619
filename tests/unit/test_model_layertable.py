"""The layer table: every gradient once, in order of arrival, with its size."""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import torch

from allhands.data.batch import collate
from allhands.model.layertable import Layer, arrival_table
from allhands.model.seq2seq import ModelSize, Seq2Seq
from allhands.model.seq2seq_torch import TorchSeq2Seq, torch_layout

SIZE = ModelSize(n_source=12, n_target=10, n_embed=6, n_hidden=7)
BATCH = collate([([4, 5], [6]), ([7], [4, 5, 6])])


def test_layers_of_a_chain_arrive_from_last_to_first():
    chain = chainer.Chain(
        first=L.Linear(3, 3, nobias=True),
        middle=L.Linear(3, 3, nobias=True),
        last=L.Linear(3, 2, nobias=True),
    )
    x = np.ones((4, 3), dtype=np.float32)
    loss = lambda: F.sum(F.tanh(chain.last(chain.middle(chain.first(x)))))  # noqa: E731
    assert arrival_table(chain, loss) == (
        Layer("/last/W", (2, 3), 24),
        Layer("/middle/W", (3, 3), 36),
        Layer("/first/W", (3, 3), 36),
    )


def test_layers_of_a_torch_chain_arrive_from_last_to_first():
    chain = torch.nn.Sequential(*(torch.nn.Linear(3, 3, bias=False) for _ in range(2)))
    chain.append(torch.nn.Linear(3, 2, bias=False).double())
    loss = lambda: chain[2](chain[1](chain[0](torch.ones(4, 3))).double()).sum()  # noqa: E731
    assert arrival_table(chain, loss) == (
        Layer("2.weight", (2, 3), 48),
        Layer("1.weight", (3, 3), 36),
        Layer("0.weight", (3, 3), 36),
    )


def test_a_weight_that_is_used_twice_arrives_at_its_first_use():
    """Backward meets the first use last: only then the gradient is complete."""
    chain = chainer.Chain()
    with chain.init_scope():
        chain.shared, chain.middle = L.Linear(3, 3, nobias=True), L.Linear(3, 3, nobias=True)
    x = np.ones((4, 3), dtype=np.float32)
    table = arrival_table(chain, lambda: F.sum(chain.shared(chain.middle(chain.shared(x)))))
    assert [layer.name for layer in table] == ["/middle/W", "/shared/W"]


def test_what_the_loss_does_not_use_is_left_out():
    chain = chainer.Chain(used=L.Linear(3, 3), unused=L.Linear(3, 3))
    x = np.ones((4, 3), dtype=np.float32)
    table = arrival_table(chain, lambda: F.sum(chain.used(x)))
    assert {layer.name for layer in table} == {"/used/W", "/used/b"}


def test_both_translators_have_the_same_gradients_and_the_output_layer_first():
    model, twin = Seq2Seq(SIZE, seed=0), TorchSeq2Seq(SIZE, seed=0)
    of_model = arrival_table(model, lambda: model.loss(BATCH))
    of_twin = arrival_table(twin, lambda: twin.loss(BATCH))
    shapes = {param_name: np.empty(p.shape) for param_name, p in model.namedparams()}
    assert {layer.name for layer in of_model} == shapes.keys()
    assert {layer.name: layer.shape for layer in of_twin} == {
        name: array.shape for name, array in torch_layout(shapes).items()
    }
    for table in (of_model, of_twin):
        assert sum(layer.grad_bytes for layer in table) == 4 * model.count_params()
        assert {layer.name.strip("/")[:6] for layer in table[:2]} == {"output"}
        assert table[-1].name.strip("/").startswith("source_embed")
