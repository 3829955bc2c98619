"""How many points a notebook gets: graded by nbgrader, headless, in a fresh kernel.

The cells of the notebook run as they are, except for locked cells, which come from the course's
source: to edit a check does not pay. A lab must not depend on its working folder, because the
graded copy runs in a temporary one. What a participant's code may do on this machine is not limited
here.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbconvert.filters import strip_ansi
from nbformat import NotebookNode
from nbgrader import utils as nbgrader_utils
from nbgrader.converters.base import NbGraderException

from allhands.grade import convert, source
from allhands.grade.check import MIME
from allhands.grade.nbgrader_course import CELL_TIMEOUT_S, NOTEBOOK_TIMEOUT_S, TemporaryCourse
from allhands.labs import COURSE, Course, Exercise, Lab


class GradingError(ValueError):
    """The file cannot be graded; the message is a sentence for whoever handed it in."""


@dataclass(frozen=True)
class ExerciseScore:
    id: str
    score: float
    max: float
    said: tuple[str, ...]


@dataclass(frozen=True)
class Score:
    """The result of one notebook. `executed` is the notebook with the outputs of the graded run."""

    stem: str
    exercises: tuple[ExerciseScore, ...]
    executed: NotebookNode = field(repr=False, compare=False)

    @property
    def score(self) -> float:
        return sum(exercise.score for exercise in self.exercises)

    @property
    def max(self) -> float:
        return sum(exercise.max for exercise in self.exercises)

    @property
    def full(self) -> bool:
        return self.score >= self.max

    def as_dict(self) -> dict:
        exercises = [{**vars(each), "said": list(each.said)} for each in self.exercises]
        return {"score": self.score, "max": self.max, "exercises": exercises}

    def write(self, path: Path) -> None:
        """Write the JSON of `as_dict`; the file is there complete or not at all."""
        part = _part(path)
        part.write_text(json.dumps(self.as_dict(), ensure_ascii=False, indent=1) + "\n", "utf-8")
        os.replace(part, path)


def try_place(path: Path) -> None:
    """Raises GradingError if a score could not be written to `path`: to know it before grading."""
    try:
        if Path(path).is_dir():
            raise IsADirectoryError(0, "it is a folder")
        _part(path).touch()
        _part(path).unlink()
    except OSError as error:
        raise GradingError(
            f"The score cannot be written to {path} ({error.strerror}): name another file."
        ) from error


def _part(path: Path) -> Path:
    return Path(path).with_name(Path(path).name + ".part")


class Grader:
    """Grades notebooks one after the other; a context manager. Check cells are made once a lab."""

    def __init__(
        self,
        course: Course = COURSE,
        *,
        cell_timeout_s: float = CELL_TIMEOUT_S,
        notebook_timeout_s: float = NOTEBOOK_TIMEOUT_S,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.course, self.cell_timeout_s, self.say = course, cell_timeout_s, say
        self._released: set[str] = set()
        self._nbgrader = TemporaryCourse(
            cell_timeout_s=cell_timeout_s, notebook_timeout_s=notebook_timeout_s
        )

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *error: object) -> None:
        self._nbgrader.__exit__(*error)

    def grade(self, path: Path, *, expect: str | None = None) -> Score:
        """Grade the notebook at `path`, whatever the file is called.

        `expect` is the stem that it should have. Raises GradingError if the file is no notebook of
        this course, or not the expected one.
        """
        notebook = read_submission(path)
        lab = find_lab(notebook, path, self.course)
        if expect is not None and lab.stem != expect:
            raise GradingError(f"{path} is a notebook of the lab {lab.stem}, not of {expect}.")
        solved = source.solved_notebook(lab.stem, self.course)
        try:
            convert.keep_known(notebook, _grade_ids(solved))
        except ValueError as error:
            raise GradingError(f"{path}: {error}") from error
        try:
            if lab.stem not in self._released:
                self.say(f"{lab.stem}: making the check cells")
                self._nbgrader.release(lab.stem, solved)
                self._released.add(lab.stem)
            self.say(f"{lab.stem}: running the notebook in a fresh kernel")
            executed = self._nbgrader.autograde(lab.stem, notebook)
        except NbGraderException as error:
            raise GradingError(
                f"nbgrader could not grade {path}. Start from a fresh copy of the notebook and "
                f"paste your answers into it. nbgrader said: {error}"
            ) from error
        return _score(lab, executed, self.cell_timeout_s)


def grade_notebook(path: Path, *, expect: str | None = None, **settings) -> Score:
    """Grade one notebook: `Grader.grade`, with the settings of `Grader`."""
    with Grader(**settings) as grader:
        return grader.grade(path, expect=expect)


def read_submission(path: Path) -> NotebookNode:
    """Raises GradingError for a file that is not there or not a notebook."""
    path = Path(path)
    if not path.is_file():
        raise GradingError(f"There is no file {path}.")
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except Exception as error:  # nbformat has many ways to say no
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GradingError(
            f"{path} is not a notebook that can be read: {reason[:200]}. "
            "Save it in JupyterLab, or start from a fresh copy."
        ) from error
    return notebook


def find_lab(notebook: NotebookNode, path: Path, course: Course) -> Lab:
    """The lab that the notebook belongs to: by its metadata, so that a renamed file works."""
    labs = course.labs()
    ours = notebook.metadata.get("allhands")
    stem = ours.get("stem") if isinstance(ours, dict) else None
    if isinstance(stem, str) and stem in labs:
        return labs[stem]
    known = ", ".join(labs)
    if not isinstance(stem, str):
        raise GradingError(
            f"{path} is not a notebook of this course: its metadata names no lab. "
            f"Start from a notebook in {course.notebooks} (labs: {known})."
        )
    raise GradingError(f"{path} is of the lab {stem!r}, which this course has not (labs: {known}).")


def _grade_ids(notebook: NotebookNode) -> list[str]:
    """In the order of the cells."""
    return [
        cell.metadata.nbgrader.grade_id for cell in notebook.cells if "nbgrader" in cell.metadata
    ]


def _score(lab: Lab, executed: NotebookNode, cell_timeout_s: float) -> Score:
    cells = {
        cell.metadata.nbgrader.grade_id: number
        for number, cell in enumerate(executed.cells)
        if nbgrader_utils.is_grade(cell)
    }
    exercises = tuple(
        _exercise_score(each, executed, cells.get(source.CHECK_PREFIX + each.id), cell_timeout_s)
        for each in lab.exercises
    )
    return Score(lab.stem, exercises, executed)


def _exercise_score(
    exercise: Exercise, executed: NotebookNode, number: int | None, cell_timeout_s: float
) -> ExerciseScore:
    if number is None:
        said = ("Its check cell is not in the notebook.",)
        return ExerciseScore(exercise.id, 0.0, exercise.points, said)
    cell = executed.cells[number]
    verdict = next(
        (
            output.data[MIME]
            for output in cell.outputs
            if output.output_type == "execute_result" and MIME in output.data
        ),
        None,
    )
    if verdict is not None and verdict.get("id") == exercise.id:
        points = float(nbgrader_utils.determine_grade(cell)[0])
        said = tuple(verdict["said"])
        if points < verdict["score"]:
            said += ("The check cell wrote an error text too; for that nbgrader gives 0 points.",)
        return ExerciseScore(exercise.id, points, exercise.points, said)
    said = [_why_no_verdict(cell, cell_timeout_s)]
    said += _earlier_trouble(executed.cells[:number], cell_timeout_s)
    return ExerciseScore(exercise.id, 0.0, exercise.points, tuple(said))


def _why_no_verdict(cell: NotebookNode, cell_timeout_s: float) -> str:
    error = _error_of(cell)
    if error is None:
        return "The check cell gave no verdict: something else was called in place of the check."
    return f"The check did not run to its end: {_sentence(error, cell_timeout_s)}"


def _earlier_trouble(cells: list[NotebookNode], cell_timeout_s: float) -> list[str]:
    """The first error before a check that did not run: it is likely the reason."""
    for cell in cells:
        error = _error_of(cell)
        if error is not None:
            first = next((line for line in cell.source.splitlines() if line.strip()), "")
            return [f"Before it, the cell `{first}` failed: {_sentence(error, cell_timeout_s)}"]
    return []


def _error_of(cell: NotebookNode) -> NotebookNode | None:
    """The last error: a time-out comes after the KeyboardInterrupt that it caused."""
    outputs = cell.outputs if cell.cell_type == "code" else []
    return next((output for output in outputs[::-1] if output.output_type == "error"), None)


def _sentence(error: NotebookNode, cell_timeout_s: float) -> str:
    if error.ename == convert.STOPPED and not error.evalue:
        return f"the cell was stopped after {cell_timeout_s:g} s."
    if error.ename in (convert.KERNEL_ENDED, convert.OUT_OF_TIME, convert.STOPPED):
        return f"{error.evalue}."
    text = strip_ansi(f"{error.ename}: {error.evalue}").splitlines()[0]
    return text.rstrip(": .") + "."
