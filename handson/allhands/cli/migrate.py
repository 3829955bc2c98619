"""The command that reads a participant's own program: `allhands check SCRIPT`."""

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from allhands.cli.sentences import EXIT_WRONG_USE, sentences


def check(
    script: Annotated[
        Path, typer.Argument(help="A program (.py), a notebook (.ipynb), or a folder of them.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read a training program: what usually goes wrong on N ranks, where, why, and the cure.

    ChainerMN, PyTorch (DDP, FSDP), Horovod and mpi4py; of a program for one device it shows the
    lines to edit.
    Nothing of it is run. Exit code 0: nothing sure or likely; 1: found; 2: cannot be read.
    A line that is right as it is: `# allhands: ok RULE`.
    """
    from allhands import migrate

    with sentences():
        answer = migrate.check(script)
    if answer.exit_code == EXIT_WRONG_USE:
        for sentence in answer.unread:
            typer.echo(f"allhands: {sentence}", err=True)
        raise typer.Exit(EXIT_WRONG_USE)
    if as_json:
        typer.echo(json.dumps(answer.as_dict(), indent=2))
    else:
        with suppress(AttributeError):  # code that this terminal cannot show: \u4e26
            sys.stdout.reconfigure(errors="backslashreplace")
        migrate.say(answer, Console(highlight=False, soft_wrap=False))
    raise typer.Exit(answer.exit_code)
