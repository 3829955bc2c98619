"""What is generated and committed is what its source gives."""

import nbformat
import pytest

from allhands.grade import source
from allhands.kit import build, table
from allhands.labs import COURSE

STEMS = list(COURSE.labs())


def test_the_participants_notebooks_are_what_their_sources_give():
    assert build.out_of_date(COURSE) == []


def test_the_table_of_the_readme_is_what_labs_toml_says():
    text = table.README.read_text(encoding="utf-8")
    assert table.with_table(text, COURSE.labs()) == text


def test_every_source_belongs_to_a_lab_and_every_notebook_has_a_source():
    sources = {path.stem for path in COURSE.sources.glob("*.py")}
    notebooks = {path.stem for path in COURSE.notebooks.glob("*.ipynb")}
    assert sources == set(STEMS)
    assert notebooks == set(STEMS)


@pytest.mark.parametrize("stem", STEMS)
def test_an_answer_never_stands_outside_its_solution_region(stem):
    """Each exercise cell has a region: without one nbgrader clears the specification too."""
    ids = {exercise.id for exercise in COURSE.lab(stem).exercises}
    for cell in source.solved_notebook(stem).cells:
        if cell.id in ids:
            assert "### BEGIN SOLUTION" in cell.source, cell.id


@pytest.mark.parametrize("stem", STEMS)
def test_a_notebook_leaves_no_folder_behind(stem):
    """`tempfile.TemporaryDirectory`, held in a variable, goes with the kernel; mkdtemp stays."""
    assert "mkdtemp" not in (COURSE.sources / f"{stem}.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("stem", STEMS)
def test_the_solved_notebook_is_valid(stem):
    nbformat.validate(source.solved_notebook(stem))
