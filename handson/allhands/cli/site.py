"""`allhands site`: which site runs the jobs? `init` asks and writes its file, others read it."""

import dataclasses
import datetime
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from allhands.cli.sentences import EXIT_INTERRUPTED, sentences
from allhands.sites import ask, check, detect, folder, write

PROOF = "lab1_seq2seq"  # the lab whose dry run shows that the file is complete
app = typer.Typer(no_args_is_help=True, help="Which site runs the jobs: cluster_jobs/sites.")
NAME = Annotated[str | None, typer.Argument(help="A file of cluster_jobs/sites. Default: yours.")]


@app.command()
def init(
    name: Annotated[str | None, typer.Option(help="A short name: sites/my_NAME.env.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing; take the defaults.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An answer, such as QUEUE=gpu. Repeat."),
    ] = None,
    answers: Annotated[
        Path | None, typer.Option(help="A file of answers: lines NAME=VALUE.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="With --yes: replace what is there.")] = False,
) -> None:
    """Ask about this site, write its file, and show by a dry run that it is complete.

    Looks at scheduler, queues, accounts, GPUs, modules and interfaces of this login node for the
    likely answers. Nothing is written before the end; nothing is replaced without asking.
    """
    try:
        with sentences():
            _init(name, yes, settings or [], answers, overwrite)
    except (typer.Abort, KeyboardInterrupt, EOFError):
        typer.echo("\nInterrupted: nothing was written.", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None


def _init(
    name: str | None, yes: bool, settings: Sequence[str], file: Path | None, overwrite: bool
) -> None:
    jobs = folder.Jobs.find()
    given = _given(jobs, settings, file)
    typer.echo("Looking at this node (some seconds) ...", err=True)
    seen = detect.look()
    typer.echo(_seen_in_words(seen), err=True)
    schedulers = dict(jobs.committed("SCHEDULER"))
    own = jobs.own()
    context = ask.Context(seen, {}, templates=schedulers)
    template_name = given.get("TEMPLATE") or own or ask.TEMPLATE.default(context)
    if not yes and "TEMPLATE" not in given:
        known = jobs.names()
        form = "|".join(map(re.escape, known))
        question = dataclasses.replace(ask.TEMPLATE, form=form, like="local")
        template_name = _put(question, template_name, known)
    template = ask.template_values(jobs, template_name, os.environ)
    seen = dataclasses.replace(
        seen, accounts=detect.accounts(detect.Node(), template.get("ACCOUNTS", ""))
    )
    options = [
        option
        for site, option in jobs.committed("ACCOUNT_OPTION")
        if option and schedulers[site] == template["SCHEDULER"]
    ]
    found = ask.answer_all(
        seen, template, given, None if yes else _put, list(dict.fromkeys(options))
    )
    likely = own.removeprefix("my_") or seen.name or "site"
    name = write.name_of(name or (likely if yes else _put(ask.NAME, likely, ())))
    path, default = jobs.site(name), jobs.sites / "default"
    text = write.render(
        name,
        template_name,
        jobs.site(template_name).read_text(encoding="utf-8"),
        template,
        found,
        datetime.date.today().isoformat(),
    )
    typer.echo(f"\n{text}")
    _may_write(jobs, path, yes, overwrite)
    use = _may_use(default, name, yes, overwrite)
    write.write(path, text)
    typer.echo(f"Written: {jobs.shown(path)}")
    if use:
        write.write(default, f"{name}\n")
        typer.echo(f"Written: {jobs.shown(default)}")
    _prove(jobs, name)


def _given(jobs: folder.Jobs, settings: Sequence[str], file: Path | None) -> dict[str, str]:
    if file and not file.is_file():
        raise ValueError(f"There is no file of answers {file}. Give another one to --answers.")
    lines = file.read_text(encoding="utf-8").splitlines() if file else []
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return ask.given_answers([*lines, *settings], jobs.known_names())


def _seen_in_words(seen: detect.Seen) -> str:
    parts = [f"Scheduler: {seen.scheduler}"]
    for word, names in (
        ("queues", list(seen.queues)),
        ("MPI", [seen.mpi] if seen.mpi else []),
        ("interfaces", seen.interfaces),
    ):
        if names:
            parts.append(f"{word}: {', '.join(names)}")
    return "; ".join(parts) + "."


def _put(question: ask.Question, default: str, choices: Sequence[str]) -> str:
    """Ask a person until the answer can be. An empty line takes the default, - makes it empty.

    A doubtful answer is taken when it is given twice.
    """
    known, doubted = f" [known: {', '.join(choices)}]" if choices else "", None
    while True:
        answer = typer.prompt(question.text + known, default, show_default=bool(default)).strip()
        answer = "" if answer == ask.NONE else answer
        refusal = question.refusal(answer)
        if not refusal and answer != doubted:
            refusal, doubted = question.doubt(answer, choices), answer
        if not refusal:
            return answer
        typer.echo(refusal, err=True)


def _may_write(jobs: folder.Jobs, path: Path, yes: bool, overwrite: bool) -> None:
    if path.exists() and yes and not overwrite:
        raise ValueError(
            f"{jobs.shown(path)} is there already. Give another --name or --overwrite."
        )
    if yes:
        return
    question = f"Replace {jobs.shown(path)}" if path.exists() else f"Write {jobs.shown(path)}"
    typer.confirm(question + "?", default=not path.exists(), abort=True)


def _may_use(default: Path, name: str, yes: bool, overwrite: bool) -> bool:
    """Shall `submit` take the new site by itself from now on?"""
    before = default.read_text().strip() if default.exists() else ""
    if before in ("", name) or (yes and overwrite):
        return True
    if yes:
        typer.echo(f"sites/default names {before} and stays. For the new one: --site {name}")
        return False
    return typer.confirm(f"sites/default names {before}. Use {name} from now on?", default=True)


def _prove(jobs: folder.Jobs, name: str) -> None:
    """The dry run of one lab, and what to do next. Exit code 1 if `submit` refuses."""
    ran = jobs.submit(PROOF, "--site", name, "--dry-run")
    typer.echo(f"\nThe dry run of {PROOF}:\n{ran.stdout}")
    if ran.returncode:
        typer.echo(f"Mend what it says in cluster_jobs/sites/{name}.env, then: allhands site check")
        raise typer.Exit(1)
    exported = os.environ.get("ALLHANDS_SITE", "")
    if exported not in ("", name):
        typer.echo(
            f"ALLHANDS_SITE={exported} is exported here, and counts more: unset ALLHANDS_SITE."
        )
    typer.echo(
        f"Next: allhands site check {name}\n"
        f"Then: cluster_jobs/submit {PROOF} --site {name} --wait -- --set epochs=1"
    )


@app.command()
def show(name: NAME = None) -> None:
    """Print which site is used, its values, and where each of them comes from."""
    with sentences():
        jobs = folder.Jobs.find()
        chosen, why = (name, "asked for") if name else jobs.chosen()
        values = folder.explain(jobs, chosen)
        typer.echo(f"site {chosen} ({why}): {jobs.shown(jobs.site(chosen))}")
        unset = [value.name for value in values if value.origin == folder.UNSET]
        for value in values:
            if value.name not in unset:
                typer.echo(f"{value.name:<24}  {value.text or '-'}  ({value.origin})")
        typer.echo(f"not set: {', '.join(unset) or 'none'}")


@app.command("check")
def check_site(name: NAME = None) -> None:
    """Ask whether queue, account, launcher, container, interface of the site are there.

    Exit code 1 if something is bad. What a login node cannot tell is not known, and not bad.
    """
    with sentences():
        jobs = folder.Jobs.find()
        chosen, why = (name, "asked for") if name else jobs.chosen()
        node = detect.Node()
        values = jobs.values(chosen)
        seen = dataclasses.replace(
            detect.look(node), accounts=detect.accounts(node, values.get("ACCOUNTS", ""))
        )
        findings = check.check(values, seen, node)
        ran = jobs.submit(PROOF, "--site", chosen, "--dry-run")
    typer.echo(f"site {chosen} ({why})")
    for finding in findings:
        typer.echo(str(finding))
    last = ran.stdout.strip().splitlines()[-1] if ran.stdout.strip() else "no output"
    state = check.BAD if ran.returncode else check.GOOD
    typer.echo(str(check.Finding(state, f"dry run of {PROOF}", last)))
    if ran.returncode or any(finding.state == check.BAD for finding in findings):
        raise typer.Exit(1)
