"""The mentors' pages say what the course says: exercises, minutes, the checks' own sentences."""

import ast
import re
from pathlib import Path

import pytest

from allhands.kit import mentors
from allhands.labs import COURSE, Lab

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "handson" / "allhands" / "grade" / "checks"
LABS = COURSE.labs()
SECTIONS = (
    "The exercises",
    "How the minutes go",
    "Usual mistakes",
    "Figures to expect",
    "On a GPU, on a cluster",
    "For the fast ones",
)
HOLE = "\0"  # in a sentence: what differs from run to run


def said(lab: Lab) -> str:
    """All texts of a lab's checks and replies, one a line; HOLE stands for each `{...}`."""
    texts = [reply for each in lab.exercises for reply in each.replies.values()]
    for path in CHECKS.glob(f"{lab.stem}*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value for part in node.values)
                texts.append("".join(part if isinstance(part, str) else HOLE for part in parts))
            elif isinstance(node, ast.Constant) and id(node) not in docstrings:
                texts.append(str(node.value))
    return "\n".join(texts)


def quoted(cell: str) -> list[str]:
    """The pieces of what stands in double quotes, cut at `...`."""
    return [part.strip() for quote in re.findall(r'"([^"]+)"', cell) for part in quote.split("...")]


def as_taught(lab: Lab) -> list[str]:
    """The exercises in the order in which the notebook asks for them."""
    text = (COURSE.sources / f"{lab.stem}.py").read_text(encoding="utf-8")
    return re.findall(r'^# %% exercise="(\w+)"', text, re.MULTILINE)


@pytest.fixture(params=LABS)
def lab(request) -> Lab:
    return LABS[request.param]


@pytest.fixture
def text(lab) -> str:
    return mentors.page(lab.stem).read_text(encoding="utf-8")


def test_the_exercises_are_those_of_the_manifest(lab, text):
    assert mentors.with_exercises(text, lab) == text, "run `make notebooks`"


def test_the_page_has_its_sections_and_is_one_page(text):
    assert tuple(re.findall(r"^## (.*)", text, re.MULTILINE)) == SECTIONS
    assert re.search(r"^\*\*Afterwards they say:\*\* ", text, re.MULTILINE)
    assert len(text.splitlines()) <= 80


def test_the_minutes_go_through_all_exercises_in_order_and_end_with_the_lab(lab, text):
    rows = mentors.rows(text, "How the minutes go")
    assert [name.strip("`") for _, name, *_ in rows] == as_taught(lab)
    until = [int(minute) for minute, *_ in rows]
    assert until == sorted(set(until))
    assert until[-1] == lab.minutes


def test_each_exercise_has_a_usual_mistake_and_the_check_really_says_so(lab, text):
    rows, spoken = mentors.rows(text, "Usual mistakes"), said(lab)
    named = [row[0].strip("`") for row in rows]
    assert list(dict.fromkeys(named)) == as_taught(lab)
    for _, says, done, ask in rows:
        parts = quoted(says)
        assert max(map(len, parts), default=0) >= 8, says
        assert [part for part in parts if part not in spoken] == [], says
        assert done, says
        assert ask.endswith("?"), ask


def test_recorded_runs_that_are_named_exist(text):
    named = re.findall(r"slides/recorded/[\w./]*\w", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_figures_measured_here_say_where_and_when(text):
    assert re.search(r"[Mm]easured on .*cores?.*\b20\d\d-\d\d-\d\d", " ".join(text.split()))


def test_a_stale_sentence_and_a_forgotten_exercise_are_found():
    lab = LABS["lab1_seq2seq"]
    assert "put PAD after the row, not before it" in said(lab)
    assert f"fill with PAD, which is {HOLE} here, not with -1" in said(lab)
    assert "put PAD before the row" not in said(lab)
    assert quoted('"a b c ... d e f", or "g"') == ["a b c", "d e f", "g"]
