"""Planted faults: each is an edit of a healthy script, and is found as itself, at its line.

The bases are whole programs in `migrate_scripts`; about them there is nothing to say. The faults
stand in `migrate_scripts/faults.toml`: every rule is met by at least one.
"""

import tomllib
from pathlib import Path

import pytest

from allhands.migrate import RULES, check_text

SCRIPTS = Path(__file__).parent / "migrate_scripts"
FAULTS = tomllib.loads((SCRIPTS / "faults.toml").read_text(encoding="utf-8"))["fault"]
BASES = sorted(path.stem for path in SCRIPTS.glob("base_*.py"))
EXPECTED = {rule.rule_id: rule for rule in RULES if not rule.serial}


def faulty(base: str, edits: list[list[str]]) -> str:
    """The base with the edits made; each old text must be in it."""
    text = (SCRIPTS / f"{base}.py").read_text(encoding="utf-8")
    for old, new in edits:
        assert old in text, f"{old!r} is not in {base}.py any more"
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("base", BASES)
def test_about_a_healthy_script_there_is_nothing_to_say(base):
    assert check_text(faulty(base, [])).findings == ()


@pytest.mark.parametrize("fault", FAULTS, ids=[fault["name"] for fault in FAULTS])
def test_a_planted_fault_is_found_as_itself_at_its_line(fault):
    text = faulty(fault["base"], fault["edits"])
    answer = check_text(text)
    assert {each.rule.rule_id for each in answer.findings} == {fault["rule"]}
    found = answer.findings[0]
    assert fault["line"] in found.code
    assert text.split("\n")[found.line - 1].strip() == found.code
    assert answer.exit_code == (EXPECTED[fault["rule"]].severity != "look")


@pytest.mark.parametrize("fault", FAULTS[::6], ids=[fault["name"] for fault in FAULTS[::6]])
def test_a_comment_in_the_line_silences_it(fault):
    text = faulty(fault["base"], fault["edits"])
    findings = check_text(text).findings
    lines = text.split("\n")
    for found in findings:
        lines[found.line - 1] += f"  # allhands: ok {fault['rule']}"
    silent = check_text("\n".join(lines))
    assert silent.findings == ()
    assert silent.silenced == len(findings)


def test_every_rule_is_met_by_a_fault():
    assert {fault["rule"] for fault in FAULTS} == set(EXPECTED)
