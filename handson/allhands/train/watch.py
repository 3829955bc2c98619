"""What a run writes down while it runs: metrics, events, snapshots, and a log for people."""

import json
import traceback
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import chainer
from chainer.training import extension
from rich.console import Console

from allhands.data.corpus import Pair
from allhands.trace.events import Recorder, read_events, write_events
from allhands.trace.summary import read_metrics_lines
from allhands.train import snapshot
from allhands.train.translator import Evaluation, Translator


class Log:
    """Says a sentence on the console and, with the time, in the run's `log`."""

    def __init__(self, path: Path, console: Console) -> None:
        self._path = path
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)
        self.note(text)

    def note(self, text: str) -> None:
        """Write to the file alone."""
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
            elapsed_s=trainer.elapsed_time,
        )

    def write(self, **values: float) -> None:
        """Append one line at once, so that a killed run leaves all that it measured."""
        with snapshot.writing(self._path), open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


class Evaluate(extension.Extension):
    """Translate the validation pairs and write down loss, exact match, BLEU and chrF."""

    priority = extension.PRIORITY_EDITOR
    name = "evaluate"

    def __init__(
        self,
        translator: Translator,
        pairs: list[Pair],
        metrics: WriteMetrics,
        recorder: Recorder,
        log: Log,
    ) -> None:
        self._translator, self._pairs = translator, pairs
        self._metrics, self._recorder, self._log = metrics, recorder, log

    def __call__(self, trainer: chainer.training.Trainer) -> None:
        with self._recorder.span("evaluate"):
            found = self._translator.evaluate(self._pairs)
        update = trainer.updater.iteration
        self._metrics.write(update=update, **in_columns("valid", found))
        self._log.say(f"update {update}: validation: {in_words(found)}")


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


def forget_after(folder: Path, update: int) -> float:
    """Drop metrics and events later than `update`; return when the last event left ended, in s.

    A run that was killed wrote them after its newest snapshot; a resumed run does them again.
    """
    metrics = folder / "metrics.jsonl"
    metrics.touch()
    kept = [line for line in read_metrics_lines(metrics) if line["update"] <= update]
    snapshot.write_text(metrics, "".join(json.dumps(line) + "\n" for line in kept))
    events_path = folder / "events.rank0.jsonl"
    if not events_path.exists():
        return 0.0
    events = [event for event in read_events(events_path) if event.step <= update]
    write_events(events_path, events)
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
