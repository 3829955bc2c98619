"""Where a participant hands in an answer: `desk.check("pad", pad)`, `desk.hint("pad")`,
`desk.score()`.

The notebook's cell, the grader and the tests all come through `Desk.check`. It always returns a
`Verdict`: a participant's error, endless loop or `sys.exit()` becomes a sentence, never a stack
trace.
"""

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from allhands.grade import guard, panel
from allhands.grade.check import NOT_WRITTEN, Marker, Stop, Verdict, is_blank, judge_explanation
from allhands.labs import COURSE, Course, Exercise

OURS = (
    "This is the package's version, which the notebook goes on with: no points for it. To hand in "
    "yours, run the cell with your answer again, and then this one."
)
PRINTED_LINES = 20  # of what the participant's code printed, the last lines are shown


class Desk:
    """The desk of one lab. It remembers the last verdict and the hints of each exercise."""

    def __init__(self, stem: str, course: Course = COURSE) -> None:
        self.lab = course.lab(stem)
        self.verdicts: dict[str, Verdict] = {}
        self._course = course
        self._hints_given: dict[str, int] = {}
        self._ours: dict[str, list[object]] = {}  # what carry_on gave out, by exercise

    def __repr__(self) -> str:
        return f"The desk of {self.lab.stem}: {len(self.lab.exercises)} exercises."

    def check(self, id: str, *answer: object) -> Verdict:
        """Judge an answer. What the answer's code prints is shown (its last lines), errors are
        said.

        What `carry_on` gave out for this exercise is not an answer: the verdict stays as it was.
        """
        exercise = self.lab.exercise(id)
        if any(each is given for each in answer for given in self._ours.get(id, ())):
            before = self.verdicts.get(id)
            return Verdict(exercise, before.score if before else 0, (OURS,))
        verdict, printed = judge(exercise, self._function(exercise), answer)
        for line in printed.splitlines()[-PRINTED_LINES:]:
            print(line)
        if os.environ.get("NBGRADER_VALIDATING") and not verdict.full:
            # The Validate dialog shows the error text of a cell, and else no reason at all.
            print(verdict.plain, file=sys.stderr)
        self.verdicts[id] = verdict
        return verdict

    def _function(self, exercise: Exercise) -> Callable:
        module = importlib.import_module(f"{self._course.checks}.{self.lab.stem}")
        function = getattr(module, exercise.id, None)
        if function is not None:
            return function
        if exercise.kind == "explain" and exercise.answer is not None:
            return judge_explanation
        raise ValueError(f"{module.__name__} has no function {exercise.id!r}: write that check.")

    def hint(self, id: str) -> "Note":
        """The next hint of an exercise; it says when there are no more."""
        exercise = self.lab.exercise(id)
        given, total = self._hints_given.get(id, 0), len(exercise.hints)
        self._hints_given[id] = min(given + 1, total)
        if given < total:
            return Note(f"{exercise.title}: hint {given + 1} of {total}", exercise.hints[given])
        all_hints = " ".join(exercise.hints)
        return Note(f"{exercise.title}: there are no more hints", f"All {total} were: {all_hints}")

    def carry_on(self, id: str, mine: Any, ours: Any) -> Any:
        """Yours if its check gave full points, else the package's version: nobody is stuck.

        Where `ours` is a function, the desk knows it again when it is handed in as an answer.
        """
        verdict = self.verdicts.get(id)
        if verdict is not None and verdict.full:
            print(f"From here on the notebook uses your `{id}`.")
            return mine
        if callable(ours):
            self._ours.setdefault(id, []).append(ours)
        print(f"Your `{id}` has not all its points yet: the notebook goes on with the package's.")
        return ours

    def score(self) -> "ScoreTable":
        """The last verdict of each exercise."""
        rows = tuple((each, self.verdicts.get(each.id)) for each in self.lab.exercises)
        return ScoreTable(f"{self.lab.title}: your score so far", rows)


def judge(exercise: Exercise, check: Callable, answer: tuple[object, ...]) -> tuple[Verdict, str]:
    """Run one check under guard. Returns the verdict and what was printed meanwhile."""
    mark = Marker(exercise)
    if not answer or any(is_blank(each) for each in answer):
        return Verdict(exercise, 0, (NOT_WRITTEN,)), ""
    with guard.captured() as printed:
        try:
            with guard.time_limit(exercise.limit_s):
                check(mark, *answer)
        except Stop:
            pass
        except NotImplementedError:
            mark.said.append(NOT_WRITTEN)
        except guard.TooLong:
            mark.said.append(
                f"Seen: no answer within {exercise.limit_s:g} s. "
                "Try: look for a loop that never ends."
            )
        except BaseException as error:
            mark.said.append(guard.describe(error, answer))
    return mark.verdict(), printed.text


@dataclass(frozen=True)
class Note:
    title: str
    sentence: str

    def __repr__(self) -> str:
        return f"{self.title}. {self.sentence}"

    def _repr_html_(self) -> str:
        return panel.note(self.title, self.sentence)


@dataclass(frozen=True)
class ScoreTable:
    """One row an exercise: title, kind, points (a dash before the first check)."""

    title: str
    rows: tuple[tuple[Exercise, Verdict | None], ...]

    @property
    def score(self) -> float:
        return sum(verdict.score for _, verdict in self.rows if verdict)

    @property
    def points(self) -> float:
        return sum(exercise.points for exercise, _ in self.rows)

    def _cells(self) -> list[tuple[str, ...]]:
        cells = [
            (each.title, each.kind, f"{verdict!r} of {each.points:g}" if verdict else "-")
            for each, verdict in self.rows
        ]
        return [*cells, ("Together", "", f"{self.score:g} of {self.points:g}")]

    def __repr__(self) -> str:
        return "\n".join([self.title, *("  ".join(row) for row in self._cells())])

    def _repr_html_(self) -> str:
        colour = panel.colour_of(self.score, self.points)
        return panel.table(self.title, ("Exercise", "Kind", "Points"), self._cells(), colour)
