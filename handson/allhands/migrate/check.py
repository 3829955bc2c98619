"""What usually goes wrong when this program becomes data parallel? All rules over all its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from allhands.migrate.facts import Facts
from allhands.migrate.naming import MANAGERS, STARTED_BY
from allhands.migrate.rule import SEVERITIES, Rule, frameworks
from allhands.migrate.rules import RULES
from allhands.migrate.sources import Script, UnreadableScript, parse, paths_in, read
from allhands.migrate.walk import walk

MISSING = {  # what a framework that manages ranks does by itself
    *("no-sampler", "set-epoch-missing", "model-not-wrapped", "init-missing", "device-missing"),
    *("rate-not-scaled", "no-destroy", "text-of-all-ranks", "files-of-all-ranks", "no-broadcast"),
    *("metric-of-own-shard", "load-without-map", "download-everywhere", "wait-in-each-step"),
}


@dataclass(frozen=True)
class Finding:
    """One place of one fault."""

    rule: Rule
    path: Path
    line: int  # of the file; in a notebook, of all code cells put together
    place: str  # "12", or "cell 3:2" in a notebook
    code: str
    detail: str = ""

    def as_dict(self) -> dict:
        """For --json."""
        return {
            "rule": self.rule.rule_id,
            "severity": self.rule.severity,
            "file": str(self.path),
            "place": self.place,
            "code": self.code,
            "detail": self.detail,
            "title": self.rule.title,
            "why": self.rule.why,
            "cure": self.rule.cure,
            "source": self.rule.source,
        }


@dataclass(frozen=True)
class Checked:
    """The answer: what was read, what was found, what could not be read."""

    files: tuple[Path, ...]
    findings: tuple[Finding, ...]
    unread: tuple[str, ...]
    frameworks: tuple[str, ...]  # what makes the program parallel; empty: it has no ranks yet
    silenced: int
    started_by: str = ""  # a framework that makes the ranks itself: Lightning, Accelerate

    def of(self, *severities: str) -> list[Finding]:
        """The findings of these severities."""
        return [each for each in self.findings if each.rule.severity in severities]

    @property
    def exit_code(self) -> int:
        """0: nothing sure or likely; 1: something; 2: nothing could be read."""
        if self.unread and not self.files:
            return 2
        return 1 if self.of("sure", "likely") else 0

    def as_dict(self) -> dict:
        """For --json."""
        return {
            "files": [str(path) for path in self.files],
            "parallel_by": list(self.frameworks),
            "started_by": self.started_by,
            "counts": {each: len(self.of(each)) for each in SEVERITIES},
            "silenced": self.silenced,
            "findings": [each.as_dict() for each in self.findings],
            "unread": list(self.unread),
        }


def check(target: Path) -> Checked:
    """Check a script, a notebook, or all below a folder (as one program).

    Raises UnreadableScript if there is nothing to read; a file that cannot be read among others is
    named in `unread`.
    """
    scripts, facts, unread = [], [], []
    for path in paths_in(target):
        try:
            script = read(path)
            facts.append(facts_of(script))
            scripts.append(script)
        except UnreadableScript as error:
            unread.append(str(error))
    return judge(scripts, facts, unread)


def check_text(text: str, name: str = "script.py") -> Checked:
    """Check a program that stands in a string."""
    lines = tuple(text.split("\n"))
    places = tuple(str(i + 1) for i in range(len(lines)))
    script = Script(Path(name), lines, places, parse(text, name))
    return judge([script], [facts_of(script)], [])


def facts_of(script: Script) -> Facts:
    """Follow one script. UnreadableScript if it is nested beyond what can be followed."""
    try:
        return walk(script.tree, str(script.path))
    except RecursionError as error:
        raise UnreadableScript(
            f"{script.path} is nested too deeply to be followed. Was it made by a program?"
        ) from error


def judge(scripts: list[Script], facts: list[Facts], unread: list[str]) -> Checked:
    """All rules over all files; a name that stands in one file is known in all."""
    alone = programs_of_their_own(facts)
    mentions = set().union(*(each.mentions for each in facts))
    imports = set().union(*(each.project_imports for each in facts))
    for each in facts:
        each.project, each.project_imports = mentions, imports
    parallel = frameworks(facts[0]) if facts else set()
    managed = bool(facts) and facts[0].uses(*MANAGERS)
    started = {name for module, name in STARTED_BY.items() if facts and facts[0].uses(module)}
    findings, silenced = [], 0
    for script, fact in zip(scripts, facts, strict=True):
        for finding, last in () if fact in alone else _found(script, fact, parallel, managed):
            if started and finding.rule.serial:
                continue
            if script.silences(finding.line, last, finding.rule.rule_id):
                silenced += 1
            else:
                findings.append(finding)
    files = tuple(script.path for script in scripts)
    by = tuple(sorted(parallel))
    return Checked(
        files, tuple(findings), tuple(unread), by, silenced, " and ".join(sorted(started))
    )


def programs_of_their_own(facts: list[Facts]) -> list[Facts]:
    """Programs for one device among others that have ranks: they need nothing of this."""
    for each in facts:
        each.project = each.mentions
    with_ranks = {Path(each.path).stem for each in facts if frameworks(each)}
    words = {
        each.path: {word for name in each.project_imports for word in name.split(".")}
        for each in facts
    }
    return [
        each
        for each in facts
        if with_ranks and each.has_main and not frameworks(each)
        if not with_ranks & words[each.path]
    ]


def _found(
    script: Script, facts: Facts, parallel: set[str], managed: bool
) -> Iterator[tuple[Finding, int]]:
    """The findings of one file, in order, with their last lines."""
    for rule in RULES:
        if not _applies(rule, facts, parallel) or (managed and rule.rule_id in MISSING):
            continue
        seen = {}
        for spot in rule.spots(facts):
            code = script.line(spot.line)
            finding = Finding(
                rule, script.path, spot.line, script.place(spot.line), code, spot.detail
            )
            seen.setdefault(spot.line, (finding, spot.end_line))
        yield from (seen[line] for line in sorted(seen))


def _applies(rule: Rule, facts: Facts, parallel: set[str]) -> bool:
    if rule.serial:
        return not parallel and facts.uses("torch", "chainer")
    if rule.frameworks == "all":
        return bool(parallel)
    return bool(parallel.intersection(rule.frameworks.split()))
