"""A built notebook holds nothing of the answers, and the same source gives the same bytes."""

from dataclasses import replace

import nbformat
import pytest
from sample_course import COURSE

from allhands.kit import build


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    course = replace(COURSE, notebooks=tmp_path_factory.mktemp("notebooks"))
    (path,) = build.build(course)
    return course, path


def test_a_second_build_changes_no_byte(built):
    course, path = built
    before = path.read_bytes()
    build.build(course, ["sample"])
    assert path.read_bytes() == before
    assert build.out_of_date(course) == []


def test_the_participants_notebook_has_no_answers_and_no_outputs(built):
    notebook = nbformat.read(built[1], as_version=4)
    nbformat.validate(notebook)
    text = "\n".join(cell.source for cell in notebook.cells)
    assert "SOLUTION" not in text
    assert "FAULT" not in text
    assert "number + number" not in text
    assert 'len("abc")' not in text
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_the_participant_gets_specification_stub_fault_and_name(built):
    cells = {cell.id: cell for cell in nbformat.read(built[1], as_version=4).cells}
    assert "Takes and returns an int." in cells["double"].source
    assert cells["double"].source.endswith("    ...  # your code here")
    assert cells["first"].source.endswith("    return word[1]")
    assert cells["size"].source == "size = ...  # your code here"
    assert cells["check_first"].metadata["editable"] is False
    assert cells["check_first"].metadata["deletable"] is False


def test_a_notebook_that_differs_is_out_of_date(built, tmp_path):
    course = replace(built[0], notebooks=tmp_path)
    (sentence,) = build.out_of_date(course)
    assert "sample.ipynb is not what sample.py gives" in sentence
    path = tmp_path / "sample.ipynb"
    path.write_bytes(built[1].read_bytes() + b" ")
    assert len(build.out_of_date(course)) == 1


def test_the_solved_notebook_holds_the_answers_and_the_stated_outputs(tmp_path):
    (path,) = build.build_solved(tmp_path / "new", COURSE)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    text = "\n".join(cell.source for cell in notebook.cells)
    assert "return number + number" in text
    assert notebook.cells[-1].outputs[0].text == "the last cell\n"


def test_an_unknown_lab_gets_a_sentence_and_exit_code_1(capsys):
    assert build.main(["lab99"]) == 1
    assert "There is no lab 'lab99'" in capsys.readouterr().err
