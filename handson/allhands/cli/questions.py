"""The commands that answer a question about a program, a machine or a file.

compare, doctor, plan, profile, triage: each prints for a reader, or with --json for a program.
"""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from allhands.cli import cores
from allhands.cli.sentences import EXIT_WRONG_USE, sentences


def compare(
    target: Annotated[
        str, typer.Argument(help="A preset, or a file (.py) that defines build(comm).")
    ],
    ranks: Annotated[int, typer.Option(help="How many ranks to compare with one.")] = 2,
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
    the evaluation. Exit code 0 only if all is equal. Own script: `allhands.train.compare.parts`.
    """
    from allhands.launch import LaunchError
    from allhands.train.compare import compare as run_comparison

    with sentences():
        cores.fit(ranks)
        try:
            found = run_comparison(
                target, ranks, steps=steps, settings=settings or [], time_limit_s=time_limit
            )
        except LaunchError as error:
            raise ValueError(error) from error
    typer.echo(json.dumps(found.as_dict(), indent=2, ensure_ascii=False) if as_json else str(found))
    if ranks == 1:
        typer.echo(
            "One rank shows little: it shares nothing with others. Give --ranks 2.", err=True
        )
    if not found.equal:
        raise typer.Exit(1)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    level: Annotated[
        str, typer.Option(help="Ask for a level: simulated, cpu or gpu.", show_default="cpu")
    ] = "",
    file: Annotated[
        list[Path] | None,
        typer.Option(help="Also write all of it for somebody who helps (.json: as JSON)."),
    ] = None,
    job: Annotated[bool, typer.Option("--job", help="Look at a compute node, in a job.")] = False,
    site: Annotated[str | None, typer.Option(help="With --job: a file of sites/.")] = None,
    run: Annotated[Path | None, typer.Option(help="A run's folder: why is it slow?")] = None,
    against: Annotated[Path | None, typer.Option(help="With --run: a run to compare with.")] = None,
) -> None:
    """Say what this machine has, and what to mend.

    Exit code 0: the labs run at the level asked for. 3: only at a lower one. 1: not at all.
    2: the command itself could not be done.

    With --run: say what makes a (parallel) run slow, from what it has left in its folder.
    """
    from allhands.doctor import (
        LEVELS,
        exit_code,
        on_node,
        probe_all,
        report,
        run_findings,
        verdict,
        write,
    )
    from allhands.doctor.machine import Machine

    if hasattr(sys.stdout, "reconfigure"):  # a path may have letters that a terminal has not
        sys.stdout.reconfigure(errors="backslashreplace")
    if run is not None or against is not None:
        with sentences():
            findings = run_findings.diagnose(run, against)
        run_findings.report(findings, as_json=as_json)
        raise typer.Exit(exit_code(findings))
    with sentences():
        if level and level not in LEVELS:
            raise ValueError(f"There is no level '{level}'. The levels are: {', '.join(LEVELS)}.")
        if job and file:
            raise ValueError("With --job the files lie in the job's run folder: leave out --file.")
        if site and not job:
            raise ValueError("--site says where the job runs: give --job too.")
        if job:
            raise typer.Exit(on_node.send(site, level or None, as_json))
    machine, asked = Machine(), level or "cpu"
    findings = probe_all(machine, level=asked)
    report(findings, as_json=as_json, asked=asked)
    with sentences():
        for path in file or ():
            write(path, findings, machine, asked)
            typer.echo(f"Written: {path}", err=as_json)
    raise typer.Exit(verdict(findings, asked).code)


def plan(
    trace: Annotated[
        Path, typer.Argument(help="CSV in order of arrival: arrival_index, n_bytes, backward_s.")
    ],
    startup_s: Annotated[
        float | None, typer.Option(help="Start-up of one all-reduce, in seconds.")
    ] = None,
    s_per_byte: Annotated[
        float | None, typer.Option(help="Time of one more byte, in seconds.")
    ] = None,
    link: Annotated[
        Path | None, typer.Option(help="In place of both: a link.json that lab 0 has measured.")
    ] = None,
    forward_s: Annotated[
        float | None, typer.Option(help="Forward pass. Default: half of the backward pass.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """Plan the merging of gradients: what each strategy would take, and what to do.

    An all-reduce of s bytes takes startup_s + s_per_byte * s seconds: give both, or a measured
    link. The figures are simulated.
    """
    from allhands.mgwfbp import own_link
    from allhands.mgwfbp.cost import AffineCost
    from allhands.mgwfbp.gradients import read_trace
    from allhands.mgwfbp.report import compare, recommendation

    with sentences():
        by_hand = startup_s is not None and s_per_byte is not None
        given = startup_s is not None or s_per_byte is not None
        if given if link else not by_hand:
            raise ValueError(
                "Say what the link costs: either --link link.json, or both --startup-s and "
                "--s-per-byte."
            )
        gradients = read_trace(trace, forward_s=forward_s)
        cost = own_link.load(link).cost if link else AffineCost(startup_s, s_per_byte)
        comparison = compare(gradients, cost)
    if as_json:
        typer.echo(json.dumps(comparison.as_dicts()))
    else:
        typer.echo(f"{comparison}\n\n{recommendation(comparison)}")


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
    """Are Tensor Cores running? What share of the matrix time, what did not, and why.

    Exit code 2: a trace cannot be read. The others are reported all the same.
    """
    from allhands import profile as profiles

    reports, failed = [], False
    for path in traces:
        try:
            with sentences():
                reports.append(profiles.report(profiles.read(path)))
        except typer.Exit:
            failed = True
    if reports and as_json:
        found = [one.as_dict() for one in reports]
        typer.echo(json.dumps(found[0] if len(traces) == 1 else found))
    elif reports:
        typer.echo("\n\n".join(map(str, reports)))
    if failed:
        raise typer.Exit(EXIT_WRONG_USE)


def triage(
    logs: Annotated[list[Path], typer.Argument(help="A job's log (also .gz), or a file a rank.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write a page, ranks side by side.")
    ] = None,
) -> None:
    """Read the log of a job with many ranks: what failed first, where, why. Exit code 1: it did."""
    from allhands.triage import show

    with sentences():
        raise typer.Exit(int(show(logs, as_json=as_json, html=html)))
