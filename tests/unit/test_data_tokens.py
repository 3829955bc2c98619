"""Is a sentence cut where the three ways say, and put together again without loss?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.data.tokens import HOWS, fits, join, split

texts = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "how", "tokens"),
    [
        ("Don't pay $15.", "words", ["don't", "pay", "$", "1", "5", "."]),
        ("Wed, Apr 2, 1986", "words", ["wed", ",", "apr", "2", ",", "1", "9", "8", "6"]),
        ("half-asleep", "words", ["half", "-", "asleep"]),
        ("a_b'", "words", ["a", "_", "b", "'"]),
        ("Él comió 3½", "words", ["él", "comió", "3", "½"]),
        ("COVID19", "words", ["covid", "1", "9"]),
        ("二 十\u3000一。", "chars", ["二", "十", "一", "。"]),
        ("New York 10", "chars", list("NewYork10")),
        ("Keep  It\tas-is .", "spaces", ["Keep", "It", "as-is", "."]),
    ],
)
def test_tokens_by_hand(text, how, tokens):
    assert split(text, how) == tokens


@pytest.mark.parametrize("how", HOWS)
@given(texts)
def test_joined_tokens_split_into_the_same_tokens(how, text):
    tokens = split(text, how)
    assert split(join(tokens, how), how) == tokens


@pytest.mark.parametrize("how", HOWS)
@given(texts)
def test_no_character_is_lost_but_blanks(how, text):
    text = text.lower()
    assert "".join(split(text, how)) == "".join(text.split())
    assert all(token and not any(map(str.isspace, token)) for token in split(text, how))


@given(texts)
def test_digits_stand_alone_in_words(text):
    assert all(len(token) == 1 for token in split(text, "words") if any(map(str.isdecimal, token)))


def test_join_by_hand():
    assert join(["a", "cat", "."], "words") == "a cat ."
    assert join(["ね", "こ"], "chars") == "ねこ"
    assert join([], "spaces") == ""


@pytest.mark.parametrize("function", [split, join])
def test_an_unknown_way_is_refused(function):
    with pytest.raises(ValueError, match='"words", "chars" or "spaces"; asked for \'syllables\''):
        function("a", "syllables")


@pytest.mark.parametrize(
    ("source", "target", "max_length", "kept"),
    [
        (3, 3, None, True),
        (3, 3, 3, True),
        (4, 3, 3, False),
        (3, 4, 3, False),
        (0, 3, 3, False),
        (3, 0, None, False),
        (0, 0, None, False),
    ],
)
def test_the_length_filter_by_hand(source, target, max_length, kept):
    assert fits("x" * source, "y" * target, max_length) is kept
