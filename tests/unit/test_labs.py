"""labs.toml: what it says arrives unchanged, and what it must not say gets a sentence."""

from dataclasses import FrozenInstanceError

import pytest

from allhands import labs

LAB = """
[[lab]]
stem = "one"
title = "The first"
aim = "do it"
minutes = 10
needs = []
presets = ["small"]
"""
EXERCISE = """
[[lab.exercise]]
id = "pad"
kind = "implement"
title = "Pad"
points = 2
hints = ["a", "b"]
why = "So."
"""


def load(tmp_path, text):
    path = tmp_path / "labs.toml"
    path.write_text(text, encoding="utf-8")
    return labs.load(path)


def test_labs_and_exercises_come_in_the_order_of_the_file(tmp_path):
    second = LAB.replace('"one"', '"two"').replace("needs = []", 'needs = ["one"]')
    other = EXERCISE.replace('"pad"', '"other"').replace("points = 2", "points = 1.5")
    found = load(tmp_path, LAB + EXERCISE + other + second)
    assert list(found) == ["one", "two"]
    assert found["two"].needs == ("one",)
    assert [exercise.id for exercise in found["one"].exercises] == ["pad", "other"]
    assert found["one"].points == 3.5
    assert found["one"].exercise("pad").hints == ("a", "b")
    assert found["one"].presets == ("small",)


def test_a_lab_cannot_be_changed(tmp_path):
    lab = load(tmp_path, LAB + EXERCISE)["one"]
    with pytest.raises(FrozenInstanceError):
        lab.title = "another"


CHOICE = 'choices = { a = "yes", b = "no" }\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (LAB + "colour = 1\n", "unknown key colour"),
        ("other = 1\n" + LAB, "unknown keys"),
        (LAB.replace("minutes = 10\n", ""), "missing key minutes"),
        (LAB + LAB, "'one' is there twice"),
        (LAB.replace("needs = []", 'needs = ["zero"]'), "needs the unknown zero"),
        (LAB + EXERCISE + EXERCISE, "pad is there twice"),
        (LAB + EXERCISE.replace("implement", "guess"), "kind 'guess' is not one of"),
        (LAB + EXERCISE.replace('["a", "b"]', "[]"), "no hints"),
        (LAB + EXERCISE.replace("points = 2", "points = 0"), "points = 0 is not above 0"),
        (LAB + EXERCISE.replace("points = 2", "points = true"), "points = True"),
        (LAB + EXERCISE.replace('"pad"', '"a pad"'), "is not a Python name"),
        (LAB + EXERCISE + "tip = 1\n", "unknown key tip"),
        (LAB + EXERCISE + "limit_s = -1\n", "limit_s = -1"),
        (LAB + EXERCISE + CHOICE + 'answer = "c"\n', "must be keys of choices"),
        (LAB + EXERCISE + CHOICE + 'answer = "a"\nreplies = { z = "?" }\n', "keys of choices"),
        ("[[lab", "is not TOML"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_with_the_file(tmp_path, text, sentence):
    with pytest.raises(ValueError, match=r"labs\.toml") as caught:
        load(tmp_path, text)
    assert sentence in str(caught.value)


def test_the_lab_and_the_exercise_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"lab 'one': exercise 'pad': .*no hints"):
        load(tmp_path, LAB + EXERCISE.replace('["a", "b"]', "[]"))


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path):
    lab = load(tmp_path, LAB + EXERCISE)["one"]
    with pytest.raises(ValueError, match=r"no exercise 'bad'\. It has: pad"):
        lab.exercise("bad")
    with pytest.raises(ValueError, match=r"no lab 'nine'\. There are: .*lab1_seq2seq"):
        labs.COURSE.lab("nine")


def test_the_courses_own_labs_are_found():
    assert labs.load() == labs.COURSE.labs()
    assert "lab1_seq2seq" in labs.load()
