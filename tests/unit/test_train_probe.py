"""The probe: order and times of arrival, on a clock that is turned by hand."""

import itertools
from types import SimpleNamespace

import chainer
import chainer.links as L
import numpy as np
import pytest
import torch
from torch import nn

from allhands.data.batch import collate
from allhands.model.layertable import arrival_table
from allhands.model.seq2seq import ModelSize, Seq2Seq
from allhands.model.seq2seq_torch import TorchSeq2Seq
from allhands.train import probe as module
from allhands.train.probe import probe

BATCH = collate([([4, 5, 6], [4, 6]), ([5, 4], [5, 5, 4])])


class Chain(nn.Module):
    """w0, then w1 twice, then w2; `unused` is trainable, `frozen` is not."""

    def __init__(self) -> None:
        super().__init__()
        self.w0, self.w1, self.w2, self.unused = (nn.Parameter(torch.ones(n)) for n in (1, 2, 3, 4))
        self.frozen = nn.Parameter(torch.ones(5), requires_grad=False)

    def forward(self) -> torch.Tensor:
        x = self.w0.sum() * self.frozen.sum()
        return x * self.w1.sum() * self.w1.prod() * self.w2.sum()


class Ticks:
    """Each stamp is later than the one before by the next of these seconds."""

    def __init__(self, seconds) -> None:
        self._times_s = itertools.accumulate(seconds)

    def mark(self) -> float:
        return next(self._times_s)

    def read(self, marks) -> list[float]:
        return list(marks)


def use_ticks(monkeypatch, *steps) -> None:
    """One row of seconds a step: start, end of forward, each arrival, end of backward."""
    ticks = Ticks(second for step in steps for second in step)
    monkeypatch.setattr(module, "stamps_for", lambda device: ticks)


def test_order_sizes_and_times_of_one_step(monkeypatch):
    use_ticks(monkeypatch, (0, 10, 1, 2, 3, 4))
    seen = probe(model := Chain(), model, steps=1, warm_up=0)
    assert seen.names == ("w2", "w1", "w0", "unused")
    assert seen.n_bytes == (12, 8, 4, 16)
    assert seen.forward_s == 10
    assert seen.ready_s == (11, 13, 16, 20)


def test_medians_without_the_warm_up(monkeypatch):
    use_ticks(
        monkeypatch,
        (0, 900, 900, 900, 900, 900),
        (0, 10, 1, 2, 3, 4),
        (0, 12, 1, 2, 30, 40),
        (0, 17, 3, 2, 3, 4),
    )
    seen = probe(model := Chain(), model, steps=3, warm_up=1)
    assert seen.forward_s == 12
    assert seen.backward_s == (1, 2, 5, 4)  # after forward: w2 1 1 3, w1 3 3 5, w0 6 33 8


def test_gradients_of_a_seq2seq_arrive_as_the_layer_table_says():
    size = ModelSize(9, 8, 3, 4)
    for model in (TorchSeq2Seq(size, seed=0), Seq2Seq(size, seed=0)):
        table = arrival_table(model, lambda model=model: model.loss(BATCH))
        seen = probe(model, lambda model=model: model.loss(BATCH), steps=1, warm_up=0)
        sizes = dict(zip(seen.names, seen.n_bytes, strict=True))
        assert sizes == {layer.name: layer.grad_bytes for layer in table}
        if isinstance(model, nn.Module):
            assert seen.names == tuple(layer.name for layer in table)
        assert seen.ready_s[0] > seen.forward_s > 0


def test_a_chainer_model_is_timed_at_the_last_use_of_each_parameter(monkeypatch):
    """Two layers; each function takes one tick in backward, and a third one is not used."""
    model = chainer.Chain(a=L.Linear(None, 2), b=L.Linear(2, 3), c=L.Linear(3, 4))
    ticks = itertools.count()
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    model.c.W.array[...] = 0
    seen = probe(
        model,
        lambda: chainer.functions.sum(model.b(model.a(np.ones((1, 2), np.float32)))),
        steps=1,
        warm_up=0,
    )
    assert seen.forward_s == 1
    by_name = dict(zip(seen.names, seen.ready_s, strict=True))
    assert by_name == {  # 2: the sum, 3: layer b, 4: layer a, 5: the end
        "/b/W": 3, "/b/b": 3, "/a/W": 4, "/a/b": 4, "/c/W": 5, "/c/b": 5,
    }  # fmt: skip
    assert set(seen.names[-2:]) == {"/c/W", "/c/b"}


def test_parameters_stay_and_hooks_go():
    model = Chain()
    before = [p.clone() for p in model.parameters()]
    probe(model, model, steps=1, warm_up=0)
    assert all(map(torch.equal, before, model.parameters()))
    assert all(not p._post_accumulate_grad_hooks for p in model.parameters() if p.requires_grad)


def test_a_probe_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no trainable parameter"):
        probe(nn.Linear(1, 1).requires_grad_(False), lambda: None)
    with pytest.raises(ValueError, match="saw 0 and 3"):
        probe(Chain(), lambda: None, steps=0)


@pytest.mark.gpu
def test_on_a_gpu_the_device_s_own_times_are_taken():
    """Two large layers and a tiny one: the two need longer than the program to ask for them."""
    layers = nn.Sequential(nn.Linear(4096, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1)).cuda()
    x_bh = torch.randn(8192, 4096, device="cuda")
    seen = probe(layers, lambda: layers(x_bh).sum(), steps=3, warm_up=2)
    assert set(seen.names[:2]) == {"2.weight", "2.bias"}
    assert all(part_s >= 0 for part_s in seen.backward_s)
    n_operations = 2 * 8192 * 4096 * 4096 * 3  # two products for layer 1, one for layer 0
    assert seen.ready_s[-1] - seen.forward_s > n_operations / 2e15  # faster than any GPU of today
