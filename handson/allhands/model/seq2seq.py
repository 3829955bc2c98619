"""How does the translator work? A Chainer LSTM encoder-decoder with attention.

The encoder reads the source sentence. The decoder says the target sentence, one token after the
other; at each step it looks back at the source by attention ("general" score, Luong et al. 2015,
section 3.1, without input feeding).

Conventions: shapes are in the names: b sentence of the batch, s source time, t target time, e
embedding, h hidden unit, v entry of the target vocabulary. Tokens are int32 ids; PAD fills up on
the right. The model lives where its parameters live: `model.to_device(...)` moves it, and no device
is named here.
"""

from contextlib import ExitStack
from dataclasses import dataclass, fields

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import initializers

from allhands.data.batch import Batch
from allhands.data.vocab import PAD
from allhands.model.lstm import LSTMLayer

NEVER = -1e4  # a score so low that softmax makes it 0; it fits in float16


@dataclass(frozen=True)
class ModelSize:
    """Vocabulary sizes (with the special tokens), embedding size and number of LSTM units."""

    n_source: int
    n_target: int
    n_embed: int = 64
    n_hidden: int = 128


@dataclass(frozen=True)
class State:
    """All that the decoder knows before its next token. Every field has one row per sentence."""

    h_bh: chainer.Variable
    c_bh: chainer.Variable
    encoded_bsh: chainer.Variable  # what the encoder made of each source token
    keys_bsh: chainer.Variable  # the same, ready to be compared with h
    is_token_bs: np.ndarray  # False over PAD (a NumPy or CuPy array)

    def select(self, rows) -> "State":
        """The state of the given rows, in that order. A row may come more than once."""
        index = self.h_bh.device.send(np.asarray(rows))
        with only_looking():
            return State(*(getattr(self, field.name)[index] for field in fields(self)))


class Seq2Seq(chainer.Chain):
    """LSTM encoder-decoder with attention. All initial values come from `seed` alone."""

    def __init__(self, size: ModelSize, *, seed: int) -> None:
        super().__init__()
        self.size = size
        n_embed, n_hidden = size.n_embed, size.n_hidden
        rng = np.random.RandomState(seed)
        normal = initializers.LeCunNormal(rng=rng)
        embedding = initializers.Normal(1.0, rng=rng)
        with self.init_scope():
            self.source_embed = L.EmbedID(size.n_source, n_embed, initialW=embedding)
            self.encoder = LSTMLayer(n_embed, n_hidden, rng=rng)
            self.target_embed = L.EmbedID(size.n_target, n_embed, initialW=embedding)
            self.decoder = LSTMLayer(n_embed, n_hidden, rng=rng)
            self.key = L.Linear(n_hidden, n_hidden, nobias=True, initialW=normal)
            self.combine = L.Linear(2 * n_hidden, n_hidden, initialW=normal)
            self.output = L.Linear(n_hidden, size.n_target, initialW=normal)

    # training: the whole target sentence at once

    def loss(self, batch: Batch) -> chainer.Variable:
        """Minus the log-probability of the right sentence, mean over the sentences of the batch.

        The arrays of the batch are on the model's device already.
        """
        logits_btv = self(batch.source_bt, batch.target_in_bt)
        return masked_loss(full_precision(logits_btv), batch.target_out_bt)

    def forward(self, source_bt, target_in_bt) -> chainer.Variable:
        """Logits (B, T, V) of what follows each token of `target_in_bt` (teacher forcing)."""
        logits_btv, _ = self.decode(self.encode(source_bt), target_in_bt)
        return logits_btv

    def encode(self, source_bt) -> State:
        """Read the source sentences, (B, S); each row ends with EOS, then PAD."""
        is_token_bs = source_bt != PAD
        lengths_b = chainer.cuda.to_cpu(is_token_bs.sum(axis=1))
        x_sbe = self.source_embed(source_bt.T)
        zeros_bh = self.xp.zeros((len(source_bt), self.size.n_hidden), dtype=x_sbe.dtype)
        h_sbh, h_bh, c_bh = self.encoder(x_sbe, zeros_bh, zeros_bh, lengths_b)
        encoded_bsh = F.transpose(h_sbh, (1, 0, 2))
        keys_bsh = self.key(encoded_bsh, n_batch_axes=2)
        return State(h_bh, c_bh, encoded_bsh, keys_bsh, is_token_bs)

    def decode(self, state: State, target_in_bt) -> tuple[chainer.Variable, State]:
        """Logits (B, T, V) of what follows each token of `target_in_bt`, and the state after."""
        x_tbe = self.target_embed(target_in_bt.T)
        h_tbh, h_bh, c_bh = self.decoder(x_tbe, state.h_bh, state.c_bh)
        h_bth = F.transpose(h_tbh, (1, 0, 2))
        context_bth = F.matmul(self.attend(state, h_bth), state.encoded_bsh)
        both = F.concat([context_bth, h_bth], axis=2)
        logits_btv = self.output(F.tanh(self.combine(both, n_batch_axes=2)), n_batch_axes=2)
        after = State(h_bh, c_bh, state.encoded_bsh, state.keys_bsh, state.is_token_bs)
        return logits_btv, after

    def attend(self, state: State, h_bth) -> chainer.Variable:
        """Attention weights (B, T, S): how much target step t looks at source token s.

        Each row sums to 1 and is 0 over PAD.
        """
        score_bts = F.matmul(h_bth, state.keys_bsh, transb=True)
        never = self.xp.asarray(NEVER, dtype=score_bts.dtype)
        return F.softmax(F.where(state.is_token_bs[:, None, :], score_bts, never), axis=2)

    # translating: one token after the other (see decode.py)

    def start(self, source_bt) -> State:
        """The state before the first token. `source_bt` (B, S) may be on the host."""
        with only_looking():
            return self.encode(self.device.send(source_bt))

    def step(self, state: State, token_b):
        """Take the last token of each sentence, (B,); return the next state and log_prob_bv.

        log_prob_bv is a NumPy or CuPy array: the log-probability of each next token.
        """
        with only_looking():
            logits_btv, after = self.decode(state, self.device.send(token_b)[:, None])
            return after, F.log_softmax(full_precision(logits_btv[:, 0])).array

    def alignment(self, source_bt, target_in_bt) -> np.ndarray:
        """The attention weights of a whole batch, (B, T, S), as a NumPy array: for drawing."""
        with only_looking():
            state = self.start(source_bt)
            x_tbe = self.target_embed(self.device.send(target_in_bt).T)
            h_tbh, _, _ = self.decoder(x_tbe, state.h_bh, state.c_bh)
            weights_bts = self.attend(state, F.transpose(h_tbh, (1, 0, 2)))
            return chainer.cuda.to_cpu(weights_bts.array)


def masked_loss(logits_btv, target_out_bt) -> chainer.Variable:
    """Sum of -log p(token) over all tokens that are not PAD, divided by the batch size B.

    logits_btv: (B, T, V). target_out_bt: (B, T), int32. Dividing by B and not by the number of
    tokens makes the mean over equal shards of a batch the loss of the whole batch. Give float16
    through `full_precision` first.
    """
    n_rows, n_steps, n_target = logits_btv.shape
    nll = F.softmax_cross_entropy(
        F.reshape(logits_btv, (n_rows * n_steps, n_target)),
        target_out_bt.ravel(),
        ignore_label=PAD,
        reduce="no",
    )
    return F.sum(nll) / n_rows


def full_precision(x) -> chainer.Variable:
    """float16 becomes float32: a sum of many float16 numbers overflows or loses the last ones."""
    return F.cast(x, np.float32) if x.dtype == np.float16 else x


def only_looking() -> ExitStack:
    """A `with` block that builds no graph for backward and switches training behaviour off."""
    stack = ExitStack()
    stack.enter_context(chainer.no_backprop_mode())
    stack.enter_context(chainer.using_config("train", False))
    return stack
