"""LSTMLayer: its arithmetic; and the ways for a CPU and for a GPU are the same layer."""

import chainer
import numpy as np
import pytest

from allhands.model.lstm import LSTMLayer

N_IN, N_HIDDEN = 3, 4


@pytest.fixture(autouse=True)
def _float64():
    with chainer.using_config("dtype", np.float64):
        yield


def make_layer() -> LSTMLayer:
    return LSTMLayer(N_IN, N_HIDDEN, rng=np.random.RandomState(1))


def make_inputs(n_steps: int, n_rows: int) -> list[chainer.Variable]:
    rng = np.random.RandomState(2)
    shapes = (n_steps, n_rows, N_IN), (n_rows, N_HIDDEN), (n_rows, N_HIDDEN)
    return [chainer.Variable(rng.normal(size=shape)) for shape in shapes]


def results_and_gradients(layer: LSTMLayer, run, lengths_b: np.ndarray) -> list[np.ndarray]:
    """All outputs of `run`, then the gradients of a random weighted sum of them."""
    inputs = make_inputs(6, len(lengths_b))
    layer.cleargrads()
    outputs = run(*inputs, lengths_b)
    rng = np.random.RandomState(3)
    sum(chainer.functions.sum(y * rng.normal(size=y.shape)) for y in outputs).backward()
    gradients = [variable.grad for variable in (*layer.params(), *inputs)]
    return [y.array for y in outputs] + gradients


@pytest.mark.parametrize("lengths", [[6, 6, 6], [2, 6, 4], [1, 1, 1], [3, 5, 5, 1, 3], [4]])
def test_both_ways_give_equal_outputs_and_gradients(lengths):
    layer = make_layer()
    lengths_b = np.array(lengths)
    unrolled = results_and_gradients(layer, layer.run_unrolled, lengths_b)
    fused = results_and_gradients(layer, layer.run_fused, lengths_b)
    for one, other in zip(unrolled, fused, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_one_step_follows_the_equations():
    layer = make_layer()
    x, h, c = make_inputs(1, 2)
    w, u, b = (p.array for p in (layer.input.W, layer.hidden.W, layer.input.b))
    gates = x.array[0] @ w.T + h.array @ u.T + b
    a, i, f, o = (gates[:, gate::4] for gate in range(4))
    c_next = sigmoid(f) * c.array + sigmoid(i) * np.tanh(a)
    h_next = sigmoid(o) * np.tanh(c_next)

    h_tbh, h_last, c_last = layer(x, h, c)
    np.testing.assert_allclose(c_last.array, c_next)
    np.testing.assert_allclose(h_last.array, h_next)
    np.testing.assert_allclose(h_tbh.array, h_next[None])


def test_a_new_layer_remembers():
    """With the biases alone, a step keeps sigmoid(1) of the old cell state and adds nothing."""
    layer = make_layer()
    layer.input.W.array[...] = layer.hidden.W.array[...] = 0
    x, h, c = make_inputs(1, 2)
    _, _, c_last = layer(x, h, c)
    np.testing.assert_allclose(c_last.array, sigmoid(1) * c.array)


@pytest.mark.parametrize("way", ["run_unrolled", "run_fused"])
def test_a_row_stands_still_after_its_last_step(way):
    layer = make_layer()
    x, h, c = make_inputs(5, 2)
    h_tbh, h_last, c_last = getattr(layer, way)(x, h, c, np.array([2, 5]))
    _, h_two, c_two = layer(x[:2, :1], h[:1], c[:1])
    np.testing.assert_allclose(h_last.array[0], h_two.array[0])
    np.testing.assert_allclose(c_last.array[0], c_two.array[0])
    for t in range(2, 5):
        np.testing.assert_allclose(h_tbh.array[t, 0], h_two.array[0])


@pytest.mark.gpu
def test_a_gpu_gives_what_the_cpu_gives():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    lengths_b = np.array([2, 6, 4])
    layer = make_layer()
    on_cpu = [y.array for y in layer(*make_inputs(6, 3), lengths_b)]
    layer.to_device("@cupy:0")
    inputs = make_inputs(6, 3)
    for variable in inputs:
        variable.to_device("@cupy:0")
    on_gpu = [y.array.get() for y in layer(*inputs, lengths_b)]
    for one, other in zip(on_cpu, on_gpu, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)
