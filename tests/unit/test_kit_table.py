"""The README's table of the labs says what labs.toml says."""

import pytest
from sample_course import COURSE

from allhands.kit import table

README = "# Title\n\n<!-- labs -->\nold\n<!-- /labs -->\n\nThe end.\n"


def test_only_the_part_between_the_marks_changes():
    text = table.with_table(README, COURSE.labs())
    assert text.startswith("# Title\n\n<!-- labs -->\n")
    assert text.endswith("<!-- /labs -->\n\nThe end.\n")
    assert "old" not in text
    assert "[A sample](notebooks/sample.ipynb)" in text
    assert "| 5 | 7.5 |" in text


def test_writing_twice_changes_nothing():
    once = table.with_table(README, COURSE.labs())
    assert table.with_table(once, COURSE.labs()) == once


@pytest.mark.parametrize("text", ["", "<!-- labs -->", README + README])
def test_a_text_without_both_marks_once_is_refused(text):
    with pytest.raises(ValueError, match="once each"):
        table.with_table(text, COURSE.labs())


def test_check_tells_and_changes_nothing(tmp_path, capsys):
    readme = tmp_path / "README.md"
    readme.write_text(README)
    assert table.main(["--check"], readme) == 1
    assert readme.read_text() == README
    assert "out of date" in capsys.readouterr().out
    assert table.main([], readme) == 0
    assert table.main(["--check"], readme) == 0
