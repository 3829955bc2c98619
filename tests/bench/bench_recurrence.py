"""How fast is one training step of the translator, and what does each way of the recurrence cost?

    OMP_NUM_THREADS=1 python tests/bench/bench_recurrence.py [--rounds 15]

Prints medians in milliseconds of CPU time, and ratios, of one run on this machine. The cases take
turns in each round, so that a busy machine slows all of them alike.

- layer: forward and backward of one LSTM layer (batch 64, 128 units, 12 steps), three ways:
  unrolled with the input half in one product (LSTMLayer.run_unrolled), the same weights through
  F.n_step_lstm (LSTMLayer.run_fused, here on the CPU), and Chainer's own link L.NStepLSTM.
- step: loss, backward and Adam of the whole translator, with the layers run either way, and the
  same of its PyTorch twin.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import torch

from allhands.data.batch import Batch, collate
from allhands.model.lstm import LSTMLayer
from allhands.model.seq2seq import ModelSize, Seq2Seq
from allhands.model.seq2seq_torch import TorchSeq2Seq

N_ROWS, N_STEPS, N_EMBED, N_HIDDEN = 64, 12, 64, 128
SIZE = ModelSize(n_source=85, n_target=36, n_embed=N_EMBED, n_hidden=N_HIDDEN)


def layer_cases() -> dict[str, Callable[[], None]]:
    layer = LSTMLayer(N_EMBED, N_HIDDEN, rng=np.random.RandomState(0))
    link = L.NStepLSTM(1, N_EMBED, N_HIDDEN, 0.0)
    x_tbe = np.random.RandomState(1).normal(size=(N_STEPS, N_ROWS, N_EMBED)).astype(np.float32)
    zeros_bh = np.zeros((N_ROWS, N_HIDDEN), dtype=np.float32)
    lengths_b = np.full(N_ROWS, N_STEPS)

    def through(run) -> Callable[[], None]:
        def case() -> None:
            layer.cleargrads()
            x = chainer.Variable(x_tbe)
            h_tbh, _, _ = run(x, zeros_bh, zeros_bh, lengths_b)
            F.sum(h_tbh).backward()

        return case

    def through_link() -> None:
        link.cleargrads()
        xs = [chainer.Variable(x) for x in x_tbe.swapaxes(0, 1)]
        _, _, hs = link(None, None, xs)
        F.sum(F.concat(hs, axis=0)).backward()

    return {
        "unrolled": through(layer.run_unrolled),
        "n_step_lstm": through(layer.run_fused),
        "L.NStepLSTM": through_link,
    }


def make_batch() -> Batch:
    """64 pairs of 6 to 12 tokens: of similar length, as the iterator makes its batches."""
    rng = np.random.RandomState(2)
    rows = [rng.randint(6, N_STEPS + 1, size=2) for _ in range(N_ROWS)]
    return collate([(rng.randint(4, 85, n), rng.randint(4, 36, m)) for n, m in rows])


def step_cases() -> dict[str, Callable[[], None]]:
    batch = make_batch()

    def chainer_step(way: str) -> Callable[[], None]:
        model = Seq2Seq(SIZE, seed=0)
        for layer in (model.encoder, model.decoder):
            layer.forward = with_lengths(getattr(layer, way))
        optimizer = chainer.optimizers.Adam(3e-3).setup(model)
        optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(5))
        return lambda: optimizer.update(model.loss, batch)

    twin = TorchSeq2Seq(SIZE, seed=0)
    trained = [p for p in twin.parameters() if p.requires_grad]
    twin_optimizer = torch.optim.Adam(trained, lr=3e-3)

    def torch_step() -> None:
        twin_optimizer.zero_grad()
        twin.loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(trained, 5)
        twin_optimizer.step()

    return {
        "unrolled": chainer_step("run_unrolled"),
        "n_step_lstm": chainer_step("run_fused"),
        "PyTorch": torch_step,
    }


def with_lengths(run) -> Callable:
    def forward(x_tbe, h_bh, c_bh, lengths_b=None):
        if lengths_b is None:
            lengths_b = np.full(x_tbe.shape[1], x_tbe.shape[0])
        return run(x_tbe, h_bh, c_bh, lengths_b)

    return forward


def median_ms(cases: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median CPU milliseconds of each case; the cases take turns, the first two rounds warm up."""
    times_ms: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 2):
        for name, case in cases.items():
            start_s = time.process_time()
            case()
            if number >= 2:
                times_ms[name].append(1e3 * (time.process_time() - start_s))
    return {name: statistics.median(values) for name, values in times_ms.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    for title, cases in (("layer", layer_cases()), ("step", step_cases())):
        medians = median_ms(cases, rounds)
        base = medians["unrolled"]
        for name, value_ms in medians.items():
            print(f"{title:6} {name:12} {value_ms:8.1f} ms   x{value_ms / base:.2f}")


if __name__ == "__main__":
    main()
