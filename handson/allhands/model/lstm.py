"""How does one LSTM layer run fast on a CPU and on a GPU, with the same weights?

On a CPU the layer is unrolled: the input half of all time steps is one matrix product, then one
small step follows the other. On a GPU with cuDNN, one call (`F.n_step_lstm`) does all steps. Both
ways use the same parameters and give the same numbers; `LSTMLayer.forward` chooses.

Conventions: time comes first (`_tbe` = time, batch, embedding), so that a time step is one block of
memory. The gates of one unit lie side by side, in Chainer's order: a (candidate), i, f, o. So row
4 * unit + gate of a weight matrix belongs to that gate of that unit.
"""

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
from chainer import initializers

A, I, FORGET, O = range(4)  # noqa: E741 -- the gates' places, in F.lstm's order


class LSTMLayer(chainer.Chain):
    """One LSTM layer: c' = sigmoid(f) c + sigmoid(i) tanh(a) and h' = sigmoid(o) tanh(c').

    The gates (a, i, f, o) are W x + U h + b. The bias of the forget gate starts at 1, so that the
    layer remembers at first (Jozefowicz et al. 2015, section 2.2); the other biases start at 0.
    """

    def __init__(self, n_in: int, n_hidden: int, *, rng: np.random.RandomState) -> None:
        super().__init__()
        bias = np.zeros((n_hidden, 4))
        bias[:, FORGET] = 1
        normal = initializers.LeCunNormal(rng=rng)
        with self.init_scope():
            self.input = L.Linear(n_in, 4 * n_hidden, initialW=normal, initial_bias=bias.ravel())
            self.hidden = L.Linear(n_hidden, 4 * n_hidden, nobias=True, initialW=normal)

    def forward(self, x_tbe, h_bh, c_bh, lengths_b: np.ndarray | None = None):
        """Run the layer over a batch of sequences.

        x_tbe: (T, B, n_in). h_bh, c_bh: the state before the first step, each (B, n_hidden).
        lengths_b: how many steps of each row are real, at least 1 (an array on the host); None:
        all.

        Returns h_tbh (T, B, n_hidden) and the last h_bh and c_bh. After its last real step a row's
        state stands still: so padding never changes a result.
        """
        n_steps, n_rows = x_tbe.shape[:2]
        if lengths_b is None:
            lengths_b = np.full(n_rows, n_steps)
        if self.xp is not np and n_steps > 1 and chainer.should_use_cudnn(">=auto", 5000):
            return self.run_fused(x_tbe, h_bh, c_bh, lengths_b)
        return self.run_unrolled(x_tbe, h_bh, c_bh, lengths_b)

    def run_unrolled(self, x_tbe, h_bh, c_bh, lengths_b):
        """The way for a CPU: one matrix product for all inputs, then step by step."""
        n_steps, n_rows, n_in = x_tbe.shape
        gates = self.input(F.reshape(x_tbe, (n_steps * n_rows, n_in)))
        shortest = lengths_b.min()
        h_list = []
        for t, from_input in enumerate(F.split_axis(gates, n_steps, axis=0)):
            c_next, h_next = F.lstm(c_bh, from_input + self.hidden(h_bh))
            if t >= shortest:  # some rows have ended: their state stands still
                goes_on = self.xp.asarray(t < lengths_b)[:, None]
                c_next = F.where(goes_on, c_next, c_bh)
                h_next = F.where(goes_on, h_next, h_bh)
            c_bh, h_bh = c_next, h_next
            h_list.append(h_bh)
        return F.stack(h_list), h_bh, c_bh

    def run_fused(self, x_tbe, h_bh, c_bh, lengths_b):
        """The way for a GPU: one call for all steps; the longest row comes first, no padding.

        So the real steps are gathered, row by falling length, and the answers are put back in
        place.
        """
        n_steps, n_rows, n_in = x_tbe.shape
        order = np.argsort(-lengths_b, kind="stable")
        rows_per_step = [int((lengths_b > t).sum()) for t in range(lengths_b.max())]
        real = np.concatenate([t * n_rows + order[:n] for t, n in enumerate(rows_per_step)])
        x = self._take(F.reshape(x_tbe, (n_steps * n_rows, n_in)), real)
        h, c, hs = F.n_step_lstm(
            1,
            0.0,
            self._take(h_bh, order)[None],
            self._take(c_bh, order)[None],
            *self._cudnn_weights(),
            F.split_axis(x, np.cumsum(rows_per_step)[:-1], axis=0),
        )
        place = np.argsort(order)  # where row b stands in the sorted batch
        where = np.tile(len(real) + place, (n_steps, 1))  # by default: the row's last state
        where.ravel()[real] = np.arange(len(real))
        h_tbh = self._take(F.concat([*hs, h[0]], axis=0), where)
        return h_tbh, self._take(h[0], place), self._take(c[0], place)

    def _take(self, x, index):
        return F.get_item(x, self.xp.asarray(index))

    def _cudnn_weights(self):
        """Eight matrices and eight biases, cuDNN's order: i, f, a, o for x, then for h."""
        n_hidden = self.hidden.W.shape[1]
        w, u, b = (
            F.reshape(p, (n_hidden, 4, *p.shape[1:]))
            for p in (self.input.W, self.hidden.W, self.input.b)
        )
        gates = (I, FORGET, A, O)
        zero = self.xp.zeros(n_hidden, dtype=self.input.b.dtype)
        matrices = [w[:, g] for g in gates] + [u[:, g] for g in gates]
        return [matrices], [[b[:, g] for g in gates] + [zero] * 4]
