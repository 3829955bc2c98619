"""Whatever text comes, the check answers: mutated programs, parts of the standard library."""

import random
import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest

from allhands.migrate import UnreadableScript, check, check_text, report

SCRIPTS = sorted((Path(__file__).parent / "migrate_scripts").glob("*.py"))
LIBRARY = Path(sysconfig.get_path("stdlib"))
WORDS = [
    "rank",
    "comm",
    "=",
    "(",
    ")",
    ":",
    "0",
    "None",
    "if",
    "lambda",
    "*",
    "**",
    "def",
    "\n",
    "x",
]


def mutated(text: str, random_: random.Random) -> str:
    """Some lines are dropped, doubled, swapped or indented; some words are other ones."""
    lines = text.split("\n")
    for _ in range(random_.randint(1, 8)):
        i, j = random_.randrange(len(lines)), random_.randrange(len(lines))
        kind = random_.randrange(6)
        if kind == 0:
            lines[i] = ""
        elif kind == 1:
            lines.insert(i, lines[j])
        elif kind == 2:
            lines[i], lines[j] = lines[j], lines[i]
        elif kind == 3:
            lines[i] = "    " + lines[i]
        elif kind == 4:
            words = lines[i].split(" ")
            words[random_.randrange(len(words))] = random_.choice(WORDS)
            lines[i] = " ".join(words)
        else:
            lines[i] = lines[i].replace("comm", "rank").replace("model", "loader")
    return "\n".join(lines)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_mutated_programs_get_an_answer_or_a_sentence(path):
    random_ = random.Random(path.stem)
    text, answered = path.read_text(encoding="utf-8"), 0
    for _ in range(20):
        with suppress(UnreadableScript):
            report(check_text(mutated(text, random_)))
            answered += 1
    assert answered > 0


def test_modules_of_the_standard_library_have_nothing_to_mend():
    paths = sorted(LIBRARY.glob("*.py"))[::20] + sorted((LIBRARY / "multiprocessing").glob("*.py"))
    assert paths
    for path in paths:
        assert check(path).of("sure", "likely") == []


def test_functions_that_call_each_other_end():
    calls = "\n".join(f"    f{j}(comm)" for j in range(12))
    text = "\n".join(f"def f{i}(comm):\n{calls}\n    comm.barrier()" for i in range(12))
    assert check_text(text + "\nimport mpi4py\nf0(None)\n").exit_code == 0
