"""The commands of a cluster in a box: up, sh, status, down."""

import contextlib
import json
import os
import pwd
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from allhands.cli.sentences import sentences

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="A cluster in a box: a real Slurm of several hosts, on this one machine (Linux, root).",
)
Name = Annotated[str, typer.Option("--name", help="Which box: several may be up at once.")]
PROMPT = r"[\u@\h \W]\$ "


@app.command()
def up(
    nodes: Annotated[int, typer.Option(help="How many compute nodes: n1, n2, ...")] = 4,
    gpus: Annotated[int, typer.Option(help="How many GPUs each has. They are not real.")] = 4,
    rate: Annotated[
        str | None, typer.Option(help="Give the nodes a link net0 of this rate: 1gbit, 100mbit.")
    ] = None,
    delay: Annotated[str | None, typer.Option(help="The delay of net0: 250us, 0.5ms.")] = None,
    name: Name = "box",
) -> None:
    """Start a box.

    It has a login node, compute nodes with names and addresses of their own, and Slurm. Its jobs
    see this machine's files, and really run here: all nodes share this machine's cores.
    """
    from allhands import box

    start_s = time.monotonic()
    with sentences():
        started = box.up(name, nodes, gpus, rate, delay)
    took_s = time.monotonic() - start_s
    named = "" if name == "box" else f" --name {name}"
    hosts = started.hosts[0] if nodes == 1 else f"{started.hosts[0]} to {started.hosts[-1]}"
    typer.echo(f"Box '{name}' is up after {took_s:.1f} s: {hosts}, {gpus} GPUs each (not real).")
    if started.shaped:
        typer.echo(f"Link net0: {_link(started.rate_bit_s, started.delay_s)}.")
    typer.echo(f"Its login node:   allhands box sh{named}      (then: sinfo, srun -N1 hostname)")
    typer.echo(f"To end it:        allhands box down{named}    (or end process {started.init_pid})")


@app.command(context_settings={"allow_interspersed_args": False})
def sh(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="What to run. Nothing: a shell."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where: ctl (the login node), n1, n2, ...")] = "ctl",
    root: Annotated[
        bool, typer.Option("--root", help="Under sudo: stay root, the administrator of Slurm.")
    ] = False,
    name: Name = "box",
) -> None:
    """Open a shell on a host of a box, or run a command there.

    It begins in this folder. Under sudo, shell and jobs are those of the user who called sudo.
    The command's exit code is passed on.
    """
    from allhands import box

    with sentences():
        found = box.find(name)
        user = None if root else _sudo_user()
        environ = found.environ(host)
        if not words:
            words = [pwd.getpwuid(user or 0).pw_shell or "/bin/sh"]
            environ.setdefault("PS1", PROMPT)
        command = found.command(words, host, user)
        os.execve(command[0], command, environ)


@app.command()
def status(
    name: Annotated[str | None, typer.Option(help="Which box. Default: all that are up.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of boxes.")] = False,
) -> None:
    """Show the boxes that are up: nodes, jobs, link. Exit code 1 if there is none."""
    from allhands import box
    from allhands.box import place
    from allhands.box import status as asking

    with sentences():
        found = [box.find(name)] if name is not None else []
        for each in place.names() if name is None else ():
            with contextlib.suppress(box.BoxError):  # it has just gone down
                found.append(box.find(each))
        all_of_them = [asking.status(one) for one in found]
    if as_json:
        typer.echo(json.dumps([one.as_dict() for one in all_of_them], indent=2))
    elif not all_of_them:
        typer.echo("No box is up. Start one: allhands box up")
    else:
        for one in all_of_them:
            _show(one)
    if not all_of_them:
        raise typer.Exit(1)


@app.command()
def down(name: Name = "box") -> None:
    """End a box: its jobs, its daemons, its network, its files."""
    from allhands import box

    with sentences():
        box.find(name).down()
    typer.echo(f"Box '{name}' is down. Nothing is left of it.")


def _sudo_user() -> int | None:
    """The user who called sudo, if one did."""
    told = os.environ.get("SUDO_UID", "")
    return int(told) if told.isdecimal() and int(told) and os.geteuid() == 0 else None


def _link(rate_bit_s: float | None, delay_s: float | None) -> str:
    rate = "no limit of the rate" if rate_bit_s is None else f"{rate_bit_s / 1e6:g} Mbit/s"
    return f"{rate}, delay {1e6 * (delay_s or 0):g} us"


def _show(one) -> None:
    console = Console()
    console.print(f"Box '{one.name}', first process {one.init_pid}, {one.folder}", highlight=False)
    table = Table("node", "state", "CPUs busy", "GPUs")
    for node in one.nodes:
        table.add_row(node.name, node.state, f"{node.cpus_busy} of {node.cpus}", str(one.gpus))
    console.print(table)
    if one.link:
        link = one.link
        console.print(
            f"Link {link.name}: {_link(link.rate_bit_s, link.delay_s)}; {link.frames} frames, "
            f"{link.dropped} dropped, at most {1e6 * link.late_max_s:.0f} us late",
            highlight=False,
        )
    if one.jobs:
        table = Table("job", "name", "partition", "user", "state", "time", "where, or why not")
        for job in one.jobs:
            words = (job.job_id, job.name, job.partition, job.user, job.state, job.time, job.where)
            table.add_row(*map(Text, words))
        console.print(table)
