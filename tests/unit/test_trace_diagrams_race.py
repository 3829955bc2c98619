"""What is left of a rank's traceback when the first rank ends the job."""

import pytest

from allhands.trace.diagrams_race import left_of, race

CASES = {  # rank, spread_s, writes_s, wait_s
    "the first rank is whole": ((0, 1.0, 2.0, 0.0), "whole"),
    "it had begun": ((1, 1.0, 2.0, 0.0), "cut"),
    "it comes with the abort": ((2, 1.0, 2.0, 0.0), "silent"),
    "it comes after the abort": ((3, 1.0, 2.0, 0.0), "silent"),
    "the wait is as long as the ranks are apart": ((3, 1.0, 2.0, 3.0), "whole"),
    "the wait is a little shorter": ((3, 1.0, 2.0, 2.9), "cut"),
    "all at once": ((3, 0.0, 2.0, 0.0), "whole"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_left_of_a_traceback(case):
    numbers, found = CASES[case]
    assert left_of(*numbers) == found


def test_each_panel_counts_the_whole_tracebacks():
    titles = [axes.get_title(loc="left") for axes in race(1.0, 2.0, (0.0, 1.5, 3.0), ranks=4).axes]
    assert [title.split(": ")[1] for title in titles] == [
        "1 of 4 tracebacks",
        "2 of 4 tracebacks",
        "4 of 4 tracebacks",
    ]


def test_the_words_in_the_picture_are_the_ranks_endings():
    (panel, *_) = race(1.0, 2.0, (0.0, 3.0), ranks=3).axes
    said = [text.get_text() for text in panel.texts]
    assert [word for word in said if "abort" not in word] == ["whole", "cut", "silent"]
