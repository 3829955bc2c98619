"""The commands about the course itself: grade, lab."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from allhands import labs
from allhands.cli.sentences import sentences


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
    The exit code is 0 whatever the points; with --full it is 1 below full marks.
    """
    from allhands.grade.notebook import grade_notebook, read_submission, try_place

    place = out or notebook.with_suffix(".score.json")
    with sentences():
        read_submission(notebook)
        try_place(place)
        progress = Console(stderr=True)
        say = partial(progress.print, highlight=False)
        score = grade_notebook(notebook, cell_timeout_s=cell_timeout, say=say)
    if as_json:
        typer.echo(json.dumps(score.as_dict(), indent=2, ensure_ascii=False))
    else:
        _show(score)
    with sentences():
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


def lab(
    stem: Annotated[str | None, typer.Argument(help="A lab's name. None: list all labs.")] = None,
) -> None:
    """List the labs, or show one: its aim, exercises, and commands."""
    with sentences():
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
    console.print()
    for what, command in commands(chosen):
        console.print(f"  {what:<12}{command}", highlight=False, soft_wrap=True)


def commands(chosen: labs.Lab) -> list[tuple[str, str]]:
    """What a lab is worked with, from the folder of the course: its places, and its commands."""
    return [
        ("notebook", f"notebooks/{chosen.stem}.ipynb"),
        ("bench", f"handson/{chosen.stem}/README.md"),
        *(("train", f"allhands train {preset}") for preset in chosen.presets),
        ("cluster", f"cluster_jobs/submit {chosen.stem}"),
    ]
