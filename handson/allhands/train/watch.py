"""What a run writes down while it runs: metrics, events, snapshots, and a log for people."""

import json
import traceback
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path

import chainer
from chainer.training import extension
from rich.console import Console

from allhands.data.corpus import Pair
from allhands.trace.events import Recorder, read_events, write_events
from allhands.trace.summary import read_metrics_lines
from allhands.train import parallel, snapshot
from allhands.train.alone import ALONE
from allhands.train.translator import Evaluation, Translator


class Log:
    """Says a sentence on the console and, with the time, in the run's `log` (if there is one)."""

    def __init__(self, path: Path | None, console: Console) -> None:
        self._path = path
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)
        self.note(text)

    def note(self, text: str) -> None:
        """Write to the file alone."""
        if self._path is None:
            return
        with snapshot.writing(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(f"{datetime.now().isoformat(timespec='seconds')} {text}\n")


class WriteMetrics(extension.Extension):
    """`metrics.jsonl`: one line for each update (loss per token, learning rate, time)."""

    trigger = (1, "iteration")
    priority = extension.PRIORITY_READER
    name = "write_metrics"

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, trainer: chainer.training.Trainer) -> None:
        self.write(
            update=trainer.updater.iteration,
            epoch=trainer.updater.epoch_detail,
            loss=trainer.observation["loss"],
            n_tokens=trainer.observation["n_tokens"],
            learning_rate=trainer.updater.get_optimizer("main").alpha,
            **_given(trainer.observation, "loss_scale"),
            elapsed_s=trainer.elapsed_time,
        )

    def write(self, **values: float) -> None:
        """Append one line at once, so that a killed run leaves all that it measured."""
        with snapshot.writing(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def _given(observation: dict[str, float], name: str) -> dict[str, float]:
    return {name: observation[name]} if name in observation else {}


class Evaluate(extension.Extension):
    """Translate the validation pairs and write down loss, exact match, BLEU and chrF.

    On several ranks each translates its share of the pairs, and the one that has `metrics` writes.
    """

    priority = extension.PRIORITY_EDITOR
    name = "evaluate"

    def __init__(
        self,
        translator: Translator,
        pairs: list[Pair],
        metrics: WriteMetrics | None,
        recorder: Recorder,
        log: Log,
        comm=ALONE,
    ) -> None:
        self._translator, self._pairs, self._comm = translator, pairs, comm
        self._metrics, self._recorder, self._log = metrics, recorder, log

    def __call__(self, trainer: chainer.training.Trainer) -> None:
        with self._recorder.span("evaluate"):
            found = shared_evaluation(self._translator, self._pairs, self._comm)
        if self._metrics is None:
            return
        update = trainer.updater.iteration
        self._metrics.write(update=update, **in_columns("valid", found))
        self._log.say(f"update {update}: validation: {in_words(found)}")


def shared_evaluation(translator: Translator, pairs: Iterable[Pair], comm=ALONE) -> Evaluation:
    """Evaluate `pairs`, each rank its share: the figures of all pairs, the same on all ranks.

    They are made of summed counts. Raises FloatingPointError, on all ranks, for a spoilt model.
    """
    if comm is ALONE:
        return translator.evaluate(pairs)
    mine = islice(pairs, comm.rank, None, comm.size)
    return Evaluation.of(parallel.total(translator.count(mine), comm))


class Flush(extension.Extension):
    """Write the events so far, on a rank that saves nothing else"""

    priority = extension.PRIORITY_READER - 1
    name = "save"

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __call__(self, trainer: chainer.training.Trainer) -> None:
        flush(self._recorder)


class Save(extension.Extension):
    """Write the events so far, then a snapshot of the whole trainer."""

    priority = extension.PRIORITY_READER - 1  # after the metrics of the same update
    name = "save"

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self._folder, self._recorder = folder, recorder

    def __call__(self, trainer: chainer.training.Trainer) -> None:
        with self._recorder.span("snapshot"):
            snapshot.save(self._folder, trainer)
        flush(self._recorder)


def flush(recorder: Recorder) -> None:
    """Write the events so far; an OSError is a sentence with the file's name."""
    with snapshot.writing(recorder.path):
        recorder.flush()


def in_columns(prefix: str, found: Evaluation) -> dict[str, float]:
    """Return an evaluation as the columns of a metrics line."""
    return {
        f"{prefix}_loss": found.loss_per_token,
        f"{prefix}_exact_match": found.quality.exact_match,
        f"{prefix}_bleu": found.quality.bleu,
        f"{prefix}_chrf": found.quality.chrf,
    }


def in_words(found: Evaluation) -> str:
    quality = found.quality
    return (
        f"loss {found.loss_per_token:.3f}, exact match {quality.exact_match:.1f} %, "
        f"BLEU {quality.bleu:.1f}, chrF {quality.chrf:.1f}"
    )


def forget_metrics_after(folder: Path, update: int) -> None:
    """Drop the metrics later than `update`.

    A run that was killed wrote them after its newest snapshot; a resumed run does them again.
    """
    metrics = folder / "metrics.jsonl"
    metrics.touch()
    kept = [line for line in read_metrics_lines(metrics) if line["update"] <= update]
    snapshot.write_text(metrics, "".join(json.dumps(line) + "\n" for line in kept))


def forget_events_after(path: Path, update: int) -> float:
    """Drop a rank's events later than `update`; return when the last one left ended, in s."""
    if not path.exists():
        return 0.0
    events = [event for event in read_events(path) if event.step <= update]
    write_events(path, events)
    return max((event.end_s for event in events), default=0.0)


def note_failure(log: Log, recorder: Recorder, folder: Path, error: BaseException) -> None:
    """Write down the events and the traceback if the disk has room, and say how to go on."""
    with suppress(OSError):
        log.note("".join(traceback.format_exception(error)).rstrip())
        recorder.flush()
    snapshots = snapshot.find(folder)
    left = f"the newest snapshot is {snapshots[-1].name}" if snapshots else "there is no snapshot"
    with suppress(OSError):
        log.say(f"The run ended before its time ({type(error).__name__}); {left} in {folder}.")
