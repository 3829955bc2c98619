"""Files that cannot be graded get a sentence; points and sentences of the others are read back."""

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from sample_course import COURSE
from typer.testing import CliRunner

from allhands.cli import app
from allhands.grade import notebook as grading
from allhands.grade import source
from allhands.grade.check import Verdict


def saved(tmp_path, notebook):
    path = tmp_path / "any name.ipynb"
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not a notebook that can be read"),
        ("{", "not a notebook that can be read"),
        ("[]", "not a notebook that can be read"),
        ('{"cells": 1}', "not a notebook that can be read"),
        ("\x00\xff", "not a notebook that can be read"),
        (nbformat.writes(new_notebook()), "its metadata names no lab"),
        *(
            (nbformat.writes(new_notebook(metadata={"allhands": odd})), "its metadata names no lab")
            for odd in ("x", None, ["x"], {}, {"stem": None}, {"stem": ["a"]}, {"stem": {}})
        ),
        (
            nbformat.writes(new_notebook(metadata={"allhands": {"stem": "lab99"}})),
            "'lab99', which this course has not (labs: sample)",
        ),
    ],
)
def test_a_file_that_is_no_notebook_of_the_course_is_refused(tmp_path, text, sentence):
    path = tmp_path / "x.ipynb"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(grading.GradingError, match=r"x\.ipynb") as caught:
        grading.grade_notebook(path, course=COURSE)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "x.ipynb"
    path.write_bytes("日本".encode("utf-16"))
    with pytest.raises(grading.GradingError, match="can be read"):
        grading.grade_notebook(path, course=COURSE)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(grading.GradingError, match="There is no file"):
        grading.grade_notebook(tmp_path / "x.ipynb", course=COURSE)


def test_the_notebook_of_another_lab_is_refused(tmp_path):
    path = saved(tmp_path, source.solved_notebook("sample", COURSE))
    with pytest.raises(grading.GradingError, match=r"of the lab sample, not of lab2"):
        grading.grade_notebook(path, course=COURSE, expect="lab2")


def test_a_notebook_without_the_cells_of_the_course_is_refused(tmp_path):
    notebook = source.solved_notebook("sample", COURSE)
    empty = new_notebook(metadata=notebook.metadata)
    for cell in notebook.cells:
        cell.metadata.pop("nbgrader", None)
    for each in (notebook, empty):
        with pytest.raises(grading.GradingError, match="the cell of exercise double is missing"):
            grading.grade_notebook(saved(tmp_path, each), course=COURSE)


def error(name, value):
    return new_output("error", ename=name, evalue=value, traceback=[])


def executed(*outputs, before=()):
    """A graded sample notebook: the check of `double` with these outputs, one cell before it."""
    check = new_code_cell('desk.check("double", double)', outputs=list(outputs))
    check.metadata["nbgrader"] = {
        "grade": True,
        "solution": False,
        "locked": True,
        "grade_id": "check_double",
        "points": 3.0,
    }
    first = new_code_cell("\ndef double(n):\n    return 1", outputs=list(before))
    return new_notebook(cells=[new_markdown_cell("text"), first, check])


def score_of(notebook):
    return grading._score(COURSE.lab("sample"), notebook, cell_timeout_s=600).exercises[0]


def verdict_output(score, id="double"):
    exercise = COURSE.lab("sample").exercise(id)
    return new_output(
        "execute_result", Verdict(exercise, score, ("It is so.",))._repr_mimebundle_()
    )


def test_points_and_sentences_come_from_the_verdict():
    found = score_of(executed(verdict_output(1.5)))
    assert (found.score, found.max, found.said) == (1.5, 3, ("It is so.",))


@pytest.mark.parametrize(
    "outputs",
    [
        [],
        [new_output("execute_result", {"text/plain": "3"})],
        [new_output("stream", name="stdout", text="3")],
        [verdict_output(2, id="first")],
    ],
)
def test_a_check_cell_without_its_own_verdict_gets_nothing(outputs):
    found = score_of(executed(*outputs))
    assert found.score == 0
    assert "gave no verdict" in found.said[0]


def test_an_error_text_costs_the_points_in_nbgrader_and_here_and_that_is_said():
    found = score_of(executed(new_output("stream", name="stderr", text="!"), verdict_output(3)))
    assert found.score == 0
    assert "wrote an error text" in found.said[-1]


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (error("CellTimeoutError", ""), "the cell was stopped after 600 s."),
        (
            error("KernelEnded", "an earlier cell ended the kernel"),
            "an earlier cell ended the kernel.",
        ),
        (error("NameError", "name 'double' is not defined"), "NameError: name 'double' is not"),
    ],
)
def test_a_check_that_did_not_run_says_why(output, sentence):
    found = score_of(executed(output))
    assert found.score == 0
    assert found.said[0].startswith("The check did not run to its end: ")
    assert sentence in found.said[0]


def test_the_first_trouble_before_it_is_told_too():
    found = score_of(executed(error("NameError", "x"), before=[error("SyntaxError", "bad")]))
    assert found.said[1] == "Before it, the cell `def double(n):` failed: SyntaxError: bad."


def test_the_json_has_the_promised_keys_and_is_written_whole(tmp_path):
    score = grading._score(COURSE.lab("sample"), executed(verdict_output(3)), 600)
    score.write(tmp_path / "score.json")
    found = json.loads((tmp_path / "score.json").read_text(encoding="utf-8"))
    assert set(found) == {"score", "max", "exercises"}
    assert (found["score"], found["max"]) == (3, 7.5)
    assert [each["id"] for each in found["exercises"]] == ["double", "first", "size", "reason"]
    assert set(found["exercises"][0]) == {"id", "score", "max", "said"}
    assert not list(tmp_path.glob("*.part"))


def test_a_place_for_the_score_is_tried_before_and_left_as_it_was(tmp_path):
    grading.try_place(tmp_path / "score.json")
    assert not list(tmp_path.iterdir())
    (tmp_path / "old.json").write_text("old")
    grading.try_place(tmp_path / "old.json")
    assert (tmp_path / "old.json").read_text() == "old"
    for place in (tmp_path / "nowhere" / "x.json", tmp_path):
        with pytest.raises(grading.GradingError, match=r"cannot be written to .*: name another"):
            grading.try_place(place)


@pytest.fixture
def grade_command(tmp_path, monkeypatch):
    """`allhands grade` with these words, on a notebook that gets 3 of 7.5 points at once."""
    score, path = grading._score(COURSE.lab("sample"), executed(verdict_output(3)), 600), tmp_path
    notebook = saved(path, source.solved_notebook("sample", COURSE))
    graded = []

    def grade(*words, and_then=lambda: None):
        def at_once(*_, **__):
            graded.append(notebook)
            and_then()
            return score

        monkeypatch.setattr(grading, "grade_notebook", at_once)
        return CliRunner().invoke(app, ["grade", str(notebook), *words]), len(graded)

    return grade


def test_a_score_that_could_not_be_written_costs_no_grading(grade_command, tmp_path):
    done, n_graded = grade_command("--out", str(tmp_path / "nowhere" / "x.json"))
    assert (done.exit_code, n_graded) == (2, 0)
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_score_is_shown_even_where_it_can_no_longer_be_written(grade_command, tmp_path):
    place = tmp_path / "folder" / "x.json"
    place.parent.mkdir()
    done, _ = grade_command("--out", str(place), and_then=place.parent.rmdir)
    assert done.exit_code == 2
    assert "sample: 3 of 7.5 points" in done.stdout


def test_a_score_is_written_next_to_the_notebook(grade_command, tmp_path):
    done, _ = grade_command("--json")
    assert done.exit_code == 0
    written = (tmp_path / "any name.score.json").read_text(encoding="utf-8")
    assert json.loads(written) == json.loads(done.stdout)
