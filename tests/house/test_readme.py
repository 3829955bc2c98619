"""Commands that texts name are there: targets of make, allhands and its options, jobs, programs."""

import re
from pathlib import Path

import pytest
import typer
from nbgrader.apps.nbgraderapp import NbGraderApp

from allhands.cli import app

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "handson" / "allhands"
TEXTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "cluster_jobs" / "README.md",
    *sorted((ROOT / "slides").glob("*.md")),
    *sorted((ROOT / "handson").glob("*/README.md")),
    *sorted((ROOT / "handson").glob("*/mentors.md")),
]
ROOM = re.compile(r"[A-Z<{*]|\.\.\.|/x\.")  # a name to fill in: FILE.py, test_<stem>.py, x.slurm
JOBS = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("sites", "lib")
    for path in (ROOT / "cluster_jobs" / folder).iterdir()
    if path.is_file()
)
SUBMIT = (ROOT / "cluster_jobs" / "submit").read_text(encoding="utf-8")
OWN_SITE = re.compile(
    r"cluster_jobs/sites/(my_\w+\.env|default)"
)  # written on the reader's machine


def code(path: Path) -> str:
    """What stands in backticks, and indented or fenced lines; a span may run over a line's end."""
    text = path.read_text(encoding="utf-8")
    fenced = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.DOTALL))
    lines = re.findall(r"^    (\S.*)", text, re.MULTILINE)
    return "\n".join([*fenced, *(" ".join(span.split()) for span in spans), *lines])


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_is_named_exists(path):
    told = code(path)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert set(re.findall(r"^(?:sudo )?make ([a-z]+)", told, re.MULTILINE)) <= targets
    group = typer.main.get_command(app)
    for words in re.findall(r"^(?:sudo )?(?:\.venv/bin/)?allhands ([a-z].*)", told, re.MULTILINE):
        command, inner = words.split()[0], (words.split()[1:] or [""])[0]
        assert command in group.commands, words
        found = group.commands[command]
        below = getattr(found, "commands", None)
        assert below is None or inner in below or not re.match("[a-z]", inner), words
        if below is None or inner in below:
            found = found if below is None else below[inner]
            known = {name for each in found.params for name in each.opts} | {"--help"}
            assert options(words) <= known, words
    for words in re.findall(r"cluster_jobs/submit (\S.*)", told):
        job, *rest = words.split()
        if re.fullmatch(r"[a-z]\w+", job):
            assert {s.suffix for s in (ROOT / "cluster_jobs").glob(f"{job}.*")} == {
                ".slurm",
                ".pbs",
            }
        assert options(" ".join(rest)) <= set(re.findall(r"--[a-z-]+", SUBMIT)), words


def options(words: str) -> set[str]:
    """The options of a command: its words up to a lone `--`, a comment, or another command."""
    own = re.split(r" -- | [#|>;&]|[;`)]", f" {words} ")[0]
    return set(re.findall(r"(?<=\s)--[a-z][a-z-]*", own))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_program_and_job_file_that_is_named_exists(path):
    told = code(path)
    for name in re.findall(r"(?<![\w/])(?:cluster_jobs|handson|tests)/[\w./<{*>}-]*[\w/*-]", told):
        if not OWN_SITE.fullmatch(name) and not ROOM.search(name.removesuffix("README.md")):
            assert (ROOT / name).exists(), name
    for module in re.findall(r"python -m allhands\.([\w.]*\w)", told):
        place = PACKAGE.joinpath(*module.split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    for name in re.findall(r"\bALLHANDS_[A-Z_]+[A-Z]", told):
        assert name in JOBS, name
    for command in re.findall(r"^nbgrader ([a-z_]+)", told, re.MULTILINE):
        assert command in NbGraderApp.subcommands, command


def test_the_readme_names_every_command():
    told = code(TEXTS[0])
    for command in typer.main.get_command(app).commands:
        assert f"allhands {command}" in told, command
