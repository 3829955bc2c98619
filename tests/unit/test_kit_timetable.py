"""Timetables: times follow from minutes, and a plan that cannot be held is refused."""

import pytest

from allhands.kit import timetable
from allhands.labs import Lab

LABS = {
    "one": Lab("one", "Lab one", "", 90, (), (), ()),
    "two": Lab("two", "Lab two", "", 60, ("one",), (), ()),
    "six": Lab("six", "Lab six", "", 75, ("one",), (), ()),
}
FILE = """
people = {{lead = "Ada", mentors = "all"}}
talk = {{one = 10, two = 5, six = 7}}
[[plan]]
name = "a day"
about = "Words."
[[plan.day]]
starts = "09:00"
ends = "{ends}"
item = [{items}]
"""
ONE, TWO = '{lab = "one", who = "lead"}', '{lab = "two", who = "lead"}'


def load(tmp_path, *items: str, ends: str = "18:00") -> timetable.Timetable:
    path = tmp_path / "timetable.toml"
    path.write_text(FILE.format(items=", ".join(items), ends=ends))
    return timetable.load(path, LABS)


def times(found: timetable.Timetable) -> list[tuple[str, str, str]]:
    clock = timetable.clock
    rows = found.plan("a day").days[0]
    return [(clock(row.start_min), clock(row.end_min), row.what) for row in rows]


def test_a_lab_is_its_talk_and_then_its_own_minutes(tmp_path):
    pause = '{pause = "Coffee", minutes = 15}'
    assert times(load(tmp_path, ONE, pause, TWO)) == [
        ("09:00", "09:10", "Talk: `one`"),
        ("09:10", "10:40", "Lab: Lab one"),
        ("10:40", "10:55", "Coffee"),
        ("10:55", "11:00", "Talk: `two`"),
        ("11:00", "12:00", "Lab: Lab two"),
    ]


def test_a_choice_takes_as_long_as_the_longest(tmp_path):
    found = load(tmp_path, ONE, '{choose = ["two", "six"], who = "lead"}')
    assert times(found)[2:] == [
        ("10:40", "10:47", "Talk: `two` or `six`"),
        ("10:47", "12:02", "Lab: Lab two or Lab six"),
    ]


def test_a_key_that_is_lacking_is_named(tmp_path):
    path = tmp_path / "timetable.toml"
    path.write_text(FILE.replace('about = "Words."', "").format(items=ONE, ends="18:00"))
    with pytest.raises(ValueError, match="lacks the key 'about'"):
        timetable.load(path, LABS)


@pytest.mark.parametrize(
    ("items", "sentence"),
    [
        ([TWO], "holds two before one, which it needs"),
        (['{lab = "three", who = "lead"}'], "unknown lab 'three'"),
        (['{talk = "seven", who = "lead"}'], "'seven' has no minutes"),
        (['{talk = "one", who = "nobody"}'], "Nobody is 'nobody'"),
        (['{pause = "Lunch"}'], "pause and what need minutes"),
        ([ONE, TWO], "ends 45 min after 11:00"),
    ],
)
def test_a_plan_that_cannot_be_held_says_why(tmp_path, items, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(tmp_path, *items, ends="11:00")


def test_a_table_ends_with_the_end_of_the_day(tmp_path):
    found = load(tmp_path, ONE)
    table = timetable.day_table(found.plan("a day").days[0])
    assert table.splitlines()[-2:] == [
        "| 09:10 | 90 | Lab: Lab one | all |",
        "| 10:40 | | *End* | |",
    ]


def test_an_unknown_plan_or_table_says_what_there_is():
    with pytest.raises(ValueError, match="There are: 'two days'"):
        timetable.load().plan("a week")
    with pytest.raises(ValueError, match="no table"):
        timetable.table("points")
    with pytest.raises(ValueError, match="not a day 3"):
        timetable.table("two days, day 3")
