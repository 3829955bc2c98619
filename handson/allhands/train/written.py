"""How do functions of a notebook come to the ranks, and their results back?

A function of this package is imported. Of any other the source is written to a file, which the
ranks run. What they return comes back as a pickle a rank. Where a function fails, the line is
quoted: "line 7 of functions.py" means nothing to the reader of a notebook.

`call_on_ranks` is the caller's end of it, `received` that of a rank. Between them stand files:

    functions.py     imports and sources; the last lines call `run(globals())` of a module of ours
    asked.json       which functions, and what else the ranks must know
    rank2.pickle     what the function returned on rank 2
"""

import importlib
import inspect
import json
import pickle
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from allhands import launch

WRITTEN, ASKED = "functions.py", "asked.json"
START = "\n\nif __name__ == '__main__':\n    import {by}\n\n    {by}.run(globals())\n"
RETURN = "Return numbers, texts, lists, dicts or NumPy arrays."


def call_on_ranks(
    folder: Path,
    functions: Sequence[Callable],
    *,
    by: str,
    imports: str,
    ranks: int,
    asked: Mapping[str, object] | None = None,
    **limits: float | None,
) -> list:
    """Let ranks call the first of `functions` with the others; return their results, rank 0 first.

    by: the module whose `run(names)` each rank calls. imports: the head of the written file.
    asked: what `run` must know besides. limits: `time_limit_s` and `hang_s` of `launch.mpirun`.

    What the ranks print is printed when all have ended, rank by rank, the rank in front of each
    line. Errors are those of `launch.mpirun`, with the lines of written functions quoted, and
    ValueError for a function without a source.
    """
    script = folder / WRITTEN
    source = "\n\n".join([imports, *map(source_of, to_write(functions))])
    script.write_text(source + START.format(by=by), encoding="utf-8")
    told = {"functions": [address(each) for each in functions], **(asked or {})}
    (folder / ASKED).write_text(json.dumps(told), encoding="utf-8")
    try:
        done = launch.mpirun(script, ranks=ranks, scratch=folder, **limits)
    except launch.LaunchError as error:
        error.args = (quoted(str(error), script, source),)
        raise
    for rank in range(ranks):
        for line in done.text(rank).splitlines():
            print(f"[{rank}] {line}")
    return results(folder, done)


def received(names: Mapping[str, object]) -> tuple[Path, dict, list[Callable]]:
    """On a rank: (the folder, what was asked, the functions). names: those of the written file."""
    folder = Path(str(names["__file__"])).parent
    told = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    return folder, told, found(told["functions"], names)


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
