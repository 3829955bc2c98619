"""The tree: where things live, and that the project speaks of itself alone."""

import re
import subprocess
from pathlib import Path

import pytest

from allhands import config, labs

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {"notebooks", "handson", "slides", "cluster_jobs", "tests", ".ci", ".github"}


def tracked() -> list[Path]:
    """The files of the project: those that git tracks, and new ones that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what belongs to the project is unknown")
    return tracked()


def test_the_top_level_is_the_agreed_one(files):
    folders = {path.relative_to(ROOT).parts[0] for path in files if path.parent != ROOT}
    assert folders == FOLDERS
    assert (ROOT / "environment.yml").exists()


def test_every_lab_owns_files_with_its_stem_in_every_place():
    for stem in labs.load():
        for name in (
            f"notebooks/src/{stem}.py",
            f"notebooks/{stem}.ipynb",
            f"handson/{stem}/README.md",
            f"handson/{stem}/mentors.md",
            f"handson/allhands/grade/checks/{stem}.py",
            f"cluster_jobs/{stem}.slurm",
            f"cluster_jobs/{stem}.pbs",
            f"tests/labs/test_{stem}.py",
        ):
            assert (ROOT / name).exists(), name


def test_every_preset_of_a_lab_exists_and_every_preset_belongs_to_a_lab():
    named = {preset for lab in labs.load().values() for preset in lab.presets}
    assert named == set(config.PRESETS)


def test_no_file_is_larger_than_a_mebibyte(files):
    assert [path for path in files if path.stat().st_size > 2**20] == []


def test_no_path_of_one_machine_or_person_stands_in_a_file(files):
    pattern = re.compile(rb"(^|[^\w.-])/(root|home/[a-z]+|Users/\w+)/")
    assert [path for path in files if pattern.search(path.read_bytes())] == []


def test_links_inside_the_repository_hold(files):
    link = re.compile(r"!?\[[^\]]*\]\((?!https?:|#|mailto:)([^)\s#]+)")
    broken = []
    for path in files:
        if path.suffix == ".md" or path.parent.name == "src":
            start = path.parent if path.suffix == ".md" else path.parent.parent
            for target in link.findall(path.read_text(encoding="utf-8")):
                if not (start / target).exists():
                    broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def test_python_files_fit_in_one_head(files):
    long = {
        str(path.relative_to(ROOT)): lines
        for path in files
        if path.suffix == ".py"
        and path.parent.name != "src"  # a notebook's source is prose too
        and (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert long == {}
