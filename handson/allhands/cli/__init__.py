"""`allhands`: train, translate, look at a run, check the machine, grade a notebook.

Exit codes: 0 good; 1 the answer is no (a failed check, a bad machine, less than full marks where
asked); 2 the command cannot be done as it was given; 85 a run that stopped before its time limit
and is saved; 130 a run that Ctrl-C stopped.
"""

import typer

from allhands.cli import box, site
from allhands.cli.course import grade, lab
from allhands.cli.migrate import check
from allhands.cli.questions import compare, doctor, plan, profile, triage
from allhands.cli.runs import summary, train, translate

COMMANDS = (train, translate, summary, compare, check, doctor, grade, plan, profile, triage, lab)
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="The workshop's commands. Start with `allhands doctor`, then `allhands train lab1_cpu`.",
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(box.app, name="box")
app.add_typer(site.app, name="site")


def main() -> None:
    """The console script's entry."""
    app()
