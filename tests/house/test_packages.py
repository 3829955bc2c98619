"""Debian packages: one list, of which only what is missing is installed, and no service starts."""

import ast
import contextlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "handson" / "packages.py"
packages = SimpleNamespace(**runpy.run_path(str(PROGRAM)))
LISTED = packages.read(packages.LIST.read_text(encoding="utf-8"))


def program(folder: Path, name: str, text: str = "exit 0") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_every_line_names_a_package_the_program_that_shows_it_and_what_for():
    assert LISTED
    for each in LISTED:
        assert re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", each.name)
        assert each.why
    assert len({each.name for each in LISTED}) == len(LISTED)


def test_a_line_without_a_program_is_an_error():
    with pytest.raises(ValueError, match="unpack"):
        packages.read("slurmd   # no program\n")


def test_a_program_from_elsewhere_is_enough(tmp_path):
    node = packages.Package("nodejs", "node", "slides")
    assert packages.missing([node], path=str(tmp_path)) == [node]
    program(tmp_path, "node")
    assert packages.missing([node], path=str(tmp_path)) == []


def test_a_package_without_a_program_is_asked_of_dpkg(tmp_path, monkeypatch):
    package = packages.Package("slurm-wlm-basic-plugins", "-", "the box")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert packages.missing([package]) == [package]  # not a Debian
    program(tmp_path, "dpkg-query", 'printf "deinstall ok config-files"')
    assert packages.missing([package]) == [package]
    program(tmp_path, "dpkg-query", 'printf "install ok installed"')
    assert packages.missing([package]) == []


def test_no_service_starts_and_a_machine_s_own_policy_stays(tmp_path):
    policy = tmp_path / "policy-rc.d"
    with contextlib.suppress(KeyboardInterrupt), packages.no_service_starts(policy):
        assert subprocess.run([policy]).returncode == 101
        raise KeyboardInterrupt
    assert not policy.exists()
    policy.write_text("its own")
    with packages.no_service_starts(policy):
        assert policy.read_text() == "its own"
    assert policy.read_text() == "its own"


@pytest.mark.parametrize(
    ("codes", "asked", "good"),
    [
        ([0], ["install"], True),
        ([100, 0, 0], ["install", "update", "install"], True),
        ([100, 0, 100, 0, 100], ["install", "update", "install", "slurmd", "munge"], False),
        ([100, 1], ["install", "update"], False),
    ],
)
def test_lists_are_fetched_anew_if_they_did_not_do_and_then_each_is_tried_alone(codes, asked, good):
    called, left = [], list(codes)

    def run(words, env):
        assert env["DEBIAN_FRONTEND"] == "noninteractive"
        called.append(words[-1] if words[3] == "install" and len(words) == 7 else words[3])
        return left.pop(0)

    assert packages.install(["slurmd", "munge"], run) is good
    assert called == asked


def test_it_says_what_is_missing_and_how_to_get_it(tmp_path):
    """A PATH on which nothing of the list lies, but an apt-get that must not be called."""
    program(tmp_path, "apt-get", "echo called; exit 1")
    code = f"import runpy; m = runpy.run_path({str(PROGRAM)!r}); main = m['main']; "
    code += "main.__globals__['SYSTEM_PATH'] = '/none'; raise SystemExit(main(['--check']))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert "packages: slurmd is missing (the box: Slurm on each of its hosts)." in ran.stdout
    assert ran.stdout.endswith("to install them, run: sudo make packages\n")
    assert "called" not in ran.stdout


def test_an_old_python_can_read_it():
    ast.parse(PROGRAM.read_text(encoding="utf-8"), feature_version=(3, 6))
    assert not re.search(r"capture_output|text=True|removeprefix", PROGRAM.read_text())


def test_ci_run_installs_them_before_the_tests():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    (first,) = [n for n, line in enumerate(lines) if "handson/packages.py" in line]
    (tests,) = [n for n, line in enumerate(lines) if "make test" in line]
    assert first < tests
    (export,) = [n for n, line in enumerate(lines) if line == 'export CI="${CI:-true}"']
    assert export < tests, "what is missing is a failure, and not skipped"
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_where_a_need_is_missing_tests_skip_and_on_ci_they_fail(required, monkeypatch):
    skipped, failed = pytest.skip.Exception, pytest.fail.Exception
    for on_ci, outcome in {"": skipped, "0": skipped, "false": skipped, "true": failed}.items():
        monkeypatch.setenv("CI", on_ci)
        required(True, "is here")
        with pytest.raises(outcome, match=r"^needs it$"):
            required(False, "needs it")
