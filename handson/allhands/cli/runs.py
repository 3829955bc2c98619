"""The commands that make a run, and that use what it left: train, translate, summary."""

import math
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from allhands import config as configs
from allhands import launch
from allhands.cli import cores
from allhands.cli.sentences import EXIT_INTERRUPTED, sentences


def train(
    preset: Annotated[str, typer.Argument(help=f"One of: {', '.join(configs.PRESETS)}.")],
    out: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The run's folder. Default: runs/PRESET/<date>-<time>."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest snapshot in --out, if any.")
    ] = False,
    stop_after: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Save and exit with code 85 after this time."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, @numpy or @cupy:0. Default: the preset's.")
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Start N ranks on this machine. Under mpiexec or srun, leave it out.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
) -> None:
    """Train a translator and write its run folder.

    Own text: `--set train=pairs.tsv --set valid=dev.en:dev.ja --set test=test.tsv.gz`.
    Every setting is in the run's `config.json`. Ctrl-C saves and stops after the update or
    evaluation under way; a second Ctrl-C ends at once.

    `allhands train lab2_cpu --ranks 2` trains on two ranks of this machine, and
    `mpiexec -n 2 allhands train lab2_cpu` (or srun) on those that the launcher starts.
    """
    from allhands.train import parallel, parallel_job, run
    from allhands.train.stop import EXIT_STOPPED, INTERRUPTED

    rank, started = launch.place()
    with sentences(says=rank == 0):
        changes = list(settings or []) + ([f"device={device}"] if device else [])
        config = configs.override(configs.preset(preset), changes)
        if resume and out is None:
            raise ValueError("--resume needs the run's folder: give --out DIR.")
        if stop_after is not None and not stop_after > 0:
            raise ValueError(f"--stop-after takes seconds greater than 0, saw {stop_after}.")
        if out is not None and not out.strip():
            raise ValueError("--out names the run's folder, and it is empty: give --out DIR.")
        options = [f"--stop-after={stop_after:g}"] if stop_after is not None else []
        options += [f"--set={change}" for change in changes]
        if ranks is not None:
            configs.on_ranks(config, ranks)
            cores.fit(ranks)
            asked = [f"--out={out}"] * (out is not None) + ["--resume"] * resume
            code = parallel_job.on_this_machine(["train", preset, *asked, *options], ranks)
            raise typer.Exit(code)
        config, comm = parallel_job.join(config, started)
        first = comm.rank == 0
        folder = parallel.of_first(Path(out or run.new_folder(preset)), comm)
        again = ["allhands", "train", preset, f"--out={folder}", "--resume", *options]
        how = "To go on"
        if launch.is_ours():
            again.append(f"--ranks={started}")
        elif started > 1:
            how += f", on {started} ranks"
        say = typer.echo if first else lambda *_, **__: None
        say(f"run folder: {folder}")
        try:
            with parallel_job.nobody_waits(comm):
                result = run.train(
                    config, folder, resume=resume, stop_after_s=stop_after, comm=comm
                )
        except KeyboardInterrupt:
            say(f"Interrupted. {how}: {shlex.join(again)}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except FloatingPointError as error:
            say(f"allhands: {error}", err=True)
            raise typer.Exit(1) from error
    if not result.finished:
        say(f"{how}: {shlex.join(again)}")
        raise typer.Exit(EXIT_INTERRUPTED if result.reason == INTERRUPTED else EXIT_STOPPED)


def translate(
    folder: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Sentences. None: one a line from standard input.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Beam width; 1 is greedy. Default: the run's.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, @numpy or @cupy:0.")] = "@numpy",
) -> None:
    """Translate with the model that a run left."""
    from allhands.train.translator import Translator

    with sentences():
        translator = Translator.load(folder, device)
        for text in texts or map(str.strip, sys.stdin):
            typer.echo(translator.translate([text], beam)[0])


def summary(
    folder: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
) -> None:
    """Show where a run's time went and how its loss fell."""
    from allhands.trace import events
    from allhands.trace import summary as numbers

    with sentences():
        metrics = numbers.read_metrics(folder)
        path = folder / "events.rank0.jsonl"
        spans = events.read_events(path) if path.exists() else []  # a young run has none yet
    table = Table("work", "time (s)", "share", "count", title=str(folder), title_justify="left")
    for spent in numbers.time_by(spans):
        table.add_row(spent.label, f"{spent.total_s:.2f}", f"{spent.share:.1%}", str(spent.count))
    console = Console()
    console.print(table)
    for line in metrics.evaluations:
        console.print(
            f"update {line['update']}: validation loss {line['valid_loss']:.3f}, exact match "
            f"{line.get('valid_exact_match', math.nan):.1f} %, "
            f"BLEU {line.get('valid_bleu', math.nan):.1f}",
            highlight=False,
        )
