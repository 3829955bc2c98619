"""Does Chainer compute what it says, on this Python and NumPy? Forward and backward of all we use.

Two independent oracles: PyTorch (values and gradients), and numeric gradients (float64). `CASES` is
the one table: a row names the function or link, the shapes of its floating inputs, and the same
thing written in Chainer and in PyTorch. A test says that the package uses nothing without a row.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

try:
    import torch
    import torch.nn.functional as T
except ImportError:  # where PyTorch has no wheel yet, the numeric gradients still run
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch, the oracle, is not installed here")

ROOT = Path(__file__).parents[2]
MASK = np.array([[True, False, True], [False, False, True]])
IDS = np.array([[2, 0, 4], [0, 1, 2]], np.int32)  # 0 stands for padding
PERMUTED = np.array([1, 0, 2, 1], np.int32)
LENGTHS = (
    4,
    2,
    1,
)  # of the sequences that an LSTM reads; the longest first, as Chainer wants
HIDDEN = 2


@dataclass(frozen=True)
class Case:
    """One row. `ours` and `theirs` take floating arrays of `shapes` and return one or several."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable
    theirs: Callable


def lstm_with_pytorch(c, x):
    """F.lstm interleaves its gates (a, i, f, o for each unit); PyTorch stacks them (i, f, g, o)."""
    a, i, f, o = x.reshape(len(x), -1, 4).unbind(2)
    stacked = torch.cat([i, f, a, o], 1)
    n = c.shape[1]
    cell = torch.nn.LSTMCell(4 * n, n, bias=False, dtype=x.dtype)
    weights = {"weight_ih": torch.eye(4 * n), "weight_hh": torch.zeros(4 * n, n)}
    cell.load_state_dict(weights)
    h_next, c_next = cell(stacked, (torch.zeros_like(c), c))
    return c_next, h_next


def split_layers(arrays) -> tuple:
    """h0, c0, the sequences, then 8 weights and 8 biases a layer, as L.NStepLSTM orders them."""
    h0, c0, *rest = arrays
    xs, rest = rest[: len(LENGTHS)], rest[len(LENGTHS) :]
    layers = [rest[start : start + 16] for start in range(0, len(rest), 16)]
    return h0, c0, xs, [layer[:8] for layer in layers], [layer[8:] for layer in layers]


def n_step_lstm(*arrays):
    """The function reads by time: at each time, a row of every sequence that is still going."""
    h0, c0, xs, ws, bs = split_layers(arrays)
    h, c, ys = F.n_step_lstm(len(ws), 0.0, h0, c0, ws, bs, F.transpose_sequence(xs))
    return h, c, *F.transpose_sequence(ys)


def link_n_step_lstm(*arrays):
    """The link reads whole sequences."""
    h0, c0, xs, ws, bs = split_layers(arrays)
    link = linked(L.NStepLSTM(len(ws), xs[0].shape[1], HIDDEN, dropout=0.0), ws=ws, bs=bs)
    h, c, ys = link(h0, c0, xs)
    return h, c, *ys


def n_step_lstm_with_pytorch(*arrays):
    """Both order the gates i, f, g, o (Chainer's own documentation says i, f, o, g: not so)."""
    h0, c0, xs, ws, bs = split_layers(arrays)
    lstm = torch.nn.LSTM(xs[0].shape[1], HIDDEN, len(ws), dtype=h0.dtype)
    for k, (w, b) in enumerate(zip(ws, bs, strict=True)):
        for side, start in (("ih", 0), ("hh", 4)):
            for kind, parts in (("weight", w), ("bias", b)):
                name = f"{kind}_{side}_l{k}"
                delattr(lstm, name)  # a plain tensor in the Parameter's place gets a gradient
                setattr(lstm, name, torch.cat(parts[start : start + 4]))
    packed = torch.nn.utils.rnn.pack_sequence(xs)
    ys, (h, c) = lstm(packed, (h0, c0))
    return h, c, *torch.nn.utils.rnn.unpack_sequence(ys)


def n_step_lstm_shapes(n_in: int) -> tuple[tuple[int, ...], ...]:
    def layer(n: int) -> list[tuple[int, ...]]:
        return [(HIDDEN, n)] * 4 + [(HIDDEN, HIDDEN)] * 4 + [(HIDDEN,)] * 8

    states = [(2, len(LENGTHS), HIDDEN)] * 2
    return (*states, *((length, n_in) for length in LENGTHS), *layer(n_in), *layer(HIDDEN))


def linked(link: chainer.Link, **parameters) -> chainer.Link:
    """`link` with the given Variables in the place of its parameters: they get the gradients."""
    link.__dict__.update(parameters)
    return link


def dropout_in_test_mode(x):
    with chainer.using_config("train", False):
        return F.dropout(x, 0.5)


def as_long(ids: np.ndarray):
    return torch.from_numpy(ids.astype(np.int64))


def masked_embedding_with_pytorch(w):
    """PyTorch's padding_idx stops only the gradient; Chainer's ignore_label the value, too."""
    return T.embedding(as_long(IDS), w, padding_idx=0) * as_long(IDS != 0)[..., None]


CASES = (
    # the recurrence
    Case("F.lstm", ((3, 2), (3, 8)), F.lstm, lstm_with_pytorch),
    Case("F.n_step_lstm", n_step_lstm_shapes(3), n_step_lstm, n_step_lstm_with_pytorch),
    Case("L.NStepLSTM", n_step_lstm_shapes(3), link_n_step_lstm, n_step_lstm_with_pytorch),
    # layers
    Case(
        "F.embed_id",
        ((5, 4),),
        lambda w: F.embed_id(IDS, w, ignore_label=0),
        masked_embedding_with_pytorch,
    ),
    Case(
        "L.EmbedID",
        ((5, 4),),
        lambda w: linked(L.EmbedID(5, 4, ignore_label=0), W=w)(IDS),
        masked_embedding_with_pytorch,
    ),
    Case(
        "F.linear",
        ((2, 3, 4), (5, 4), (5,)),
        lambda x, w, b: F.linear(x, w, b, n_batch_axes=2),
        lambda x, w, b: T.linear(x, w, b),
    ),
    Case(
        "L.Linear",
        ((2, 3, 4), (5, 4), (5,)),
        lambda x, w, b: linked(L.Linear(4, 5), W=w, b=b)(x, n_batch_axes=2),
        lambda x, w, b: T.linear(x, w, b),
    ),
    Case(
        "L.Linear",
        ((3, 4), (5, 4)),
        lambda x, w: linked(L.Linear(4, 5, nobias=True), W=w)(x),
        lambda x, w: T.linear(x, w),
    ),
    Case("F.dropout", ((2, 3),), dropout_in_test_mode, lambda x: T.dropout(x, 0.5, training=False)),
    # arithmetic
    Case("F.matmul", ((2, 3, 4), (2, 4, 5)), F.matmul, lambda a, b: a @ b),
    Case(
        "F.matmul",
        ((2, 3, 4), (2, 5, 4)),
        lambda a, b: F.matmul(a, b, transb=True),
        lambda a, b: a @ b.mT,
    ),
    Case(
        "F.matmul",
        ((2, 4, 3), (2, 4, 5)),
        lambda a, b: F.matmul(a, b, transa=True),
        lambda a, b: a.mT @ b,
    ),
    Case("F.sum", ((2, 3, 4),), F.sum, lambda x: x.sum()),
    Case(
        "F.sum",
        ((2, 3, 4),),
        lambda x: F.sum(x, axis=(0, 2), keepdims=True),
        lambda x: x.sum((0, 2), keepdim=True),
    ),
    Case("F.tanh", ((2, 3),), F.tanh, lambda x: x.tanh()),
    Case("F.sigmoid", ((2, 3),), F.sigmoid, lambda x: x.sigmoid()),
    Case(
        "F.mean_squared_error",
        ((2, 3), (2, 3)),
        F.mean_squared_error,
        lambda x, y: T.mse_loss(x, y),
    ),
    Case("Variable + - * /", ((2, 3), (2, 3)), lambda a, b: a * b - a / (b * b + 1), None),
    # the loss
    Case("F.softmax", ((2, 3, 4),), lambda x: F.softmax(x, axis=2), lambda x: x.softmax(2)),
    Case("F.softmax", ((2, 3, 4),), lambda x: F.softmax(x, axis=1), lambda x: x.softmax(1)),
    Case("F.log_softmax", ((2, 4),), F.log_softmax, lambda x: x.log_softmax(1)),
    Case(
        "F.log_softmax",
        ((2, 3, 4),),
        lambda x: F.log_softmax(x, axis=2),
        lambda x: x.log_softmax(2),
    ),
    Case(
        "F.softmax_cross_entropy",
        ((6, 5),),
        lambda x: F.softmax_cross_entropy(x, IDS.ravel(), ignore_label=0),
        lambda x: T.cross_entropy(x, as_long(IDS.ravel()), ignore_index=0),
    ),
    Case(
        "F.softmax_cross_entropy",
        ((6, 5),),
        lambda x: F.softmax_cross_entropy(x, IDS.ravel(), ignore_label=0, normalize=False),
        lambda x: T.cross_entropy(x, as_long(IDS.ravel()), ignore_index=0, reduction="sum") / 6,
    ),
    Case(
        "F.softmax_cross_entropy",
        ((6, 5),),
        lambda x: F.softmax_cross_entropy(x, IDS.ravel(), ignore_label=0, reduce="no"),
        lambda x: T.cross_entropy(x, as_long(IDS.ravel()), ignore_index=0, reduction="none"),
    ),
    # choosing and shaping
    Case(
        "F.where",
        ((2, 3), (2, 3)),
        lambda a, b: F.where(MASK, a, b),
        lambda a, b: torch.where(torch.from_numpy(MASK), a, b),
    ),
    Case(
        "F.select_item",
        ((4, 3),),
        lambda x: F.select_item(x, PERMUTED),
        lambda x: x.gather(1, as_long(PERMUTED)[:, None])[:, 0],
    ),
    Case(
        "F.get_item", ((4, 3, 2),), lambda x: F.get_item(x, (slice(1, 3), 0)), lambda x: x[1:3, 0]
    ),
    Case(
        "F.get_item",  # a row that is taken twice gets both gradients
        ((4, 3),),
        lambda x: F.get_item(x, PERMUTED),
        lambda x: x[as_long(PERMUTED)],
    ),
    Case(
        "F.concat",
        ((2, 3), (2, 4)),
        lambda a, b: F.concat([a, b], axis=1),
        lambda a, b: torch.cat([a, b], 1),
    ),
    Case(
        "F.stack",
        ((2, 3), (2, 3)),
        lambda a, b: F.stack([a, b], axis=1),
        lambda a, b: torch.stack([a, b], 1),
    ),
    Case(
        "F.split_axis",
        ((2, 6),),
        lambda x: F.split_axis(x, 3, axis=1),
        lambda x: x.split(2, 1),
    ),
    Case(
        "F.split_axis",
        ((2, 6),),
        lambda x: F.split_axis(x, [1, 4], axis=1),
        lambda x: x.split([1, 3, 2], 1),
    ),
    Case(
        "F.transpose",
        ((2, 3, 4),),
        lambda x: F.transpose(x, (2, 0, 1)),
        lambda x: x.permute(2, 0, 1),
    ),
    Case("F.reshape", ((2, 6),), lambda x: F.reshape(x, (3, -1)), lambda x: x.reshape(3, -1)),
    Case("F.expand_dims", ((2, 3),), lambda x: F.expand_dims(x, 1), lambda x: x[:, None]),
    Case("F.squeeze", ((2, 1, 3),), lambda x: F.squeeze(x, 1), lambda x: x.squeeze(1)),
    Case(
        "F.broadcast_to",
        ((2, 1, 3),),
        lambda x: F.broadcast_to(x, (4, 2, 5, 3)),
        lambda x: x.expand(4, 2, 5, 3),
    ),
    Case("F.cast", ((2, 3),), lambda x: F.cast(x, np.float64), lambda x: x.double()),
)


def name_of(case: Case) -> str:
    return case.name.replace(" ", "")


def as_tuple(outputs) -> tuple:
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def inputs_of(case: Case, dtype) -> list[np.ndarray]:
    random = np.random.RandomState(1)
    return [random.randn(*shape).astype(dtype) for shape in case.shapes]


def with_chainer(case: Case, xs: list[np.ndarray], seed: int) -> tuple[list, list]:
    """The outputs, and the gradients of their sum weighted by random numbers from `seed`."""
    variables = [chainer.Variable(x.copy()) for x in xs]
    ys = as_tuple(case.ours(*variables))
    random = np.random.RandomState(seed)
    weights = [np.asarray(random.randn(*y.shape), y.dtype) for y in ys]
    sum(F.sum(y * weight) for y, weight in zip(ys, weights, strict=True)).backward()
    return [y.array for y in ys], [variable.grad for variable in variables]


def with_torch(case: Case, xs: list[np.ndarray], seed: int) -> tuple[list, list]:
    tensors = [torch.tensor(x, requires_grad=True) for x in xs]
    ys = as_tuple((case.theirs or case.ours)(*tensors))
    random = np.random.RandomState(seed)
    weights = [torch.tensor(random.randn(*y.shape), dtype=y.dtype) for y in ys]
    torch.autograd.backward(ys, weights)
    return [y.detach().numpy() for y in ys], [t.grad.numpy() for t in tensors]


@needs_torch
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_values_and_gradients_are_those_of_pytorch(case, dtype, tolerance):
    xs = inputs_of(case, dtype)
    for ours, theirs in zip(with_chainer(case, xs, 2), with_torch(case, xs, 2), strict=True):
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert our.dtype == their.dtype
            np.testing.assert_allclose(our, their, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_gradients_are_those_of_finite_differences(case):
    """Along one random direction d: (f(x + e d) - f(x - e d)) / 2e = <gradient, d>."""
    xs = inputs_of(case, np.float64)
    _, gradients = with_chainer(case, xs, 2)
    random = np.random.RandomState(3)
    directions = [random.randn(*x.shape) for x in xs]
    analytic = sum(np.vdot(g, d) for g, d in zip(gradients, directions, strict=True))

    def objective(step: float) -> float:
        ys, _ = with_chainer(case, [x + step * d for x, d in zip(xs, directions, strict=True)], 2)
        weights = np.random.RandomState(2)
        return float(sum(np.vdot(weights.randn(*y.shape), y) for y in ys))

    numeric = (objective(1e-5) - objective(-1e-5)) / 2e-5
    assert numeric == pytest.approx(analytic, rel=1e-7, abs=1e-8)


# --- the table is complete


def used_by(source: str) -> Iterator[str]:
    """The functions and links that a file names, as F.tanh and L.Linear."""
    short = {"functions": "F", "links": "L", "F": "F", "L": "L"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            owner = node.value
            last = getattr(owner, "id", getattr(owner, "attr", None))
            if last in short:
                yield f"{short[last]}.{node.attr}"


def test_every_chainer_function_that_the_package_uses_has_a_row():
    files = [
        file
        for file in (ROOT / "handson").rglob("*.py")
        if "import chainer" in file.read_text() or "from chainer" in file.read_text()
    ]
    assert files
    used = {name for file in files for name in used_by(file.read_text())}
    assert used - {case.name for case in CASES} == set()


def test_the_search_for_names_sees_each_way_to_write_them():
    source = "F.tanh(x); chainer.functions.sum(x); L.Linear(2, 3); T.relu(x)"
    assert set(used_by(source)) == {"F.tanh", "F.sum", "L.Linear"}
