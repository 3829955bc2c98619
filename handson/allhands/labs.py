"""Which labs there are, and what each one asks: labs.toml as frozen dataclasses.

labs.toml is the only place for titles, points, hints and explanations. A lab looks like this:

    [[lab]]
    stem = "lab1_seq2seq"            # everything that the lab owns carries this name
    title = "A translator on one device"
    aim = "train a translator, and say where the time goes"
    minutes = 90
    needs = []                       # stems of the labs that come before
    presets = ["lab1_cpu"]           # names of `allhands train`

    [[lab.exercise]]
    id = "pad"                       # the function in grade/checks/<stem>.py has this name
    kind = "implement"               # implement | repair | measure | explain
    title = "Make a batch rectangular"
    points = 3
    hints = ["first step", "second step"]
    why = "What to know after success."

Optional keys of an exercise: `limit_s` (seconds that its check may run, 60 if not given), and for
`explain` also `answer` (the letter of a choice, or a number), `choices` and `replies` (tables:
letter = "text"; a reply is the sentence for that wrong choice) and `tolerance` (absolute, for a
number).

Everything here and in `grade` and `kit` takes a `Course` as an argument; `COURSE` is this project's
own.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType

KINDS = ("implement", "repair", "measure", "explain")


@dataclass(frozen=True)
class Exercise:
    """One thing that the participant does, and what it is worth."""

    id: str
    kind: str
    title: str
    points: float
    hints: tuple[str, ...]
    why: str
    choices: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    replies: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    answer: str | float | None = None
    tolerance: float = 0.0
    limit_s: float = 60.0

    def __post_init__(self) -> None:
        _require(self.id.isidentifier(), f"id {self.id!r} is not a Python name")
        _require(self.kind in KINDS, f"kind {self.kind!r} is not one of {', '.join(KINDS)}")
        _require(
            _is_number(self.points) and self.points > 0, f"points = {self.points!r} is not above 0"
        )
        _require(len(self.hints) > 0, "there are no hints; write at least one")
        _require(
            _is_number(self.limit_s) and self.limit_s > 0,
            f"limit_s = {self.limit_s!r} is not above 0",
        )
        if self.choices:
            wrong = (set(self.replies) | {self.answer}) - set(self.choices)
            _require(not wrong, f"answer and replies must be keys of choices, saw {wrong}")


@dataclass(frozen=True)
class Lab:
    """One lab. `stem` names all its files; `needs` are the stems that come before it."""

    stem: str
    title: str
    aim: str
    minutes: int
    needs: tuple[str, ...]
    presets: tuple[str, ...]
    exercises: tuple[Exercise, ...]

    @property
    def points(self) -> float:
        return sum(exercise.points for exercise in self.exercises)

    def exercise(self, id: str) -> Exercise:
        """Raises ValueError, with the ids that there are, for an unknown id."""
        for exercise in self.exercises:
            if exercise.id == id:
                return exercise
        known = ", ".join(exercise.id for exercise in self.exercises)
        raise ValueError(f"The lab {self.stem} has no exercise {id!r}. It has: {known}.")


@dataclass(frozen=True)
class Course:
    """Where the files of a course are."""

    labs_file: Path  # labs.toml
    sources: Path  # the folder with <stem>.py, solved
    notebooks: Path  # the folder with <stem>.ipynb, for participants
    checks: str = "allhands.grade.checks"  # the package with one module of checks for each lab

    def labs(self) -> dict[str, Lab]:
        return load(self.labs_file)

    def lab(self, stem: str) -> Lab:
        """Raises ValueError, with the stems that there are, for an unknown stem."""
        labs = self.labs()
        if stem not in labs:
            raise ValueError(f"There is no lab {stem!r}. There are: {', '.join(labs)}.")
        return labs[stem]


def _own_course() -> Course:
    """The project's files: beside the package in a clone, in `allhands_course` in a wheel."""
    beside = Path(__file__).resolve().parents[1]
    if (beside / "labs.toml").exists():
        notebooks = beside.parent / "notebooks"
        return Course(beside / "labs.toml", notebooks / "src", notebooks)
    wheel = beside / "allhands_course"
    return Course(wheel / "labs.toml", wheel / "src", Path.cwd() / "notebooks")


COURSE = _own_course()


def load(path: Path | None = None) -> dict[str, Lab]:
    """Read labs.toml; labs in the order of the file, by stem.

    Raises ValueError with one sentence: the file, the lab, and what is wrong (an unknown or a
    missing key, an id or a stem that is there twice, an unknown kind, no hints, `needs` with an
    unknown stem).
    """
    path = Path(path or COURSE.labs_file)
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from error
    labs: dict[str, Lab] = {}
    try:
        _require(set(document) <= {"lab"}, f"unknown keys {sorted(set(document) - {'lab'})}")
        for table in document.get("lab", []):
            lab = _lab(table)
            _require(lab.stem not in labs, f"the stem {lab.stem!r} is there twice")
            labs[lab.stem] = lab
        for lab in labs.values():
            missing = [stem for stem in lab.needs if stem not in labs]
            _require(not missing, f"{lab.stem} needs the unknown {', '.join(missing)}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}.") from error
    return labs


def _lab(table: dict) -> Lab:
    stem = table.get("stem", "?")
    table = {("exercises" if k == "exercise" else k): v for k, v in table.items()}
    try:
        exercises = tuple(_exercise(each) for each in table.get("exercises", []))
        ids = [exercise.id for exercise in exercises]
        twice = sorted({id for id in ids if ids.count(id) > 1})
        _require(not twice, f"the exercise id {', '.join(twice)} is there twice")
        return _make(Lab, {**table, "exercises": exercises}, tuples=("needs", "presets"))
    except ValueError as error:
        raise ValueError(f"lab {stem!r}: {error}") from error


def _exercise(table: dict) -> Exercise:
    try:
        tables = {k: MappingProxyType(table[k]) for k in ("choices", "replies") if k in table}
        return _make(Exercise, {**table, **tables}, tuples=("hints",))
    except ValueError as error:
        raise ValueError(f"exercise {table.get('id', '?')!r}: {error}") from error


def _make(kind: type, table: dict, tuples: tuple[str, ...]):
    known = {field.name for field in fields(kind)}
    needed = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}
    unknown, missing = sorted(set(table) - known), sorted(needed - set(table))
    _require(
        not unknown, f"unknown key {', '.join(unknown)}; the keys are {', '.join(sorted(known))}"
    )
    _require(not missing, f"missing key {', '.join(missing)}")
    return kind(**{k: tuple(v) if k in tuples else v for k, v in table.items()})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)
