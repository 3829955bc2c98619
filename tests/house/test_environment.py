"""Do pyproject.toml, environment.yml, the set-up and this environment describe one thing?"""

import ast
import importlib.metadata
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILD_CHAINER = tomllib.loads((ROOT / "handson/chainer-7.8.1/pyproject.toml").read_text())
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
SETUP = ROOT / "handson" / "setup_env.py"

MAIN = [Requirement(text) for text in PYPROJECT["project"]["dependencies"]]
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
DEV = [Requirement(text) for text in EXTRAS["dev"]]
BUILD = [
    Requirement(text)
    for project in (PYPROJECT, BUILD_CHAINER)
    for text in project["build-system"]["requires"]
]


def pinned(requirement: Requirement) -> Version | None:
    """The version in `name==version`, or None if it is anything else."""
    specifiers = list(requirement.specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator == "=="
    return Version(specifiers[0].version) if exact and "*" not in specifiers[0].version else None


def on(python: str) -> dict[str, Version | None]:
    """The pins that hold on Linux for that Python, by name."""
    where = {"python_version": python, "sys_platform": "linux"}
    holds = [r for r in (*MAIN, *DEV) if r.marker is None or r.marker.evaluate(where)]
    assert len(holds) == len({r.name for r in holds}), "a package is pinned twice"
    return {r.name: pinned(r) for r in holds}


# --- the pins


@pytest.mark.parametrize("requirement", [*MAIN, *DEV, *BUILD], ids=str)
def test_every_requirement_is_an_exact_pin(requirement):
    assert pinned(requirement) is not None


def test_the_environment_has_what_is_pinned():
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    installed = {name: Version(importlib.metadata.version(name)) for name in on(here)}
    # PyTorch's CPU build calls itself 2.13.0+cpu
    assert {name: Version(found.public) for name, found in installed.items()} == on(here)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_pins_hold_on_each_python_that_the_project_promises(python):
    assert Requirement(f"python{PYPROJECT['project']['requires-python']}").specifier.contains(
        python
    )
    pins = on(python)
    assert None not in pins.values()
    # NumPy 1.26 has no wheel for 3.13; ChainerMN's iterators break on 2.4.
    lowest, above = ("2.1", "2.4") if python == "3.13" else ("1.26", "2.0")
    assert Version(lowest) <= pins["numpy"] < Version(above)
    # PyTorch wants at least 77.0.3; chainer.testing wants pkg_resources, which 82 removed.
    assert Version("77.0.3") <= pins["setuptools"] < Version("82")


def test_chainer_is_built_with_the_setuptools_of_the_environment():
    pins = on("3.11")
    setuptools = {r.name: pinned(r) for r in BUILD if r.name == "setuptools"}
    assert setuptools == {"setuptools": pins["setuptools"]}
    backend = (
        ROOT / "handson/chainer-7.8.1" / f"{BUILD_CHAINER['build-system']['build-backend']}.py"
    )
    assert runpy.run_path(str(backend))["CHAINER"] == f"chainer=={pins['chainer']}"


def test_the_pip_that_builds_chainer_does_not_inherit_the_name_of_our_backend(
    tmp_path, monkeypatch
):
    """It would look for setuptools in our folder, and fail; a wheel in pip's cache hides that."""
    for variable in ("_PYPROJECT_HOOKS_BACKEND_PATH", "_PYPROJECT_HOOKS_BUILD_BACKEND"):
        monkeypatch.setenv(variable, "ours")

    def fake_pip(command, *, check, env):
        assert not [name for name in env if name.startswith("_PYPROJECT_HOOKS_")]
        assert env["PATH"] == os.environ["PATH"]
        (tmp_path / "chainer-7.8.1-py3-none-any.whl").touch()

    monkeypatch.setattr(subprocess, "run", fake_pip)
    backend = runpy.run_path(str(ROOT / "handson/chainer-7.8.1/build_chainer.py"))
    assert backend["build_wheel"](str(tmp_path)) == "chainer-7.8.1-py3-none-any.whl"


def test_no_requirement_is_the_chainermn_of_pypi():
    names = {Requirement(text).name for texts in EXTRAS.values() for text in texts}
    assert "chainermn" not in names | {r.name for r in (*MAIN, *BUILD)}


def test_nothing_that_is_installed_asks_for_another_version_than_the_pinned():
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout


# --- conda, the set-up and the package agree


def test_condas_pip_part_installs_the_project_and_the_build_of_chainer():
    (pip_part,) = (part["pip"] for part in CONDA["dependencies"] if isinstance(part, dict))
    assert pip_part == ["./handson/chainer-7.8.1", "-e .[dev]"]
    words = tuple(word for line in pip_part for word in line.split())
    assert words == runpy.run_path(str(SETUP))["PROJECT"]


def test_conda_itself_brings_python_and_pip_and_no_other_version():
    conda = [part for part in CONDA["dependencies"] if isinstance(part, str)]
    python, pip = conda
    assert pip == "pip"
    name, version = python.split("=")
    assert name == "python"
    assert Requirement(f"python{PYPROJECT['project']['requires-python']}").specifier.contains(
        version
    )
    assert CONDA["name"] == PYPROJECT["project"]["name"]
    assert CONDA["channels"] == ["conda-forge"]


def test_the_set_up_accepts_the_pythons_that_the_project_requires():
    setup = runpy.run_path(str(SETUP))
    specifier = Requirement(f"python{PYPROJECT['project']['requires-python']}").specifier
    for minor in range(8, 17):
        assert setup["fits"]((3, minor, 1)) == specifier.contains(f"3.{minor}.1")


def test_the_stamp_covers_every_file_that_defines_the_environment():
    setup = runpy.run_path(str(SETUP))
    files = {str(file.relative_to(ROOT)) for file in ROOT.glob("handson/chainer-7.8.1/*.*")}
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    files |= {name for name in included if name.endswith(".pth")}
    assert files <= set(setup["DEFINED_BY"])
    assert all((ROOT / name).is_file() for name in setup["DEFINED_BY"])


# --- the set-up on machines that are not as it wishes


def set_up(*arguments: object, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(SETUP), *map(str, arguments)],
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def fake_python(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def test_the_set_up_can_be_read_by_an_old_python():
    ast.parse(SETUP.read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("version", ["3 9 18", "3 14 0"])
def test_a_python_out_of_range_is_refused_with_what_was_asked_seen_and_wanted(tmp_path, version):
    python = fake_python(tmp_path / "python", version)
    done = set_up(tmp_path / "venv", "--python", python)
    assert done.returncode == 1
    assert "This step failed: 1 of 3, Python." in done.stdout
    assert f"PYTHON={python} was asked for, and is {version.replace(' ', '.')}" in done.stdout
    assert "from 3.11 to 3.13" in done.stdout
    assert "make env PYTHON=" in done.stdout
    assert not (tmp_path / "venv").exists()


def test_a_conda_environment_with_an_old_python_is_refused_with_the_command_for_a_new_one(tmp_path):
    (tmp_path / "conda-meta").mkdir()
    fake_python(tmp_path / "bin" / "python", "3 10 2")
    done = set_up(tmp_path)
    assert done.returncode == 1
    assert "conda environment has Python 3.10.2" in done.stdout
    assert "conda env create --file environment.yml" in done.stdout


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").touch()
    done = set_up(tmp_path)
    assert done.returncode == 1
    assert "is a folder of other things" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_without_a_network_the_step_the_cause_and_the_cure_are_named(tmp_path):
    done = set_up(
        tmp_path / "venv",
        PIP_CONFIG_FILE=os.devnull,
        PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_RETRIES="1",
        PIP_FIND_LINKS="",
        PIP_NO_CACHE_DIR="1",
    )
    assert done.returncode == 1
    assert "This step failed: 2 of 3, install." in done.stdout
    assert "cause: The package index did not answer." in done.stdout
    assert "cure:  Look at the network" in done.stdout
    assert not (tmp_path / "venv" / "allhands.stamp").exists()


def test_each_known_failure_is_told_by_its_own_cause():
    setup = runpy.run_path(str(SETUP))
    said = {
        "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]": "certificate",
        "OSError: [Errno 28] No space left on device": "disk",
        "ERROR: Could not install: [Errno 13] Permission denied: '/usr/lib'": "written to",
        "The virtual environment was not created: ensurepip is not available": "ensurepip",
        "ERROR: No matching distribution found for torch==2.13.0": "no such version",
        "ERROR: something new": "not a failure that we know",
    }
    for line, word in said.items():
        failure = setup["explained"](f"Collecting torch\n2026-01-01T10:00:00,123 {line}\n")
        assert word in failure.cause
        assert line in failure.cause


# --- make and CI


def make(*arguments: str, **env: str) -> str:
    """What make prints, called as from a shell, even if it was make that called the tests."""
    inherited = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MAKELEVEL", "VENV"}}
    done = subprocess.run(
        ["make", *arguments], cwd=ROOT, env=inherited | env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_lists_every_target_with_a_sentence():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE).group(1).split()
    lines = [line.split(maxsplit=1) for line in make().splitlines() if line[:2] == "  "]
    assert [line[0] for line in lines] == phony
    assert all(len(line) == 2 for line in lines)


@pytest.mark.parametrize(
    ("env", "venv"),
    [
        ({"CONDA_DEFAULT_ENV": "", "CONDA_PREFIX": ""}, ".venv"),
        ({"CONDA_DEFAULT_ENV": "base", "CONDA_PREFIX": "/opt/conda"}, ".venv"),
        (
            {"CONDA_DEFAULT_ENV": "allhands", "CONDA_PREFIX": "/opt/envs/allhands"},
            "/opt/envs/allhands",
        ),
    ],
)
def test_make_fills_an_active_conda_environment_but_never_its_base(env, venv):
    assert f'setup_env.py "{venv}" ' in make("--dry-run", "env", **env)


def test_ci_runs_the_readmes_test_command():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
