"""How does a command end that cannot be done? With one sentence, and exit code 2."""

from contextlib import contextmanager

import typer

from allhands import launch

EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130


@contextmanager
def sentences(says: bool = True):
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
