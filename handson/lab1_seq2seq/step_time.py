"""How long does a training step take, and how much memory, for which batch size and model size?

    python handson/lab1_seq2seq/step_time.py
    python handson/lab1_seq2seq/step_time.py --batch 16 64 256 --hidden 128 512 --device @cupy:0

Times are medians over --steps steps, the first three left out. Edit it: what else changes the time?
"""

import argparse
import dataclasses
import resource
from pathlib import Path

from rich.console import Console
from rich.table import Table

from allhands import config as configs
from allhands.trace.events import Recorder
from allhands.trace.summary import median_step_s
from allhands.train.build import build, open_corpus
from allhands.train.recorder import device_clock
from allhands.train.translator import Translator

WARM_UP = 3


def measure(config: configs.TrainConfig, n_steps: int) -> tuple[float, float]:
    """Return seconds a step and target tokens a second."""
    corpus = open_corpus(config)
    translator = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
    recorder = Recorder(clock=device_clock(translator.device))
    stop = (n_steps + WARM_UP, "iteration")
    updater = build(config, translator, corpus.train, recorder, stop, Path()).updater
    while updater.iteration < n_steps + WARM_UP:
        updater.update()
    step_s = median_step_s(recorder.events, warm_up=WARM_UP)
    tokens = corpus.train.target_lengths.mean() + 1
    return step_s, config.batch_size * tokens / step_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--hidden", type=int, nargs="+", default=[128])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    table = Table("hidden", "batch", "ms a step", "tokens/s", "peak memory (MiB)")
    for hidden in options.hidden:
        for batch in options.batch:
            config = dataclasses.replace(
                configs.lab1_cpu(), n_hidden=hidden, batch_size=batch, device=options.device
            )
            step_s, speed = measure(config, options.steps)
            peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            table.add_row(
                str(hidden), str(batch), f"{1e3 * step_s:.1f}", f"{speed:,.0f}", f"{peak_mib:.0f}"
            )
    Console().print(table)


if __name__ == "__main__":
    main()
