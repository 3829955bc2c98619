"""What a check answers, and the few words that checks are written in.

A check is one function in `grade/checks/<stem>.py`. It has the exercise's id as its name; it gets a
`Marker` and what the participant made, and says what it asks for, one requirement after the other:

    def pad(mark, pad):
        got = mark.run(pad, [[5, 6, 7], [8]])
        mark.need(np.shape(got) == (2, 3), "a batch of 2 rows and 3 columns", show(np.shape(got)),
                  "the longest row says how many columns")
        mark.require(got[1].tolist() == [8, 0, 0], 2, "PAD fills the right side", show(got[1]),
                     likely((got[1].tolist() == [0, 0, 8], "put the zeros after the words"),
                            otherwise="start from an array of zeros"))

The points of all `require` calls add up to the exercise's points. What was asked is written as a
noun phrase or a short clause without a full stop; the marker makes the sentences.
"""

import dis
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from allhands.grade import panel
from allhands.labs import Exercise

MIME = "application/vnd.allhands.verdict+json"
NOT_WRITTEN = "This answer is not written yet."
NOT_YET = "This point comes when the one above is right."


@dataclass(frozen=True)
class Verdict:
    """What a check found: points (0 .. exercise.points) and sentences.

    As the last value of a notebook cell it shows a panel. Its repr is the score alone, because
    nbgrader reads partial credit from there; MIME carries id, score, max and said for
    `grade.notebook`.
    """

    exercise: Exercise
    score: float
    said: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 <= self.score <= self.exercise.points:
            raise ValueError(
                f"The check of {self.exercise.id!r} gave {self.score:g} points, but the exercise "
                f"has {self.exercise.points:g}. Make the points of its requirements add up to that."
            )

    @property
    def full(self) -> bool:
        return self.score >= self.exercise.points

    def __repr__(self) -> str:
        return f"{self.score:g}"

    def __str__(self) -> str:
        head = f"{self.exercise.title}: {self.score:g} of {self.exercise.points:g} points"
        return "\n".join([head, *(f"- {sentence}" for sentence in self.said), self.last])

    @property
    def last(self) -> str:
        """The explanation after success; else the way to a hint."""
        if self.full:
            return self.exercise.why
        return f'Stuck? Run `desk.hint("{self.exercise.id}")` in a new cell.'

    @property
    def plain(self) -> str:
        """The sentences as plain text; what was seen and what to try have lines of their own."""
        return re.sub(r" (Seen|Try): ", r"\n\1: ", "\n".join(self.said)).replace("`", "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.exercise.id,
            "score": self.score,
            "max": self.exercise.points,
            "said": list(self.said),
        }

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict[str, Any]:
        html = panel.verdict(
            self.exercise.title,
            self.score,
            self.exercise.points,
            self.said,
            self.last,
            blank=self.said == (NOT_WRITTEN,),
        )
        data = json.loads(json.dumps(self.as_dict()))
        return {"text/plain": repr(self), "text/html": html, MIME: data}


class Stop(Exception):
    """The rest of a check makes no sense; what was said and earned so far stands."""


class Marker:
    """Collects points and sentences while a check runs."""

    def __init__(self, exercise: Exercise) -> None:
        self.exercise = exercise
        self.score = 0.0
        self.said: list[str] = []

    def require(
        self,
        ok: bool,
        points: float,
        asked: str,
        seen: str = "",
        advice: str = "",
        *,
        after: bool = True,
    ) -> bool:
        """Give `points` if `ok`; else say what was asked, what was seen and what to try.

        `after` is what an earlier requirement returned, where this one means nothing without it: if
        that failed, there are no points, and the sentence sends the participant to the one above.
        """
        if not after:
            self.said.append(NOT_YET)
            return False
        if ok:
            self.score += points
            self.said.append(f"Good: {_ended(asked)}")
        else:
            self.said.append(sentences(asked, seen, advice))
        return bool(ok)

    def need(self, ok: bool, asked: str, seen: str = "", advice: str = "") -> None:
        """What the rest stands on: nothing is said if `ok`, else the check ends here."""
        if not ok:
            self.said.append(sentences(asked, seen, advice))
            raise Stop

    def run(self, function: Callable, *args, none_passes: bool = False, **kwargs) -> Any:
        """Call the participant's function. None, `...` and NotImplementedError mean: not written
        yet.

        With `none_passes`, the None of a function that has a body is returned: it is written and
        lacks a `return`, and the check says so. Other errors pass through; the desk makes a
        sentence of them.
        """
        try:
            result = function(*args, **kwargs)
        except NotImplementedError:
            result = None
        if none_passes and result is None and has_body(function):
            return None
        if is_blank(result):
            self.said.append(NOT_WRITTEN)
            raise Stop
        return result

    def verdict(self) -> Verdict:
        score = round(self.score, 6)
        return Verdict(self.exercise, score, tuple(self.said) or (NOT_WRITTEN,))


def is_blank(answer: object) -> bool:
    return answer is None or answer is Ellipsis or (isinstance(answer, str) and not answer.strip())


def has_body(function: Callable) -> bool:
    """False for a stub: a function with a docstring and `...`, `pass` or `return None` alone."""
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType):
        return True
    done = {each.opname for each in dis.get_instructions(function)}
    raises = "RAISE_VARARGS" in done and "NotImplementedError" in function.__code__.co_names
    return not (raises or done <= {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"})


def sentences(asked: str, seen: str = "", advice: str = "") -> str:
    """'Asked: ... Seen: ... Try: ...', each with a full stop; empty parts are left out."""
    parts = (("Asked", asked), ("Seen", seen), ("Try", advice))
    return " ".join(f"{word}: {_ended(text)}" for word, text in parts if text.strip())


def _ended(text: str) -> str:
    return text.strip() + ("" if text.strip()[-1] in ".?!" else ".")


def likely(*cases: tuple[Any, str], otherwise: str = "") -> str:
    """The sentence of the first case that holds: one case for each likely mistake."""
    return next((sentence for holds, sentence in cases if holds), otherwise)


def show(value: object, width: int = 100) -> str:
    """A value on one line, as code, cut to `width` characters."""
    if hasattr(value, "tolist") and not isinstance(value, type):
        value = value.tolist()
    line = " ".join(repr(value).split()).replace("`", "'")
    return f"`{line if len(line) <= width else line[: width - 4] + ' ...'}`"


def judge_explanation(mark: Marker, given: object) -> None:
    """The check of an `explain` exercise with its answer in labs.toml: a choice or a number."""
    exercise = mark.exercise
    if exercise.choices:
        letters = ", ".join(exercise.choices)
        key = str(given).strip().strip(".()").lower()
        mark.need(key in exercise.choices, f"one of the letters {letters}", show(given))
        if key == exercise.answer:
            mark.require(True, exercise.points, exercise.choices[key])
        else:
            reply = exercise.replies.get(key, "That does not fit what you saw.")
            mark.said.append(f"You chose {key}: {_ended(exercise.choices[key])} {_ended(reply)}")
        return
    try:
        number = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        mark.need(False, "a number", show(given), "write the number alone, without its unit")
    right = abs(number - float(exercise.answer)) <= exercise.tolerance
    mark.require(right, exercise.points, "the right number", show(number), "look at it again")
