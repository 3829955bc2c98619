"""`allhands`: train, translate, look at a run, check the machine, grade a notebook.

Exit codes: 0 good; 1 the answer is no (a failed check, a bad machine, less than full marks where
asked); 2 the command cannot be done as it was given; 85 a run that stopped before its time limit
and is saved; 130 a run that Ctrl-C stopped.
"""

import json
import math
import shlex
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from allhands import config as configs
from allhands import labs, launch

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="The workshop's commands. Start with `allhands doctor`, then `allhands train lab1_cpu`.",
)
EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130


@contextmanager
def _sentences(says: bool = True):
    """Turn what the user can mend into one sentence (of the rank that says it) and exit code 2."""
    try:
        yield
    except BrokenPipeError:  # the reader, such as `head`, has enough: typer ends quietly
        raise
    except MemoryError as error:
        typer.echo(
            f"allhands: the memory of this machine or its GPU is not enough ({error}). Give a "
            f"smaller model or batch, such as --set batch_size=16.",
            err=True,
        )
        raise typer.Exit(EXIT_WRONG_USE) from error
    except (ValueError, OSError, launch.LaunchError) as error:
        if says:
            typer.echo(f"allhands: {error}", err=True)
        raise typer.Exit(EXIT_WRONG_USE) from error


@app.command()
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
    with _sentences(says=rank == 0):
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


@app.command()
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

    with _sentences():
        translator = Translator.load(folder, device)
        for text in texts or map(str.strip, sys.stdin):
            typer.echo(translator.translate([text], beam)[0])


@app.command()
def summary(
    folder: Annotated[Path, typer.Argument(help="A run folder, finished or not.")],
) -> None:
    """Show where a run's time went and how its loss fell."""
    from allhands.trace import events
    from allhands.trace import summary as numbers

    with _sentences():
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


@app.command()
def compare(
    target: Annotated[
        str, typer.Argument(help="A preset, or a file (.py) that defines build(comm).")
    ],
    ranks: Annotated[int, typer.Option(help="How many ranks to compare with one.")],
    steps: Annotated[int, typer.Option(help="Steps to make before parameters are compared.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="End ranks that are not done by then.")
    ] = 60.0,
) -> None:
    """Do N ranks give the answer of one? Say what differs first, and the usual cause.

    Compared are settings, first parameters, samples, a gradient, parameters after some steps, and
    the evaluation. Exit code 0 only if all is equal. Own script: see `allhands.train.parts`.
    """
    from allhands.launch import LaunchError
    from allhands.train.compare import compare as run_comparison

    with _sentences():
        try:
            found = run_comparison(
                target, ranks, steps=steps, settings=settings or [], time_limit_s=time_limit
            )
        except LaunchError as error:
            raise ValueError(error) from error
    typer.echo(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if as_json else str(found))
    if not found.equal:
        raise typer.Exit(1)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Say what this machine has, and what to mend. Exit code 1 if something is broken."""
    from allhands.doctor import exit_code, probe_all, report

    findings = probe_all()
    report(findings, as_json=as_json)
    raise typer.Exit(exit_code(findings))


@app.command()
def grade(
    notebook: Annotated[Path, typer.Argument(help="A participant's notebook (.ipynb).")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where the score goes. Default: NOTEBOOK.score.json.")
    ] = None,
    cell_timeout: Annotated[float, typer.Option(min=1, metavar="SECONDS")] = 600.0,
    full: Annotated[bool, typer.Option("--full", help="Exit code 1 below full marks.")] = False,
) -> None:
    """Run a notebook in a fresh kernel, grade it, and write the score.

    Cells with checks are restored from the course before they run, so edits there do not count.
    """
    from allhands.grade.notebook import grade_notebook, read_submission, try_place

    place = out or notebook.with_suffix(".score.json")
    with _sentences():
        read_submission(notebook)
        try_place(place)
        progress = Console(stderr=True)
        say = partial(progress.print, highlight=False)
        score = grade_notebook(notebook, cell_timeout_s=cell_timeout, say=say)
    if as_json:
        typer.echo(json.dumps(score.as_dict(), indent=2, ensure_ascii=False))
    else:
        _show(score)
    with _sentences():
        score.write(place)
    if full and not score.full:
        raise typer.Exit(1)


def _show(score) -> None:
    table = Table("exercise", "points", "what the check said", show_lines=True)
    for exercise in score.exercises:
        points = f"{exercise.score:g} of {exercise.max:g}"
        table.add_row(exercise.id, points, Text("\n".join(exercise.said)))
    Console().print(table)
    Console().print(f"{score.stem}: {score.score:g} of {score.max:g} points", highlight=False)


@app.command()
def plan(
    trace: Annotated[
        Path, typer.Argument(help="CSV in order of arrival: arrival_index, n_bytes, backward_s.")
    ],
    startup_s: Annotated[float, typer.Option(help="Start-up of one all-reduce, in seconds.")],
    s_per_byte: Annotated[float, typer.Option(help="Time of one more byte, in seconds.")],
    forward_s: Annotated[
        float | None, typer.Option(help="Forward pass. Default: half of the backward pass.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Plan the merging of gradients: what each strategy would take, and what to do.

    An all-reduce of s bytes takes startup_s + s_per_byte * s seconds. The figures are simulated.
    """
    from allhands.mgwfbp.cost import AffineCost
    from allhands.mgwfbp.gradients import read_trace
    from allhands.mgwfbp.report import compare, recommendation

    with _sentences():
        gradients = read_trace(trace, forward_s=forward_s)
        comparison = compare(gradients, AffineCost(startup_s, s_per_byte))
    if as_json:
        typer.echo(json.dumps(comparison.as_dicts()))
    else:
        typer.echo(f"{comparison}\n\n{recommendation(comparison)}")


@app.command()
def profile(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="torch.profiler JSON (may be .gz), nsys export (sqlite, csv) or nvprof csv.",
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object; a list of them for several traces.")
    ] = False,
) -> None:
    """Are Tensor Cores running? What share of the matrix time, what did not, and why."""
    from allhands import profile as profiles

    reports = []
    with _sentences():
        for path in traces:
            reports.append(profiles.report(profiles.read(path)))
    if as_json:
        found = [one.as_dict() for one in reports]
        typer.echo(json.dumps(found[0] if len(found) == 1 else found, ensure_ascii=False))
    else:
        typer.echo("\n\n".join(map(str, reports)))


@app.command()
def lab(
    stem: Annotated[str | None, typer.Argument(help="A lab's name. None: list all labs.")] = None,
) -> None:
    """List the labs, or show one: its aim, exercises, and commands."""
    with _sentences():
        known = labs.load()
        if stem is not None and stem not in known:
            raise ValueError(f"There is no lab {stem!r}. The labs are: {', '.join(known)}.")
    console = Console()
    if stem is None:
        table = Table("lab", "title", "minutes", "points")
        for one in known.values():
            points = sum(exercise.points for exercise in one.exercises)
            table.add_row(one.stem, one.title, str(one.minutes), f"{points:g}")
        console.print(table)
        return
    chosen = known[stem]
    console.print(f"[bold]{chosen.title}[/bold]\n{chosen.aim}\n", highlight=False)
    for exercise in chosen.exercises:
        console.print(f"  {exercise.id}: {exercise.title} ({exercise.kind}, {exercise.points:g})")


def main() -> None:
    """The console script's entry."""
    app()


if __name__ == "__main__":
    main()
