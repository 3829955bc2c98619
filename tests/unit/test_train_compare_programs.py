"""What can be compared, and what is refused before any rank starts."""

import ast
import re

import pytest

from allhands.train.compare import compare, programs
from allhands.train.compare.programs import defined


@pytest.mark.parametrize(
    ("files", "target", "settings", "said"),
    [
        ({}, "lab9", (), "There is no preset 'lab9'. Give one of"),
        ({}, "missing.py", (), "There is no file missing.py"),
        ({"p_py": b"x = 1\n"}, "p.py", (), "p.py has no function `build`. Define build(comm)"),
        ({"p_py": b"def device_of(comm): ..."}, "p.py", (), "or some of lab 2's functions: shard"),
        ({"p_py": b"def build(:\n"}, "p.py", (), "p.py is not Python"),
        ({"p_py": b"def build(comm): ..."}, "p.py", ("seed=1",), "Leave --set away"),
        ({}, "lab2_cpu", ("colour=1",), "There is no setting 'colour'"),
    ],
)
def test_wrong_targets_are_told_in_a_sentence(write, files, target, settings, said):
    write(**files)
    with pytest.raises(ValueError, match=re.escape(said)):
        compare(target, 2, settings=settings)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"ranks": 0}, "--ranks must be at least 1"),
        ({"ranks": 2, "steps": 0}, "--steps must be at least 1"),
        ({"ranks": 2, "time_limit_s": 0}, "--time-limit takes seconds greater than 0"),
    ],
)
def test_wrong_numbers_are_told_in_a_sentence(asked, said):
    with pytest.raises(ValueError, match=said):
        compare("lab2_cpu", **asked)


def test_a_module_defines_what_it_assigns_and_imports_too():
    tree = ast.parse("from a import shard\nbuild = make()\ndef total(): ...\nclass C: ...\n")
    assert defined(tree) == {"shard", "build", "total", "C"}


def test_the_small_problem_has_shares_of_unequal_size(tmp_path):
    programs.write_small_corpus(tmp_path)
    lines = (tmp_path / programs.PAIRS).read_text(encoding="utf-8").splitlines()
    assert len(lines) % 2 == 1
    assert all(line.count("\t") == 1 for line in lines)
