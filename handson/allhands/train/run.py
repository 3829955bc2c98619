"""A training run from its config to its folder, and its continuation.

The folder `runs/<preset>/<time>/` holds all that the run says; every other program reads it there:

    config.json                 the run, complete
    source.vocab, target.vocab  one token a line
    metrics.jsonl               a line an update (loss per token), and a line an evaluation
    events.rank0.jsonl          how long each part of each step took; a file a rank
    facts.rank0.json            its cores, threads, and share of the pairs; a file a rank
    snapshot_iter_N             the newest two; `--resume` goes on from the newest
    model.npz, result.json      the end: parameters, and quality on the test pairs
    log                         what was said on the way
    lock                        keeps the folder for one process at a time

On several ranks, rank 0 alone reads and writes the folder, but for the events. Its snapshot is
that of all: parameters and optimizer are equal, and a rank's place in its own pairs is the same
number. So a run goes on exactly, on as many ranks as it began with. Another number is refused, at
an epoch's border too: the ranks share out the pairs, and they decide how many steps an epoch has,
and the learning rate. (With double buffering one gradient is on its way when a run stops: that one
is lost.)
"""

import json
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import chainer
import numpy as np
from rich.console import Console

from allhands import config as configs
from allhands.config import TrainConfig
from allhands.data.corpus import read_pairs
from allhands.data.vocab import Vocab
from allhands.doctor.machine import Machine
from allhands.trace import facts
from allhands.trace.events import Recorder
from allhands.train import lock, parallel, snapshot, watch
from allhands.train.alone import ALONE
from allhands.train.build import Corpus, build, n_updates, open_corpus
from allhands.train.parallel_job import AllRefuse, together
from allhands.train.parallel_parts import device_for, digest
from allhands.train.progress import ShowProgress
from allhands.train.recorder import RecordedCommunicator, common_recorder, device_clock
from allhands.train.stop import StopTrigger
from allhands.train.translator import Evaluation, Translator


@dataclass(frozen=True)
class Result:
    """How a run ended: `finished`, or stopped and saved for `reason`. `test` only if finished."""

    folder: Path
    finished: bool
    reason: str | None
    n_updates: int
    test: Evaluation | None = None


def new_folder(preset: str, root: Path = Path("runs")) -> Path:
    """Name a folder for a new run: runs/<preset>/<date>-<time>."""
    return root / preset / datetime.now().strftime("%Y%m%d-%H%M%S")


def train(
    config: TrainConfig,
    folder: Path,
    *,
    resume: bool = False,
    stop_after_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    console: Console | None = None,
    comm=ALONE,
) -> Result:
    """Run `config` in `folder` to its end, or until `stop_after_s` or a signal stops it.

    With `resume`, go on from the newest snapshot in `folder`, or start if there is none. The time
    limit counts from this call; SIGINT, SIGTERM and SIGUSR1 ask for the same orderly stop. On
    several ranks each calls this with its `comm` (see `parallel_job.join`), and one rank's signal
    or clock stops all.

    Raises ValueError, before anything is written, if the folder holds another run, and
    CorpusError (a ValueError) for text that cannot be read. Raises ValueError too if another
    process trains in the folder, or if a file that it holds is damaged.
    """
    config = configs.on_ranks(config, comm.size)
    stop = StopTrigger(config.epochs, stop_after_s, clock, comm)
    start = (time.perf_counter(), time.process_time())
    first = parallel.speaks(comm)
    console = console if console and first else Console(quiet=not first)
    vocabs = n_done = None
    with together(comm):
        if first:
            vocabs = _look_into(folder, config, resume)
            if vocabs and (folder / "result.json").exists():
                n_done = _n_updates_of(folder / "result.json")
    vocabs, n_done = parallel.of_first((vocabs, n_done), comm)
    if n_done is not None:
        console.print(f"The run in {folder} is finished: nothing to resume.", highlight=False)
        return Result(folder, True, None, n_done)
    with together(comm):
        corpus = open_corpus(config, vocabs)
        device = device_for(config.device, comm)
        on_device = replace(config, device=device)
        translator = Translator.new(on_device, corpus.source_vocab, corpus.target_vocab)
    _agree_on(corpus, comm)
    with ExitStack() as holding:
        with together(comm):
            folder.mkdir(parents=True, exist_ok=True)
            if first:
                holding.enter_context(lock.held(folder))
                with snapshot.writing(folder):
                    corpus.source_vocab.save(folder / "source.vocab")
                    corpus.target_vocab.save(folder / "target.vocab")
                    configs.save(config, folder / "config.json")
        return _run(config, translator, corpus, folder, stop, start, console, comm)


def _run(
    config: TrainConfig,
    translator: Translator,
    corpus: Corpus,
    folder: Path,
    stop: StopTrigger,
    start: tuple[float, float],
    console: Console,
    comm,
) -> Result:
    """Train from the newest snapshot on; `start` is the wall and CPU time of the run's begin."""
    first = parallel.speaks(comm)
    saved = _newest(folder, comm)
    recorder = _recorder(folder, translator, saved[0] if saved else 0, comm)
    last = n_updates(config, corpus.train)
    log = watch.Log(folder / "log" if first else None, console)
    recorded = comm is not ALONE and not config.double_buffering
    speaker = RecordedCommunicator(comm, recorder) if recorded else comm
    trainer = build(config, translator, corpus.train, recorder, stop, folder, speaker)
    _write_facts(folder, config, trainer, corpus, comm)
    metrics = watch.WriteMetrics(folder / "metrics.jsonl") if first else None
    save = watch.Save(folder, recorder) if first else watch.Flush(recorder)
    trainer.extend(
        watch.Evaluate(translator, corpus.valid, metrics, recorder, log, comm),
        trigger=(min(config.evaluate_every, last), "iteration"),
    )
    trainer.extend(save, trigger=(config.snapshot_every, "iteration"))
    if first:
        trainer.extend(metrics)
        trainer.extend(ShowProgress(last, console))
    if saved:
        path = folder / f"snapshot_iter_{saved[0]}"
        with together(comm):
            snapshot.load(path, trainer, saved[1])
        log.say(f"resume from {path}")
    if corpus.train.dropped:
        log.say(
            f"{corpus.train.dropped} training pairs are left out: a side is blank, or has more "
            f"than max_length={config.max_length} tokens"
        )
    log.note(f"{config} on {translator.device} with {_versions()}")

    try:
        with stop.on_signals(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            trainer.run(show_loop_exception_msg=False)
            watch.flush(recorder)
            update = trainer.updater.iteration
            if not stop.finished(trainer):
                with together(comm):
                    return _stop(trainer, save, folder, stop.reason, log)
        with together(comm):
            if first:
                snapshot.write_npz(folder / "model.npz", translator.model)
        test = watch.shared_evaluation(translator, read_pairs(config.test), comm)
    except BaseException as error:
        watch.note_failure(log, recorder, folder, error)
        raise
    log.say(f"test: {watch.in_words(test)}")
    used = {
        "ranks": comm.size,
        "wall_s": time.perf_counter() - start[0],
        "cpu_s": time.process_time() - start[1],
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    with together(comm):
        if first:
            _write_result(folder, translator, update, test, used)
    return Result(folder, True, None, update, test)


def _write_facts(folder: Path, config: TrainConfig, trainer, corpus: Corpus, comm) -> None:
    """Write what this rank knows, and its events do not say: `facts.rankN.json`."""
    n_held_out = len(corpus.valid)
    mine = facts.Facts(
        rank=comm.rank,
        ranks=comm.size,
        **facts.here(Machine().cores()),
        batch_size=config.batch_size,
        n_samples=len(corpus.train),
        n_mine=len(trainer.updater.get_iterator("main").store),
        n_held_out=n_held_out,
        n_held_out_mine=len(range(comm.rank, n_held_out, comm.size)),
    )
    with together(comm), snapshot.writing(folder):
        facts.write(folder, mine)


def _newest(folder: Path, comm) -> tuple[int, bytes] | None:
    """Read the newest snapshot on rank 0: its update and its content, on all ranks."""
    found = None
    with together(comm):
        if parallel.speaks(comm) and (paths := snapshot.find(folder)):
            found = snapshot.number(paths[-1]), paths[-1].read_bytes()
    return parallel.of_first(found, comm)


def _recorder(folder: Path, translator: Translator, update: int, comm) -> Recorder:
    """Return the recorder of this rank, going on after `update`; all ranks have one clock."""
    path = folder / f"events.rank{comm.rank}.jsonl"
    with together(comm):
        if parallel.speaks(comm):
            watch.forget_metrics_after(folder, update)
        left_s = watch.forget_events_after(path, update)
    left_s = max(parallel.of_all(left_s, comm))
    clock = device_clock(translator.device)
    if comm is not ALONE:
        left_s += common_recorder(comm, clock).now_s()
    return Recorder(comm.rank, clock, path, start_s=left_s)


def _agree_on(corpus: Corpus, comm) -> None:
    """Raise AllRefuse if a rank has read other text than rank 0, or if the pairs are too few."""
    mine = len(corpus.train), digest(corpus.source_vocab), digest(corpus.target_vocab)
    read = parallel.of_all(mine, comm)
    others = [rank for rank, seen in enumerate(read) if seen != read[0]]
    if others:
        raise AllRefuse(
            f"Rank {others[0]} has read other training pairs than rank 0 "
            f"({read[others[0]][0]} and {read[0][0]}, or with other words). Put the same files on "
            f"all nodes."
        )
    if len(corpus.train) < comm.size:
        raise AllRefuse(
            f"{len(corpus.train)} training pairs are too few for {comm.size} ranks: each needs "
            f"one. Start fewer ranks, or give more text."
        )


def _stop(trainer, save: watch.Save, folder: Path, reason: str, log: watch.Log) -> Result:
    """Save an unfinished run; before the first update there is nothing to go on from."""
    update = trainer.updater.iteration
    if update > 0:
        save(trainer)
        log.say(f"stopped at update {update}, and saved: {reason}")
    else:
        log.say(f"stopped before the first update, so nothing was saved yet: {reason}")
    return Result(folder, False, reason, update)


def _look_into(folder: Path, config: TrainConfig, resume: bool) -> tuple[Vocab, Vocab] | None:
    """Refuse a folder that this run must not write to; return the vocabularies of a resumed run."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"The run's folder {folder} is a file. Give another --out.")
    if not (folder / "config.json").exists():
        traces = _traces(folder) if folder.exists() else []
        if not traces:
            return None
        if not resume:
            raise ValueError(
                f"{folder} holds {', '.join(traces)} of a run whose config.json is "
                f"missing. Give --resume and the settings of that run to go on, or another --out."
            )
        return _vocabs(folder)
    if not resume:
        raise ValueError(
            f"{folder} already holds a run. Give --resume to go on with it, or another --out."
        )
    begun = configs.load(folder / "config.json")
    if begun.ranks != config.ranks:
        raise ValueError(
            f"{folder} holds a run on {begun.ranks} rank{'s' * (begun.ranks > 1)}, and "
            f"{config.ranks} came up. The ranks share out the pairs and decide the learning rate, "
            f"so a run goes on with as many: start {begun.ranks}, or give another --out."
        )
    changed = configs.differences(begun, config)
    changed = [line for line in changed if not line.startswith(("device:", "test:"))]
    if changed:
        raise ValueError(
            f"{folder} holds a run with other settings ({'; '.join(changed)}). Resume it with the "
            f"settings that it began with, or give another --out."
        )
    return _vocabs(folder)


def _vocabs(folder: Path) -> tuple[Vocab, Vocab]:
    return Vocab.load(folder / "source.vocab"), Vocab.load(folder / "target.vocab")


def _traces(folder: Path) -> list[str]:
    """Name the files that a run was in `folder`."""
    paths = [folder / "metrics.jsonl", folder / "model.npz", *snapshot.find(folder)]
    return [path.name for path in paths if path.exists()]


def _write_result(
    folder: Path, translator: Translator, update: int, test: Evaluation, used: dict[str, float]
) -> None:
    result = {
        "preset": translator.config.preset,
        "seed": translator.config.seed,
        "n_updates": update,
        "n_parameters": int(sum(p.size for p in translator.model.params())),
        **watch.in_columns("test", test),
        **used,
        "device": str(translator.device),
        "machine": platform.machine(),
        "versions": _versions(),
        "finished_at": datetime.now().isoformat(timespec="seconds"),
    }
    snapshot.write_text(folder / "result.json", json.dumps(result, indent=2) + "\n")


def _n_updates_of(path: Path) -> int:
    """Read from a `result.json` how many updates the finished run made."""
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["n_updates"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} is not the result of a run. Remove it, and give --resume to write it anew "
            f"from the newest snapshot."
        ) from error


def _versions() -> dict[str, str]:
    python = ".".join(map(str, sys.version_info[:3]))
    return {"python": python, "numpy": np.__version__, "chainer": chainer.__version__}
