"""At the desk, whatever a participant's code does ends in a verdict, and nothing gets to stderr."""

import logging
import os
import signal
import subprocess
import sys
import warnings

import chainer.functions as F
import numpy as np
import pytest
from sample_course import COURSE

from allhands.grade import guard
from allhands.grade.check import NOT_WRITTEN
from allhands.grade.desk import OURS, Desk


@pytest.fixture
def desk():
    return Desk("sample", COURSE)


def right(number):
    return 2 * number


def test_a_right_answer_gets_all_points(desk):
    verdict = desk.check("double", right)
    assert verdict.full
    assert verdict.said == ("Good: twice 1 is 2.", "Good: twice 3 is 6.")


def test_a_likely_mistake_gets_its_sentence_and_the_points_it_earned(desk):
    assert "Try: 1 times 1 is not twice 1." in desk.check("double", lambda n: n * n).said[0]
    assert desk.check("double", lambda n: 2).score == 1


def stub(number):
    """Twice the number."""
    ...


@pytest.mark.parametrize("answer", [..., None, "", stub])
def test_a_blank_answer_is_not_written_yet(desk, answer):
    verdict = desk.check("double", answer)
    assert verdict.said == (NOT_WRITTEN,)
    assert verdict.score == 0


def test_no_answer_at_all_is_blank(desk):
    assert desk.check("double").said == (NOT_WRITTEN,)


def test_an_error_is_told_with_its_type_its_message_and_the_participants_line(desk):
    def broken(number):
        table = {}
        return table["missing"]  # their line

    (said,) = desk.check("double", broken).said
    assert "KeyError: 'missing'" in said
    assert '`return table["missing"]  # their line`' in said
    assert "of `broken`" in said
    assert "Traceback" not in said


def test_an_error_inside_a_library_is_told_with_the_participants_line(desk):
    def broken(number):
        return subprocess.run(["/no/such/program"])

    (said,) = desk.check("double", broken).said
    assert "FileNotFoundError" in said
    assert "`return subprocess.run(" in said


def test_what_was_earned_before_an_error_stays(desk):
    def sometimes(number):
        if number == 3:
            raise ValueError("three")
        return 2 * number

    verdict = desk.check("double", sometimes)
    assert verdict.score == 1
    assert "ValueError: three" in verdict.said[-1]


class Unreadable(Exception):
    def __str__(self):
        raise ValueError("no")


def test_an_error_without_a_message_that_can_be_read_is_told_by_its_type(desk):
    def broken(number):
        raise Unreadable

    (said,) = desk.check("double", broken).said
    assert said.startswith("Seen: Unreadable: its message cannot be read. Try: look at line ")


def test_of_a_long_message_the_first_line_is_told_and_no_more_than_200_characters(desk):
    def many_lines(number):
        raise ValueError("\nthe first line.\n" + "another\n" * 5000)

    def one_line(number):
        raise ValueError("x" * 5000)

    assert "Seen: ValueError: the first line. Try" in desk.check("double", many_lines).said[0]
    told = desk.check("double", one_line).said[0]
    assert f"Seen: ValueError: {'x' * 196} .... Try" in told


def test_an_answer_that_closes_its_output_is_judged_and_its_output_shown(desk, capsys):
    def closing(number):
        print("before")
        sys.stdout.close()
        sys.stderr.close()
        return 2 * number

    assert desk.check("double", closing).full
    assert "before" in capsys.readouterr().out


def test_where_chainer_refuses_shapes_the_participant_is_told_to_look_at_them(desk):
    def wrong_rank(number):
        return F.softmax_cross_entropy(np.zeros((2, 3, 4), "f"), np.zeros((2, 3), "i"))

    def unequal(number):
        return F.matmul(np.zeros((2, 3), "f"), np.zeros((2, 3), "f"))

    for answer in (wrong_rank, unequal):
        (said,) = desk.check("double", answer).said
        assert ". Chainer does not take arrays of these shapes or dtypes: look at shape" in said
        assert f"of `{answer.__name__}`: `return F." in said


def leave(number):
    sys.exit(3)


def interrupt(number):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("answer", "words"), [(leave, "ends the program"), (interrupt, "interrupt")]
)
def test_the_participant_cannot_end_the_check(desk, answer, words):
    assert words in desk.check("double", answer).said[0]


def loop(number):
    while True:
        pass


def stubborn_loop(number):
    try:
        loop(number)
    except BaseException:
        loop(number)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs SIGALRM")
@pytest.mark.parametrize("answer", [loop, stubborn_loop])
def test_an_endless_loop_ends(desk, answer):
    assert "no answer within 1 s" in desk.check("double", answer).said[-1]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="needs SIGALRM")
def test_a_timer_that_ran_before_goes_on_after():
    rings = []
    old_handler = signal.signal(signal.SIGALRM, lambda *_: rings.append(1))
    old_timer = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        with guard.time_limit(500):
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
        assert 500 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, *old_timer)
        signal.signal(signal.SIGALRM, old_handler)
    assert not rings


def noisy(number):
    print("from print")
    print("from stderr", file=sys.stderr)
    warnings.warn("from warnings", stacklevel=1)
    logging.getLogger().error("from logging")
    os.write(2, b"from a descriptor\n")
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('from a child')"])
    return 2 * number


def test_nothing_reaches_stderr_and_what_was_printed_is_shown(desk, capfd):
    logging.getLogger().addHandler(handler := logging.StreamHandler(sys.stderr))
    try:
        assert desk.check("double", noisy).full
    finally:
        logging.getLogger().removeHandler(handler)
    out, err = capfd.readouterr()
    assert err == ""
    for source in ("print", "stderr", "warnings", "a descriptor", "a child"):
        assert f"from {source}" in out


def test_only_the_last_lines_of_much_printing_are_shown(desk, capsys):
    def chatty(number):
        print(*range(1000), sep="\n")
        return 2 * number

    desk.check("double", chatty)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "999"
    assert len(lines) == 20


def test_under_validate_the_reason_goes_to_stderr(desk, capsys, monkeypatch):
    monkeypatch.setenv("NBGRADER_VALIDATING", "1")
    desk.check("double", right)
    assert capsys.readouterr().err == ""
    desk.check("first", lambda word: "z")
    assert "Try: count from 0." in capsys.readouterr().err


def test_hints_come_in_steps_and_then_it_says_that_there_are_no_more(desk):
    assert "Which sum is it?" in repr(desk.hint("double"))
    assert "Add the number to itself." in repr(desk.hint("double"))
    assert "no more hints" in repr(desk.hint("double"))
    assert "no more hints" in desk.hint("double")._repr_html_()
    assert "Where does counting start?" in repr(desk.hint("first"))


def test_nobody_is_stuck(desk):
    ours = object()
    assert desk.carry_on("double", stub, ours) is ours
    desk.check("double", lambda n: 2)
    assert desk.carry_on("double", stub, ours) is ours
    desk.check("double", right)
    assert desk.carry_on("double", right, ours) is right


def ours(number):
    return number + number


@pytest.mark.parametrize(("answer", "score"), [(stub, 0), (lambda n: 2, 1)])
def test_the_packages_version_earns_nothing_when_the_check_is_run_again(desk, answer, score):
    before = desk.check("double", answer)
    name = desk.carry_on("double", answer, ours)
    again = desk.check("double", name)
    assert (again.score, again.said) == (score, (OURS,))
    assert desk.verdicts["double"] is before
    assert desk.carry_on("double", name, ours) is ours  # nor when both cells are run again
    assert desk.check("double", right).full


def test_the_packages_version_may_serve_in_the_check_of_another_exercise(desk):
    desk.carry_on("double", stub, ours)
    assert OURS not in desk.check("first", ours).said
    assert Desk("sample", COURSE).check("double", ours).full


def test_the_score_table_adds_the_last_verdicts(desk):
    desk.check("double", right)
    desk.check("reason", "b")
    desk.check("reason", "a")
    table = desk.score()
    assert (table.score, table.points) == (4, 7.5)
    assert "4 of 7.5" in repr(table)
    assert "4 of 7.5" in table._repr_html_()


def test_an_unknown_exercise_is_the_authors_mistake(desk):
    with pytest.raises(ValueError, match="no exercise 'triple'"):
        desk.check("triple", right)
