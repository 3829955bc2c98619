"""How do functions of a notebook come to the ranks, and their results back?

A function of this package is imported. Of any other the source is written to a file, which the
ranks run. What they return comes back as a pickle a rank. Where a function fails, the line is
quoted: "line 7 of functions.py" means nothing to the reader of a notebook.
"""

import importlib
import inspect
import pickle
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from allhands import launch

RETURN = "Return numbers, texts, lists, dicts or NumPy arrays."


def source_of(function: Callable) -> str:
    """The source of a function, from the left margin on. ValueError, in a sentence, without one."""
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip() + "\n"
    except (OSError, TypeError) as error:
        raise ValueError(
            f"{function!r} has no source that can be written down ({error}). Give a function "
            f"that is defined with `def` in a file or a cell."
        ) from error


def is_ours(function: Callable) -> bool:
    """Does it belong to this package, so that the ranks can import it?"""
    return str(getattr(function, "__module__", "")).partition(".")[0] == "allhands"


def to_write(functions: Sequence[Callable]) -> list[Callable]:
    """Those that must be written down, each once."""
    return list(dict.fromkeys(each for each in functions if not is_ours(each)))


def address(function: Callable) -> tuple[str, str]:
    """(module, name); no module if the function's source is written down."""
    return function.__module__ if is_ours(function) else "", function.__name__


def found(addresses: Sequence[Sequence[str]], names: Mapping[str, object]) -> list[Callable]:
    """The functions of these addresses; names: those of the written file."""
    return [
        getattr(importlib.import_module(module), name) if module else names[name]
        for module, name in addresses
    ]


def quoted(sentence: str, script: Path, source: str) -> str:
    """Put the line itself for `line 7 of SCRIPT`; nothing for a line that nobody has written."""
    lines = source.splitlines()

    def line(number: re.Match) -> str:
        at = int(number["line"])
        if at > len(lines):
            return ""
        text = f"`{lines[at - 1].strip()}`"
        return f" ({text})" if number["open"] else text

    place = rf"line (?P<line>\d+) of {re.escape(script.name)}"
    sentence = re.sub(rf"(?P<open> \(){place}\)", line, sentence)
    return re.sub(rf"(?P<open>){place}", line, sentence)


def send_back(folder: Path, rank: int, result: object) -> None:
    """Write what this rank's function returned. TypeError, in a sentence, if that cannot travel."""
    try:
        sent = pickle.dumps(result)
    except Exception as error:
        raise TypeError(
            f"what the function returned cannot be sent: {type(result).__name__} ({error}). "
            f"{RETURN}"
        ) from error
    (folder / f"rank{rank}.pickle").write_bytes(sent)


def results(folder: Path, done: launch.Finished) -> list:
    """What each rank returned, rank 0 first. RanksFailed if a rank ended without returning."""
    sent = [folder / f"rank{rank}.pickle" for rank in range(done.ranks)]
    missing = tuple(rank for rank, path in enumerate(sent) if not path.exists())
    if missing:
        who = f"rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        raise launch.RanksFailed(
            f"{who} ended before the function returned (sys.exit?). Let it return instead.",
            done,
            missing,
        )
    try:
        return [pickle.loads(path.read_bytes()) for path in sent]
    except Exception as error:
        raise launch.RanksFailed(
            f"what the function returned cannot be read here ({error}). {RETURN}", done
        ) from error
