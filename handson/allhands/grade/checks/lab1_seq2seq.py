"""The checks of lab 1: one function for each exercise, named by its id.

Each gets a `Marker` and what the participant made. The oracles are independent of the answer: cases
worked by hand, NumPy instead of Chainer, a table of probabilities instead of a network.
"""

from collections.abc import Callable, Mapping, Sequence

import chainer
import numpy as np

from allhands.data.batch import BatchIterator
from allhands.data.store import PairStore
from allhands.data.vocab import BOS, EOS, PAD
from allhands.grade.check import Marker, likely, show
from allhands.model import decode
from allhands.trace.events import Event
from allhands.trace.summary import time_by


def pad(mark: Marker, pad: Callable) -> None:
    rows = [[8], [5, 6, 7], [9, 4]]
    got_bt = mark.run(pad, [list(row) for row in rows])
    mark.need(
        isinstance(got_bt, np.ndarray),
        "a NumPy array",
        type(got_bt).__name__,
        "start from np.full((rows, columns), PAD, dtype=np.int32), and return that array",
    )
    mark.need(
        got_bt.shape == (3, 3),
        "for rows of 1, 3 and 2 ids, the shape (3, 3)",
        show(got_bt.shape),
        likely(
            (got_bt.shape == (3, 1), "not the shortest or the first row: the longest"),
            otherwise="one line for each row; the longest row says how many columns",
        ),
    )
    right = got_bt.tolist() == [[8, PAD, PAD], [5, 6, 7], [9, 4, PAD]]
    mark.require(
        right,
        1,
        "each row at the left, PAD after it",
        show(got_bt),
        likely(
            (got_bt[0].tolist() == [PAD, PAD, 8], "put PAD after the row, not before it"),
            (-1 in got_bt, f"fill with PAD, which is {PAD} here, not with -1"),
            otherwise="start from an array full of PAD, and copy each row into it",
        ),
    )
    odd = mark.run(pad, [[], np.array([7], np.int32)])
    mark.require(
        got_bt.dtype == np.int32 and np.array_equal(odd, [[PAD], [7]]),
        1,
        "the dtype int32, and rows that are arrays or empty",
        f"dtype {got_bt.dtype}; for rows [] and [7]: {show(odd)}",
        likely(
            (got_bt.dtype != np.int32, "give dtype=np.int32 when you make the array"),
            otherwise="use len(row), which lists and arrays both have",
        ),
        after=right,
    )


def waste(mark: Marker, shares: Mapping[str, float], store: PairStore) -> None:
    mark.need(
        isinstance(shares, Mapping) and {"by chance", "pooled"} <= set(shares),
        'a dict with the keys "by chance" and "pooled"',
        show(shares),
    )
    for name, other, pool in (("by chance", "pooled", 1), ("pooled", "by chance", 20)):
        batches = list(BatchIterator(store, 64, seed=0, repeat=False, pool=pool))
        cells = sum(batch.target_out_bt.size for batch in batches)
        tokens = sum(batch.n_tokens for batch in batches)
        share, got = 1 - tokens / cells, float(shares[name])
        mark.require(
            abs(got - share) < 0.005,
            1,
            f"the share of PAD in the target rectangles of batches {name} (pool={pool})",
            show(got),
            likely(
                (abs(got - 100 * share) < 0.5, "give a share between 0 and 1, not percent"),
                (
                    abs(got - (cells - tokens) / tokens) < 0.005,
                    "divide by all cells of the rectangles, not by the real tokens",
                ),
                (abs(got - tokens / cells) < 0.005, "that is the share of tokens; PAD is the rest"),
                (
                    abs(float(shares[other]) - share) < 0.005,
                    "the two shares have changed places",
                ),
                otherwise=f"use batch size 64, seed=0, repeat=False and pool={pool}",
            ),
        )


def shift(mark: Marker, shift: Callable) -> None:
    rows = [[5, 6, 7], [8], [9, 4]]
    got = mark.run(shift, [list(row) for row in rows])
    mark.need(
        isinstance(got, tuple | list) and len(got) == 2,
        "two lists: inputs and outputs",
        show(got),
        "return inputs, outputs",
    )
    inputs, outputs = ([[int(i) for i in row] for row in rows] for rows in got)
    mark.need(
        outputs == [[5, 6, 7, EOS], [8, EOS], [9, 4, EOS]],
        "outputs: the target, then EOS",
        show(outputs),
        "the outputs were right before; mend the inputs",
    )
    leaks = inputs == outputs
    mark.require(
        inputs == [[BOS, 5, 6, 7], [BOS, 8], [BOS, 9, 4]],
        3,
        "inputs: at step t the decoder knows the tokens before t, and BOS at step 0",
        show(inputs),
        likely(
            (leaks, "inputs and outputs are equal: the decoder reads the answer and copies it"),
            (
                [len(row) for row in inputs] != [4, 2, 3],
                "inputs and outputs of a row must have the same length",
            ),
            (
                all(row[0] != BOS for row in inputs),
                "step 0 has nothing before it: give it BOS",
            ),
            otherwise="BOS first, then the target without its EOS",
        ),
    )


def masked_loss(mark: Marker, masked_loss: Callable) -> None:
    logits_btv, target_bt = _logits_and_targets()
    variable = chainer.Variable(logits_btv)
    got = mark.run(masked_loss, variable, target_bt)
    mark.need(
        isinstance(got, chainer.Variable) and got.shape == (),
        "a Chainer variable with one number, so that backward can begin from it",
        f"{type(got).__name__} of shape {np.shape(getattr(got, 'array', got))}",
        likely(
            (isinstance(got, chainer.Variable), "one number: add up with F.sum"),
            otherwise="stay with chainer.functions; do not take .array",
        ),
    )
    nll_bt = _negative_log_likelihood(logits_btv, target_bt)
    real_bt = target_bt != PAD
    total, n_rows, n_tokens = nll_bt[real_bt].sum(), len(target_bt), real_bt.sum()
    value = float(got.array)
    right = bool(np.isclose(value, total / n_rows, rtol=1e-4))
    mark.require(
        right,
        2,
        "the sum over all tokens but PAD, divided by the number of sentences",
        f"{value:.4f} where {total / n_rows:.4f} is right",
        likely(
            (np.isclose(value, total / n_tokens, rtol=1e-4), "divide by sentences, not by tokens"),
            (np.isclose(value, nll_bt.mean(), rtol=1e-4), "leave PAD out, and divide by sentences"),
            (np.isclose(value, nll_bt.sum() / n_rows, rtol=1e-4), "leave PAD out: ignore_label"),
            (np.isclose(value, total, rtol=1e-4), "divide by the number of sentences B"),
            (
                np.isclose(value, total / target_bt.size, rtol=1e-4),
                "divide by the sentences, not by all cells of the rectangle",
            ),
            (np.isclose(value, -total / n_rows, rtol=1e-4), "the sign: it is minus the logarithm"),
            otherwise="one number for each token first (reduce='no'), then sum and divide",
        ),
    )
    got.backward()
    missing = variable.grad is None
    grad_at_pad = 1.0 if missing else float(np.abs(variable.grad[~real_bt]).max())
    mark.require(
        not missing and grad_at_pad == 0,
        1,
        "a gradient for the logits, and none at PAD",
        "no gradient" if missing else f"gradient up to {grad_at_pad:.3g} at PAD",
        "the value is right and the gradient is not: use ignore_label, and keep the graph",
        after=right,
    )


def _logits_and_targets() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.RandomState(0)
    logits_btv = rng.normal(size=(3, 4, 6)).astype(np.float32)
    target_bt = np.array([[4, 5, 3, EOS], [5, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]], np.int32)
    return logits_btv, target_bt


def _negative_log_likelihood(logits_btv: np.ndarray, target_bt: np.ndarray) -> np.ndarray:
    """-log softmax at each target, with NumPy alone, in float64."""
    logits_btv = logits_btv.astype(np.float64)
    log_z_bt = np.log(np.exp(logits_btv).sum(axis=2))
    at_target = np.take_along_axis(logits_btv, target_bt[:, :, None], axis=2)[:, :, 0]
    return log_z_bt - at_target


class TableModel:
    """A language without a network: the next token's probabilities stand in a table.

    The state is (step, last token), so an answer that forgets to carry the state on is found out.
    """

    def __init__(self, seed: int, n_tokens: int = 7, n_steps: int = 6) -> None:
        rng = np.random.RandomState(seed)
        self.log_prob_tpv = np.log(rng.dirichlet(np.ones(n_tokens), size=(n_steps, n_tokens)))
        self.log_prob_tpv[:, :, [PAD, BOS]] = -50

    def start(self, source_bt: np.ndarray) -> int:
        return 0

    def step(self, state: int, token_b: np.ndarray) -> tuple[int, np.ndarray]:
        step = min(state, len(self.log_prob_tpv) - 1)
        return state + 1, self.log_prob_tpv[step, np.asarray(token_b)].copy()


def greedy(mark: Marker, greedy: Callable) -> None:
    source_bt = np.array([[4, EOS]], np.int32)
    models = [TableModel(seed) for seed in range(12)]
    right = [decode.greedy(model, source_bt, 8)[0] for model in models]
    got = [mark.run(greedy, model, source_bt, 8) for model in models]
    odd = next((answer for answer in got if not isinstance(answer, list)), None)
    mark.need(odd is None, "a list of ids", type(odd).__name__, "list(answer), or answer.tolist()")
    got = [[int(token) for token in answer] for answer in got]
    first = next((i for i, (a, b) in enumerate(zip(got, right, strict=True)) if a != b), 0)
    mark.require(
        got == right,
        2,
        "the most probable token at each step, up to EOS, on twelve small tables",
        f"{show(got[first])} where {show(right[first])} is right",
        likely(
            (
                any(EOS in answer for answer in got)
                and not any(EOS in answer[:-1] for answer in got),
                "EOS ends the answer and does not belong to it",
            ),
            (any(EOS in answer[:-1] for answer in got), "stop as soon as the token is EOS"),
            (
                got == _from(EOS, models),
                "the first token that the decoder is given is BOS, not EOS",
            ),
            (
                got == _from(PAD, models),
                "the first token that the decoder is given is BOS, not PAD",
            ),
            (got == _without_state(models), "give the new state to the next step"),
            (
                got == [[BOS, *answer] for answer in right],
                "BOS is given to the decoder and does not belong to the answer",
            ),
            (
                [answer[:8] for answer in got] == right,
                "at most max_length tokens: loop over range(max_length)",
            ),
            otherwise="argmax of log_prob_bv[0]; then step again with that token and the new state",
        ),
    )
    short = [mark.run(greedy, model, source_bt, 2) for model in models]
    mark.require(
        [list(map(int, answer)) for answer in short] == [answer[:2] for answer in right],
        1,
        "at most max_length tokens",
        f"with max_length=2: {show(max(short, key=len))}",
        "loop over range(max_length)",
        after=got == right,
    )


def _from(first: int, models: Sequence[TableModel]) -> list[list[int]]:
    return [_follow(model, first, carry_state=True) for model in models]


def _without_state(models: Sequence[TableModel]) -> list[list[int]]:
    return [_follow(model, BOS, carry_state=False) for model in models]


def _follow(model: TableModel, token: int, *, carry_state: bool) -> list[int]:
    """What a greedy search with one mistake in it says."""
    said, state = [], 0
    for _ in range(8):
        after, log_prob_bv = model.step(state, np.array([token]))
        token, state = int(log_prob_bv[0].argmax()), after if carry_state else state
        if token == EOS:
            break
        said.append(token)
    return said


def time(mark: Marker, answer: Mapping, events: Sequence[Event]) -> None:
    mark.need(
        isinstance(answer, Mapping) and {"slowest", "backward share"} <= set(answer),
        'a dict with the keys "slowest" and "backward share"',
        show(answer),
    )
    mark.need(len(events) > 20, "the events of a whole step", f"{len(events)} events")
    whole_s = sum(event.duration_s for event in events)
    backward_s = sum(event.duration_s for event in events if event.what == "backward")
    share, got = backward_s / whole_s, float(answer["backward share"])
    mark.require(
        abs(got - share) < 0.01,
        2,
        "the share of backward in your events",
        show(got),
        likely(
            (abs(got - 100 * share) < 1, "give a share between 0 and 1, not percent"),
            (abs(got - (1 - share)) < 0.01, "that is forward; backward is the rest"),
            (abs(got - backward_s) < 0.01 * whole_s, "that is in seconds; divide by the whole"),
            otherwise="the time of all backward events, divided by the time of all events",
        ),
    )
    longest = time_by(events, named=True)[0].label
    mark.require(
        str(answer["slowest"]).strip() == longest,
        1,
        "the name of the slowest function, as the figure writes it",
        show(answer["slowest"]),
        likely(
            (
                set(str(answer["slowest"]).lower().split()) == set(longest.lower().split()),
                f"write it as the figure does: `{longest}`",
            ),
            (
                str(answer["slowest"]) in longest,
                "write both words, such as `backward Tanh`: forward and backward differ",
            ),
            otherwise="the first entry of time_by(events, named=True)",
        ),
    )


def gradient_mb(mark: Marker, megabytes: float, model: chainer.Link) -> None:
    n_parameters = sum(parameter.size for parameter in model.params())
    right = 4 * n_parameters / 1e6
    try:
        got = float(megabytes)
    except (TypeError, ValueError):
        mark.need(False, "a number of megabytes", show(megabytes), "write the number alone")
    mark.require(
        abs(got - right) <= 0.03 * right,
        2,
        "the bytes of all gradients in FP32, in MB",
        show(got),
        likely(
            (abs(got - n_parameters) <= 0.02 * n_parameters, "each number takes 4 bytes, in MB"),
            (abs(got - 1e6 * right) <= 0.02e6 * right, "these are bytes: divide by 1,000,000"),
            (abs(got - 2 * right) <= 0.02 * right, "FP32 takes 4 bytes, not 8"),
            (
                abs(got - right * 1e6 / 2**20) <= 0.005 * right,
                "that is in MiB (1,048,576 bytes); give MB (1,000,000 bytes)",
            ),
            (abs(got - right / 4) <= 0.02 * right, "these are millions of numbers: times 4 bytes"),
            otherwise="parameters times 4 bytes, divided by 1,000,000",
        ),
    )
