"""What a run says while it runs: a bar on a screen, a line now and then in a job's log.

Both show the loss per token, tokens per second, and the time that is left.
"""

import time
from collections.abc import Callable

import chainer
from chainer.training import extension
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINES_IN_A_LOG = 10


class ShowProgress(extension.Extension):
    """A progress bar if `console` is a terminal or a notebook, else about ten lines a run."""

    trigger = (1, "iteration")
    priority = extension.PRIORITY_READER
    name = "show_progress"

    def __init__(
        self, n_updates: int, console: Console, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._n_updates = n_updates
        self._console = console
        self._clock = clock
        self._every = max(1, n_updates // LINES_IN_A_LOG)
        self._live = console.is_terminal or console.is_jupyter
        self._bar: Progress | None = None

    def initialize(self, trainer: chainer.training.Trainer) -> None:
        self._first_update, self._start_s = trainer.updater.iteration, self._clock()
        self._n_tokens = 0
        if self._live:
            self._bar = Progress(
                TextColumn("epoch {task.fields[epoch]}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]:.3f} · {task.fields[speed]:,.0f} tokens/s ·"),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                console=self._console,
            )
            self._task = self._bar.add_task(
                "", total=self._n_updates, completed=self._first_update,
                epoch=trainer.updater.epoch + 1, loss=float("nan"), speed=0.0,
            )  # fmt: skip
            self._bar.start()

    def __call__(self, trainer: chainer.training.Trainer) -> None:
        update, loss = trainer.updater.iteration, trainer.observation["loss"]
        self._n_tokens += trainer.observation["n_tokens"]
        elapsed_s = max(self._clock() - self._start_s, 1e-9)
        speed = self._n_tokens / elapsed_s
        if self._bar is not None:
            epoch = int(trainer.updater.epoch_detail) + 1
            self._bar.update(self._task, completed=update, loss=loss, speed=speed, epoch=epoch)
        elif update % self._every == 0 or update == self._n_updates:
            left_s = (self._n_updates - update) * elapsed_s / (update - self._first_update)
            self._console.print(
                f"update {update}/{self._n_updates} · epoch {trainer.updater.epoch_detail:.1f} · "
                f"loss {loss:.3f} · {speed:,.0f} tokens/s · {left_s:.0f} s left"
            )

    def finalize(self) -> None:
        if self._bar is not None:
            self._bar.stop()
