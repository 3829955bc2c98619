"""A verdict has three readers: nbgrader (a number), the notebook (a panel), the grader (JSON)."""

import functools
import json

import numpy as np
import pytest

from allhands.grade.check import (
    MIME,
    NOT_WRITTEN,
    NOT_YET,
    Marker,
    Stop,
    Verdict,
    has_body,
    judge_explanation,
    likely,
    show,
)
from allhands.labs import Exercise


def exercise(**changes):
    values = {
        "id": "pad",
        "kind": "implement",
        "title": "Pad <b>rows</b>",
        "points": 3,
        "hints": ("one",),
        "why": "Because `PAD` is 0.",
    }
    return Exercise(**{**values, **changes})


@pytest.mark.parametrize("score", [0, 1.5, 3])
def test_the_repr_is_the_score_that_nbgrader_reads(score):
    from nbformat.v4 import new_code_cell, new_output
    from nbgrader.utils import determine_grade

    bundle = Verdict(exercise(), score, ("x",))._repr_mimebundle_()
    cell = new_code_cell(outputs=[new_output("execute_result", bundle)])
    cell.metadata["nbgrader"] = {"grade": True, "points": 3.0}
    assert determine_grade(cell) == (score, 3.0)


def test_the_verdict_carries_its_sentences_as_json():
    bundle = Verdict(exercise(), 1, ("Good: a.", "Asked: b. Seen: c."))._repr_mimebundle_()
    assert json.loads(json.dumps(bundle[MIME])) == {
        "id": "pad",
        "score": 1,
        "max": 3,
        "said": ["Good: a.", "Asked: b. Seen: c."],
    }


def test_the_panel_explains_after_success_and_offers_a_hint_before():
    full = Verdict(exercise(), 3, ("Good: a.",))._repr_mimebundle_()["text/html"]
    part = Verdict(exercise(), 1, ("Asked: a.",))._repr_mimebundle_()["text/html"]
    assert "Because" in full
    assert "desk.hint" not in full
    assert "Because" not in part
    assert 'desk.hint("pad")' in part


def test_the_panel_escapes_what_it_shows():
    html = Verdict(exercise(), 0, ("Seen: `<script>`.",))._repr_mimebundle_()["text/html"]
    assert "<script>" not in html
    assert "<b>rows" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize("score", [-1, 3.5])
def test_a_score_outside_the_points_is_the_fault_of_the_check(score):
    with pytest.raises(ValueError, match="add up"):
        Verdict(exercise(), score, ())


def test_plain_text_puts_what_was_seen_and_what_to_try_on_their_own_lines():
    said = ("Asked: a. Seen: `b`. Try: c.",)
    assert Verdict(exercise(), 0, said).plain == "Asked: a.\nSeen: b.\nTry: c."


def test_requirements_add_up():
    mark = Marker(exercise())
    assert mark.require(True, 1, "one")
    assert not mark.require(False, 1.5, "two", "`2`", "count again!")
    assert mark.require(np.bool_(True), 0.5, "three")
    verdict = mark.verdict()
    assert verdict.score == 1.5
    assert verdict.said == (
        "Good: one.",
        "Asked: two. Seen: `2`. Try: count again!",
        "Good: three.",
    )


@pytest.mark.parametrize("ok", [True, False])
def test_what_stands_on_a_failed_requirement_waits_for_it(ok):
    mark = Marker(exercise())
    right = mark.require(False, 1, "one", "`2`")
    assert mark.require(ok, 2, "two", "`3`", "count", after=right) is False
    assert mark.verdict().score == 0
    assert mark.said == ["Asked: one. Seen: `2`.", NOT_YET]
    assert NOT_YET == "This point comes when the one above is right."


def test_what_stands_on_a_met_requirement_is_judged_itself():
    mark = Marker(exercise())
    right = mark.require(True, 1, "one")
    assert mark.require(True, 1, "two", after=right)
    assert not mark.require(False, 1, "three", "`4`", after=right)
    assert mark.verdict().said == ("Good: one.", "Good: two.", "Asked: three. Seen: `4`.")
    assert mark.verdict().score == 2


def test_a_need_that_is_not_met_ends_the_check_and_keeps_what_was_earned():
    mark = Marker(exercise())
    mark.require(True, 1, "one")
    mark.need(True, "not said")
    with pytest.raises(Stop):
        mark.need(False, "an array", "a list")
    assert mark.verdict().score == 1
    assert mark.verdict().said[-1] == "Asked: an array. Seen: a list."


def not_implemented():
    raise NotImplementedError


@pytest.mark.parametrize("function", [lambda: None, lambda: ..., not_implemented])
def test_an_empty_function_is_not_written_yet(function):
    mark = Marker(exercise())
    with pytest.raises(Stop):
        mark.run(function)
    assert mark.verdict().said == (NOT_WRITTEN,)
    assert mark.verdict().score == 0


def test_a_function_that_returns_something_empty_is_written():
    assert Marker(exercise()).run(list) == []
    assert Marker(exercise()).run(lambda: 0) == 0


def without_return(number):
    """A body that forgets to return."""
    number + 1


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        print("called")
        return function(*arguments)

    return wrapper


def only_dots(number):
    """A stub."""
    ...


@pytest.mark.parametrize("stub", [only_dots, decorated(only_dots), lambda: None, not_implemented])
def test_a_docstring_and_dots_are_no_body(stub):
    assert not has_body(stub)


@pytest.mark.parametrize("written", [without_return, decorated(without_return), str.upper])
def test_what_does_something_is_a_body(written):
    assert has_body(written)


def test_a_none_passes_where_asked_if_the_function_has_a_body():
    assert Marker(exercise()).run(without_return, 1, none_passes=True) is None
    for mark, function, passes in (
        (Marker(exercise()), without_return, False),
        (Marker(exercise()), only_dots, True),
    ):
        with pytest.raises(Stop):
            mark.run(function, 1, none_passes=passes)
        assert mark.said == [NOT_WRITTEN]


def test_the_first_case_that_holds_is_the_likely_mistake():
    cases = ((False, "a"), (True, "b"), (True, "c"))
    assert likely(*cases, otherwise="d") == "b"
    assert likely(*cases[:1], otherwise="d") == "d"


def test_values_are_shown_on_one_short_line():
    assert show(np.array([[1, 2], [3, 4]])) == "`[[1, 2], [3, 4]]`"
    assert len(show("x" * 1000, width=50)) <= 52
    assert "\n" not in show(np.zeros((40, 40)))
    assert show("a`b").count("`") == 2


def test_a_type_is_shown_as_itself():
    assert show(np.ndarray) == "`<class 'numpy.ndarray'>`"
    assert show(np.float32(2)) == "`2.0`"


CHOICES = {
    "kind": "explain",
    "choices": {"a": "It is so.", "b": "It is not so"},
    "replies": {"b": "Look at the curve"},
    "answer": "a",
}


@pytest.mark.parametrize("given", ["a", " A ", "(a)", "a."])
def test_the_right_choice_gets_all_points(given):
    mark = Marker(exercise(**CHOICES))
    judge_explanation(mark, given)
    assert mark.verdict().full
    assert mark.said == ["Good: It is so."]


def test_a_wrong_choice_gets_the_reply_meant_for_it():
    mark = Marker(exercise(**CHOICES))
    judge_explanation(mark, "b")
    assert mark.score == 0
    assert mark.said == ["You chose b: It is not so. Look at the curve."]


def test_what_is_no_choice_is_told_the_choices():
    mark = Marker(exercise(**CHOICES))
    with pytest.raises(Stop):
        judge_explanation(mark, "c")
    assert "a, b" in mark.said[0]


@pytest.mark.parametrize(("given", "score"), [(2.5, 3), ("2.45", 3), (2.61, 0), (-2.5, 0)])
def test_a_number_is_right_within_its_tolerance(given, score):
    mark = Marker(exercise(kind="explain", answer=2.5, tolerance=0.1))
    judge_explanation(mark, given)
    assert mark.score == score
