"""One source, two readings: what `train/faults/readings.py` makes of `### FAULT` lines."""

import ast
import importlib
import inspect
import pkgutil
import re
import traceback

import pytest

from allhands.train import faults
from allhands.train.faults.readings import faulty_source, readings

OFFSET = 10


def shifted(x: int) -> int:
    """x, and 10 more."""
    return x + OFFSET
    ### FAULT if x:
    ### FAULT     return x - OFFSET
    ### FAULT raise KeyError("nothing")


def without_docstring(
    x: int,
) -> int:
    ### FAULT return 1
    # a comment stays with the repair
    return 2


def healthy() -> None:
    """There is no other reading."""


def test_both_readings_run_with_the_modules_own_names():
    both = readings(shifted)
    assert both.repaired(1) == 11
    assert both.faulty(1) == -9
    assert both.named("faulty") is both.faulty
    assert both.named("repaired") is shifted


def test_the_fault_lines_are_the_whole_faulty_body():
    assert faulty_source(shifted).split("\n")[2:] == [
        "    if x:",
        "        return x - OFFSET",
        '    raise KeyError("nothing")',
        "",
    ]


def test_a_function_without_a_docstring_has_two_readings_too():
    both = readings(without_docstring)
    assert (both.faulty(0), both.repaired(0)) == (1, 2)
    assert "a comment stays" not in faulty_source(without_docstring)


LABS = [module.name for module in pkgutil.iter_modules(faults.__path__) if "bug" in module.name]


@pytest.mark.parametrize("name", LABS)
def test_in_the_labs_fault_lines_stand_above_the_repair_so_that_the_notebook_shows_them(name):
    """A notebook gets the lines of a function up to its last statement (`grade.source`)."""
    source = inspect.getsource(importlib.import_module(f"{faults.__name__}.{name}"))
    ends = [(each.lineno, each.end_lineno) for each in ast.parse(source).body]
    for number, line in enumerate(source.split("\n"), start=1):
        if re.match(r"\s+### FAULT ", line):
            assert any(first < number < last for first, last in ends), f"{name}, line {number}"


def test_the_faulty_reading_looks_like_a_function_of_a_file():
    faulty = readings(shifted).faulty
    assert inspect.getsource(faulty) == faulty_source(shifted)
    assert (faulty.__name__, faulty.__doc__) == ("shifted", shifted.__doc__)
    assert faulty.__module__.partition(".")[0] != "allhands"  # on_ranks then sends its source
    with pytest.raises(KeyError) as raised:
        faulty(0)
    assert 'raise KeyError("nothing")' in "".join(traceback.format_tb(raised.value.__traceback__))


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (healthy, "no line `### FAULT code`"),
        ("bug9_nothing:choose", "there is no module allhands.train.faults.bug9_nothing"),
        ("allhands.train.faults.readings:nothing", "has no function 'nothing'"),
    ],
)
def test_what_is_no_fault_is_said_in_a_sentence(where, words):
    with pytest.raises(ValueError, match=words):
        readings(where)


def test_a_reading_has_one_of_two_names():
    with pytest.raises(ValueError, match="'faulty' or 'repaired', and not 'good'"):
        readings(shifted).named("good")
