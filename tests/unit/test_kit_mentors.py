"""The mentors' pages: the exercises stand between two marks, and nothing else is touched."""

import dataclasses

import pytest
from sample_course import COURSE

from allhands.kit import mentors

LAB = COURSE.lab("sample")
PAGE = f"# Title\n\n{mentors.BEGIN}\nold\n{mentors.END}\n\nThe end.\n"


def test_each_exercise_has_a_row_with_its_first_hint():
    text = mentors.with_exercises(PAGE, LAB)
    assert text.startswith(f"# Title\n\n{mentors.BEGIN}\n")
    assert text.endswith(f"{mentors.END}\n\nThe end.\n")
    assert "old" not in text
    rows = mentors.rows("## Here\n" + mentors.exercises(LAB), "Here")
    assert [row[0].strip("`") for row in rows] == [each.id for each in LAB.exercises]
    assert [row[4] for row in rows] == [each.hints[0] for each in LAB.exercises]
    assert mentors.with_exercises(text, LAB) == text


def test_a_bar_in_a_hint_stays_in_its_cell():
    first = dataclasses.replace(LAB.exercises[0], hints=("a | b",))
    table = mentors.exercises(dataclasses.replace(LAB, exercises=(first,)))
    (row,) = mentors.rows(f"## One\n{table}", "One")
    assert len(row) == 5
    assert row[4] == r"a \| b"


def test_rows_are_those_of_one_section():
    text = "## A\n| x | y |\n|---|---|\n| 1 | 2 |\n\n## B\n| z |\n|---|\n| 3 |\n"
    assert mentors.rows(text, "A") == [["1", "2"]]
    assert mentors.rows(text, "B") == [["3"]]
    assert mentors.rows(text, "C") == []


@pytest.mark.parametrize("text", ["", mentors.BEGIN, PAGE + PAGE])
def test_a_page_without_both_marks_once_is_refused(text):
    with pytest.raises(ValueError, match="once each, around the place of the table of sample"):
        mentors.with_exercises(text, LAB)


def test_check_tells_and_changes_nothing_and_a_missing_page_is_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mentors, "COURSE", COURSE)
    assert mentors.main(["--check"], tmp_path) == 1
    assert "is missing: write it" in capsys.readouterr().out
    page = mentors.page("sample", tmp_path)
    for stem in COURSE.labs():
        mentors.page(stem, tmp_path).parent.mkdir()
        mentors.page(stem, tmp_path).write_text(PAGE)
    assert mentors.main(["--check"], tmp_path) == 1
    assert page.read_text() == PAGE
    assert "run `make notebooks`" in capsys.readouterr().out
    assert mentors.main([], tmp_path) == 0
    assert mentors.main(["--check"], tmp_path) == 0


def test_pages_are_printed_with_their_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mentors, "COURSE", COURSE)
    for stem, lab in COURSE.labs().items():
        mentors.page(stem, tmp_path).parent.mkdir()
        mentors.page(stem, tmp_path).write_text(mentors.with_exercises(PAGE, lab))
    out = tmp_path / "paper"
    assert mentors.main(["--print", str(out)], tmp_path) == 0
    assert {path.stem for path in out.glob("*.html")} == set(COURSE.labs())
    html = (out / "sample.html").read_text(encoding="utf-8")
    assert html.count("<tr>") == 1 + len(LAB.exercises)
    assert "size: A4" in html
