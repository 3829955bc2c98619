"""How many ranks may a command start on this machine? Some take turns; far too many are refused."""

import typer

from allhands.doctor.machine import Machine

TAKE_TURNS = 2  # ranks a core, from which on a line says so
MOST = 16  # ranks a core


def fit(ranks: int) -> None:
    """Say in a line that ranks take turns; ValueError, in a sentence, for far too many of them."""
    cores = Machine().cores()
    on = "1 core" if cores == 1 else f"{cores} cores"
    if ranks > MOST * cores:
        raise ValueError(
            f"--ranks {ranks} asks for {ranks} processes on {on}, and more than {MOST} a core are "
            f"not started. Give --ranks {cores}, or at most {MOST * cores}, or take a larger "
            f"machine."
        )
    if ranks > 1 and ranks >= TAKE_TURNS * cores:
        typer.echo(f"{ranks} ranks on {on} take turns: correct, but no faster.", err=True)
