"""Measured tables: what is written is read, and a broken file is named with its line."""

import pytest

from allhands.mgwfbp.table import read_table, write_table


def test_what_is_written_is_read_to_the_last_digit(tmp_path):
    times_s = [1 / 3, 2e-6]
    write_table(tmp_path / "t.csv", [4, 16], times_s)
    sizes, read_s = read_table(tmp_path / "t.csv")
    assert (sizes.tolist(), read_s.tolist()) == ([4, 16], times_s)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", r"t\.csv:1: expected the columns"),
        ("bytes,seconds\n4,1\n", r"t\.csv:1: expected the columns"),
        ("n_bytes,time_s\n4,1\n16\n", r"t\.csv:3: expected two numbers"),
        ("n_bytes,time_s\n4,fast\n", r"t\.csv:2: expected two numbers"),
    ],
)
def test_a_broken_table_is_named_with_its_line(tmp_path, text, sentence):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_table(tmp_path / "t.csv")
