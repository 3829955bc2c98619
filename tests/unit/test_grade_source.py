"""A text source becomes a solved notebook: short forms are expanded, mistakes get a sentence."""

from dataclasses import replace

import pytest
from sample_course import COURSE
from sample_course.arithmetic import double

from allhands.grade import source


@pytest.fixture
def course(tmp_path):
    """The sample course; its source can be rewritten with `course.sources / "sample.py"`."""
    (tmp_path / "sample.py").write_text((COURSE.sources / "sample.py").read_text())
    return replace(COURSE, sources=tmp_path)


def cells(course=COURSE):
    return {cell.id: cell for cell in source.solved_notebook("sample", course).cells}


def rewrite(course, old, new):
    path = course.sources / "sample.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_short_forms_become_nbgraders_metadata_with_points_from_labs_toml():
    found = cells()
    assert found["double"].metadata["nbgrader"]["solution"] is True
    assert found["double"].metadata["nbgrader"]["grade"] is False
    check = found["check_double"].metadata["nbgrader"]
    assert (check["grade"], check["locked"], check["points"]) == (True, True, 3.0)
    assert found["check_size"].metadata["nbgrader"]["points"] == 1.5


def test_the_notebook_names_its_lab_and_its_kernel():
    metadata = source.solved_notebook("sample", COURSE).metadata
    assert metadata["allhands"] == {"stem": "sample"}
    assert metadata["kernelspec"]["name"] == "python3"


def test_the_same_source_gives_the_same_bytes():
    first, second = (source.text_of(source.solved_notebook("sample", COURSE)) for _ in range(2))
    assert first == second
    assert first.endswith("}\n")


def test_a_whole_function_is_pulled_in_with_its_specification():
    text = cells()["double"].source
    assert text.startswith('def double(number):\n    """Twice the number.\n')
    assert "    ### BEGIN SOLUTION\n    # the sum of two equal numbers\n" in text
    space = {}
    exec(text, space)
    assert space["double"](21) == double(21) == 42


def test_a_body_is_pulled_into_the_authors_function(course):
    pulled = "### SOLUTION FROM sample_course.arithmetic:double"
    own = f'def double(number):\n    """Mine."""\n    if True:\n        {pulled}\n'
    rewrite(course, pulled + "\n", own)
    text = cells(course)["double"].source
    assert "Twice" not in text
    assert "        ### BEGIN SOLUTION\n        # the sum" in text
    space = {}
    exec(text, space)
    assert space["double"](21) == 42


def test_a_method_is_pulled_without_importing_its_module():
    head, body = source.function_text("allhands.grade.desk:Desk.hint")
    assert head.startswith("def hint(self, id: str)")
    assert body.startswith("exercise = self.lab.exercise(id)\n")


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("no.such:f", "no module no.such"),
        ("sample_course.arithmetic:triple", "has no 'triple'"),
        ("allhands.grade.desk:Desk", "is a class"),
    ],
)
def test_a_function_that_is_not_there_gets_a_sentence(where, sentence):
    with pytest.raises(ValueError, match="SOLUTION FROM") as caught:
        source.function_text(where)
    assert sentence in str(caught.value)


def test_the_stated_output_is_stored_and_leaves_the_code(course):
    rewrite(course, "# > the last cell\n", "2 + 2\n# > the last cell\n# >   second\n# = 4\n")
    last = source.solved_notebook("sample", course).cells[-1]
    assert last.source == 'print("the last cell")\n2 + 2'
    assert last.outputs[0].text == "the last cell\n  second\n"
    assert last.outputs[1].data["text/plain"] == "4"
    assert "nbval-check-output" in last.metadata["tags"]


def test_other_cells_have_no_outputs():
    found = source.solved_notebook("sample", COURSE).cells
    assert all(not cell.outputs for cell in found[:-1] if cell.cell_type == "code")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('exercise="size"', 'exercise="sise"', "no exercise 'sise'"),
        ('check="size"', 'check="sise"', "no exercise 'sise'"),
        ('# %% check="size"', "# %%", "'size' of labs.toml needs one cell"),
        ('# %% exercise="size"', "# %%", "'size' of labs.toml needs one cell"),
        ('check="size"', 'check="first"', "there are 2"),
    ],
)
def test_a_source_that_does_not_fit_labs_toml_gets_a_sentence(course, old, new, sentence):
    rewrite(course, old, new)
    with pytest.raises(ValueError, match=r"sample\.py") as caught:
        source.solved_notebook("sample", course)
    assert sentence in str(caught.value)


def test_a_lab_without_a_source_gets_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="has no source"):
        source.solved_notebook("sample", replace(COURSE, sources=tmp_path))


def test_lines_before_the_first_cell_stay_out_of_the_notebook():
    assert (COURSE.sources / "sample.py").read_text().startswith("# ruff")
    first = source.solved_notebook("sample", COURSE).cells[0]
    assert (first.cell_type, first.source) == ("markdown", "# A sample")
