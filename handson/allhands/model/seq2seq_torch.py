"""The same translator in PyTorch: same sizes, same parameters, same numbers as seq2seq.Seq2Seq.

It stands beside the Chainer model for two reasons: labs that need PyTorch have a model to start
from, and two independent implementations that agree on loss and gradients are a strong test of
both.

Conventions: shapes as in seq2seq.py (b sentence, s source time, t target time, h hidden unit, v
target vocabulary). PyTorch stacks the gates in blocks, i, f, g (candidate), o; Chainer puts the
four gates of a unit side by side, a (candidate), i, f, o. `copy_weights` turns one into the other.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from allhands.data.batch import Batch
from allhands.data.vocab import PAD
from allhands.model.lstm import FORGET, A, I, O
from allhands.model.seq2seq import NEVER, ModelSize, Seq2Seq

TORCH_GATES = [I, FORGET, A, O]  # where Chainer keeps PyTorch's gates i, f, g, o


@dataclass(frozen=True)
class TorchState:
    """All that the decoder knows before its next token. Every field has one row per sentence."""

    h_bh: torch.Tensor
    c_bh: torch.Tensor
    encoded_bsh: torch.Tensor
    keys_bsh: torch.Tensor
    is_token_bs: torch.Tensor

    def select(self, rows) -> "TorchState":
        """The state of the given rows, in that order. A row may come more than once."""
        index = torch.as_tensor(np.asarray(rows), device=self.h_bh.device)
        return TorchState(*(getattr(self, field.name)[index] for field in fields(self)))


class TorchSeq2Seq(nn.Module):
    """LSTM encoder-decoder with attention. The same seed gives the same values as Seq2Seq.

    nn.LSTM has two biases that are only ever added; the second is fixed at 0, so that both models
    have the same parameters.
    """

    def __init__(self, size: ModelSize, *, seed: int) -> None:
        super().__init__()
        self.size = size
        n_embed, n_hidden = size.n_embed, size.n_hidden
        with torch.random.fork_rng(devices=[]):  # PyTorch's own start values are thrown away
            self.source_embed = nn.Embedding(size.n_source, n_embed)
            self.encoder = nn.LSTM(n_embed, n_hidden, batch_first=True)
            self.target_embed = nn.Embedding(size.n_target, n_embed)
            self.decoder = nn.LSTM(n_embed, n_hidden, batch_first=True)
            self.key = nn.Linear(n_hidden, n_hidden, bias=False)
            self.combine = nn.Linear(2 * n_hidden, n_hidden)
            self.output = nn.Linear(n_hidden, size.n_target)
        for lstm in (self.encoder, self.decoder):
            nn.init.zeros_(lstm.bias_hh_l0).requires_grad_(False)
        copy_weights(Seq2Seq(size, seed=seed), self)

    def loss(self, batch: Batch) -> torch.Tensor:
        """As Seq2Seq.loss. The batch holds NumPy arrays, or tensors on the model's device."""
        logits_btv = self(batch.source_bt, batch.target_in_bt)
        return masked_loss(logits_btv, self._tokens(batch.target_out_bt))

    def forward(self, source_bt, target_in_bt) -> torch.Tensor:
        """Logits (B, T, V) of the next token after each token of `target_in_bt`."""
        return self.decode(self.encode(source_bt), target_in_bt)[0]

    def encode(self, source_bt) -> TorchState:
        source_bt = self._tokens(source_bt)
        is_token_bs = source_bt != PAD
        packed = pack_padded_sequence(
            self.source_embed(source_bt),
            is_token_bs.sum(dim=1).cpu(),
            batch_first=True,
            enforce_sorted=False,
        )
        packed, (h_1bh, c_1bh) = self.encoder(packed)
        encoded_bsh, _ = pad_packed_sequence(
            packed, batch_first=True, total_length=source_bt.shape[1]
        )
        return TorchState(h_1bh[0], c_1bh[0], encoded_bsh, self.key(encoded_bsh), is_token_bs)

    def decode(self, state: TorchState, target_in_bt) -> tuple[torch.Tensor, TorchState]:
        h_bth, after = self._run_decoder(state, target_in_bt)
        context_bth = self.attend(state, h_bth) @ state.encoded_bsh
        both = torch.cat([context_bth, h_bth], dim=2)
        return self.output(torch.tanh(self.combine(both))), after

    def attend(self, state: TorchState, h_bth: torch.Tensor) -> torch.Tensor:
        """Attention weights (B, T, S); each row sums to 1 and is 0 over PAD."""
        score_bts = h_bth @ state.keys_bsh.transpose(1, 2)
        return torch.softmax(score_bts.masked_fill(~state.is_token_bs[:, None], NEVER), dim=2)

    @torch.no_grad()
    def start(self, source_bt) -> TorchState:
        """The state before the first token."""
        return self.encode(source_bt)

    @torch.no_grad()
    def step(self, state: TorchState, token_b) -> tuple[TorchState, np.ndarray]:
        """Take the last token of each sentence, (B,); return the next state and log_prob_bv."""
        logits_btv, after = self.decode(state, self._tokens(token_b)[:, None])
        log_prob_bv = torch.log_softmax(_full_precision(logits_btv[:, 0]), dim=1)
        return after, log_prob_bv.cpu().numpy()

    @torch.no_grad()
    def alignment(self, source_bt, target_in_bt) -> np.ndarray:
        """The attention weights of a whole batch, (B, T, S), as a NumPy array: for drawing."""
        state = self.start(source_bt)
        h_bth, _ = self._run_decoder(state, target_in_bt)
        return self.attend(state, h_bth).cpu().numpy()

    def _run_decoder(self, state: TorchState, target_in_bt) -> tuple[torch.Tensor, TorchState]:
        x_bte = self.target_embed(self._tokens(target_in_bt))
        before = (state.h_bh[None].contiguous(), state.c_bh[None].contiguous())
        h_bth, (h_1bh, c_1bh) = self.decoder(x_bte, before)
        return h_bth, TorchState(
            h_1bh[0], c_1bh[0], state.encoded_bsh, state.keys_bsh, state.is_token_bs
        )

    def _tokens(self, ids) -> torch.Tensor:
        return torch.as_tensor(ids, device=self.output.weight.device, dtype=torch.long)


def masked_loss(logits_btv: torch.Tensor, target_out_bt: torch.Tensor) -> torch.Tensor:
    """Sum of -log p(token) over all tokens that are not PAD, divided by the batch size B."""
    total = nn.functional.cross_entropy(
        _full_precision(logits_btv).flatten(0, 1),
        target_out_bt.flatten(),
        ignore_index=PAD,
        reduction="sum",
    )
    return total / len(target_out_bt)


def copy_weights(chainer_model: Seq2Seq, torch_model: TorchSeq2Seq) -> None:
    """Give the PyTorch model the values of the Chainer model. Both must have the same ModelSize."""
    if chainer_model.size != torch_model.size:
        raise ValueError(
            f"The two models must have the same size: the Chainer model has {chainer_model.size}, "
            f"the PyTorch model has {torch_model.size}."
        )
    arrays = torch_layout({name: param.array for name, param in chainer_model.namedparams()})
    parameters = dict(torch_model.named_parameters())
    with torch.no_grad():
        for name, array in arrays.items():
            parameters[name].copy_(torch.from_numpy(array))


def torch_layout(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Give Chainer's arrays (values or gradients) PyTorch's names and order of gates.

    {"/encoder/input/W": ...} becomes {"encoder.weight_ih_l0": ...}, and so on.
    """
    lstm_names = {"input/W": "weight_ih_l0", "input/b": "bias_ih_l0", "hidden/W": "weight_hh_l0"}
    result = {}
    for name, array in arrays.items():
        link, _, rest = name.strip("/").partition("/")
        if rest in lstm_names:
            by_gate = array.reshape(-1, 4, *array.shape[1:]).swapaxes(0, 1)[TORCH_GATES]
            result[f"{link}.{lstm_names[rest]}"] = by_gate.reshape(array.shape)
        else:
            result[f"{link}.{'bias' if rest == 'b' else 'weight'}"] = array
    return result


def _full_precision(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
