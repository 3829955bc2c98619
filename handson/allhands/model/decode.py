"""Which sentence does a model say? Greedy search, beam search, and where it looks while it speaks.

Framework neutral. A model is anything with

    state = model.start(source_bt)                      # what is known before the first token
    state, log_prob_bv = model.step(state, token_b)     # after the last token of each row
    state = state.select(rows)                          # new row r is old row rows[r]

`log_prob_bv` is an array (NumPy or CuPy): the log-probability of each next token. The model moves
the token ids to its device itself.

Conventions: ids are those of allhands.data.vocab. Answers are plain lists of ids without BOS, EOS
and PAD; neither PAD nor BOS is ever chosen.
"""

import numpy as np

from allhands.data.vocab import BOS, EOS, PAD


def greedy(model, source_bt, max_length: int) -> list[list[int]]:
    """Always take the most probable next token, until every row has said EOS.

    source_bt: (B, S) int32. Returns B lists of at most `max_length` ids. Of two tokens that are
    equally probable the one with the lower id is taken.
    """
    _require_positive(max_length=max_length)
    n_rows = len(source_bt)
    state = model.start(source_bt)
    token_b = np.full(n_rows, BOS, dtype=np.int32)
    has_ended_b = np.zeros(n_rows, dtype=bool)
    said: list[list[int]] = [[] for _ in range(n_rows)]
    for _ in range(max_length):
        state, log_prob_bv = model.step(state, token_b)
        log_prob_bv[:, [PAD, BOS]] = -np.inf
        token_b = _on_host(log_prob_bv.argmax(axis=1)).astype(np.int32)
        has_ended_b |= token_b == EOS
        if has_ended_b.all():
            break
        for row in np.flatnonzero(~has_ended_b):
            said[row].append(int(token_b[row]))
    return said


def length_penalty_factor(n_tokens, alpha: float):
    """lp(Y) = ((5 + |Y|) / 6) ** alpha (Wu et al. 2016, equation 14); |Y| counts EOS too."""
    return ((5.0 + np.asarray(n_tokens)) / 6.0) ** alpha


def beam(
    model, source_bt, max_length: int, width: int, length_penalty: float = 0.6
) -> list[list[int]]:
    """Keep the `width` best beginnings of each sentence; return the best of each row.

    A beginning Y is as good as log p(Y) / lp(Y), with the penalty of `length_penalty_factor`; 0
    means that only the probability counts. Sentences that have ended keep their place in the beam
    as long as no better beginning pushes them out. With width 1 this is greedy search.

    source_bt: (B, S) int32. Returns B lists of at most `max_length` ids.
    """
    _require_positive(max_length=max_length, width=width)
    n_rows = len(source_bt)
    first_row_b1 = np.arange(n_rows)[:, None] * width  # where each sentence's beam begins
    state = model.start(source_bt).select(np.repeat(np.arange(n_rows), width))

    said_bwt = np.full((n_rows, width, 0), PAD, dtype=np.int32)
    log_prob_bw = np.full((n_rows, width), -np.inf)
    log_prob_bw[:, 0] = 0.0  # all beginnings are empty and equal: one of them is enough
    length_bw = np.zeros((n_rows, width), dtype=int)
    has_ended_bw = np.zeros((n_rows, width), dtype=bool)
    token_bw = np.full((n_rows, width), BOS, dtype=np.int32)

    for _ in range(max_length):
        state, log_prob_rv = model.step(state, token_bw.ravel())
        next_bwv = _on_host(log_prob_rv).astype(np.float64).reshape(n_rows, width, -1)
        next_bwv[:, :, [PAD, BOS]] = -np.inf
        next_bwv[has_ended_bw] = -np.inf
        next_bwv[has_ended_bw, PAD] = 0.0  # a sentence that has ended goes on only with nothing

        length_bw = length_bw + ~has_ended_bw
        total_bwv = log_prob_bw[:, :, None] + next_bwv
        score_bwv = total_bwv / length_penalty_factor(length_bw, length_penalty)[:, :, None]
        best_bw = _best(score_bwv.reshape(n_rows, -1), width)
        parent_bw, token_bw = np.divmod(best_bw, next_bwv.shape[2])
        token_bw = token_bw.astype(np.int32)

        log_prob_bw = np.take_along_axis(total_bwv.reshape(n_rows, -1), best_bw, axis=1)
        length_bw = np.take_along_axis(length_bw, parent_bw, axis=1)
        has_ended_bw = np.take_along_axis(has_ended_bw, parent_bw, axis=1) | (token_bw == EOS)
        said_bwt = np.take_along_axis(said_bwt, parent_bw[:, :, None], axis=1)
        said_bwt = np.concatenate([said_bwt, token_bw[:, :, None]], axis=2)
        if has_ended_bw.all():
            break
        state = state.select((first_row_b1 + parent_bw).ravel())
    # `_best` sorts, so the first of each beam is the best.
    return [[int(token) for token in row if token not in (PAD, EOS)] for row in said_bwt[:, 0]]


def alignment(model, source: list[int], target: list[int]) -> np.ndarray:
    """Where the model looks while it says `target`: (len(target)+1, len(source)+1) weights.

    source, target: ids without special tokens. Row t belongs to the t-th target token, column s to
    the s-th source token; the last row and the last column belong to EOS. Each row sums to 1.
    """
    source_bt = np.array([[*source, EOS]], dtype=np.int32)
    target_in_bt = np.array([[BOS, *target]], dtype=np.int32)
    return model.alignment(source_bt, target_in_bt)[0]


def _best(score_bn: np.ndarray, count: int) -> np.ndarray:
    """Indices (B, count) of each row's highest scores, best first; of equals the lower index."""
    return np.argsort(-score_bn, axis=1, kind="stable")[:, :count]


def _on_host(array) -> np.ndarray:
    """A NumPy array from a NumPy or CuPy array."""
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _require_positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, but it is {value}.")
