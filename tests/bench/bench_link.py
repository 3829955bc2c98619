"""Predicted and measured: five plans over an emulated link, under the real backward of two models.

    OMP_NUM_THREADS=1 python tests/bench/bench_link.py [--rounds 15] [--model cnn]

How it is measured stands in allhands/train/race.py. Prints a table for each model, the median of
the absolute errors over all of them, and whether the optimum was the fastest. Exit code 1 if that
median is above 5 %, or the optimum is not the fastest of the five (within 3 %)."""

import argparse
import statistics
import sys

import numpy as np

from allhands.data.batch import collate
from allhands.model.deep_cnn import deep_cnn, images
from allhands.model.seq2seq import ModelSize
from allhands.model.seq2seq_torch import TorchSeq2Seq
from allhands.train.race import Case, race

LIMIT = 0.05
EQUAL = 0.03


def cnn() -> Case:
    x_bchw = images(8)
    return Case(deep_cnn(), lambda model: model(x_bchw).logsumexp(dim=1).sum())


def seq2seq() -> Case:
    """The translator of lab 1, larger: few gradients, with most of the bytes in three of them."""
    model = TorchSeq2Seq(ModelSize(8000, 8000, 256, 512), seed=0)
    numbers = np.random.default_rng(0)
    pairs = [tuple(numbers.integers(4, 8000, size=20).tolist() for _ in "st") for _ in range(16)]
    batch = collate(pairs)
    return Case(model, lambda model: model.loss(batch))


MODELS = {"cnn": cnn, "seq2seq": seq2seq}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", choices=MODELS, action="append")
    asked = parser.parse_args()
    errors, fastest = [], True
    for name in asked.model or MODELS:
        result = race(MODELS[name](), asked.rounds)
        gradients, cost = result.gradients, result.cost
        print(
            f"{name}: {len(gradients)} gradients, {gradients.total_bytes / 2**20:.1f} MiB, "
            f"backward {1e3 * gradients.compute_s:.1f} ms; start-up {1e3 * cost.startup_s:.2f} ms, "
            f"all bytes {1e3 * cost.s_per_byte * gradients.total_bytes:.1f} ms"
        )
        print(result)
        times_s = {one.name: one.measured_s for one in result.outcomes}
        errors += [abs(one.error) for one in result.outcomes]
        fastest &= times_s["optimum"] <= (1.0 + EQUAL) * min(times_s.values())
    error = statistics.median(errors)
    print(f"median error {error:.1%}; optimum {'' if fastest else 'not '}the fastest")
    return 0 if error <= LIMIT and fastest else 1


if __name__ == "__main__":
    sys.exit(main())
