"""Where does a rank stand: in which line of the program, and in a call that waits for others?

A stack is a list of (file, line), the innermost first, wherever it comes from: a running frame, an
error, or what `faulthandler` wrote. Nothing here runs the program's code.
"""

import ast
import linecache
import re
import sysconfig
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

Place = tuple[str, int]
STDLIB = sysconfig.get_paths()["stdlib"]
LIBRARIES = ("site-packages", "dist-packages")
# Calls that need other ranks: bcast, Ibcast, bcast_data, allreduce_obj, Allgatherv, recv, wait ...
WAITING = re.compile(
    r"i?(all_?reduce|b?cast|broadcast|all_?gather|gather|scatter|all_?to_?all|reduce|reduce_scatter"
    r"|barrier|scan|exscan|split|send_?recv|s?send|recv|probe|wait|wait_?all|wait_?any"
    r"|multi_node_mean)(v|_obj|_data|_grad)?",
    re.IGNORECASE,
)
COMMUNICATORS = {"mpi4py", "chainermn", "torch"}  # the packages whose calls can wait for a rank


def waits_for_others(name: str) -> bool:
    """Is this, by its name, a call that other ranks must answer?"""
    return WAITING.fullmatch(name) is not None


def is_library(file: str) -> bool:
    """Is it a file of Python itself, of an installed package, or no file at all?"""
    installed = any(part in LIBRARIES for part in Path(file).parts)
    return installed or file.startswith((STDLIB, "<frozen")) or file.endswith(".pyx")


def stack_of(frame: FrameType | None, leave_out: Collection[CodeType] = ()) -> list[Place]:
    """The stack from a frame on. leave_out: code of functions whose frames do not count."""
    stack = []
    while frame is not None:
        if frame.f_code not in leave_out:
            stack.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return stack


def stack_written(text: str) -> list[Place]:
    """The stack that `faulthandler` wrote, without Python's own way of starting a script."""
    stack = [(file, int(line)) for file, line in re.findall(r'File "(.+)", line (\d+) in ', text)]
    outer = [at for at, (file, _) in enumerate(stack) if "runpy" in file]
    return stack[: outer[0]] if outer else stack


def innermost(stack: Iterable[Place], own: Callable[[str], bool]) -> Place | None:
    """The innermost place in a file that counts as the program's own."""
    return next((place for place in stack if own(place[0])), None)


def in_script_folder(stack: Sequence[Place]) -> Place | None:
    """The innermost place in the folder of the script, which is the outermost file."""
    return innermost(stack, lambda file: Path(file).parent == Path(stack[-1][0]).parent)


def told(place: Place | None) -> str:
    """Such as "line 7 of train.py"; nothing for no place."""
    return f"line {place[1]} of {Path(place[0]).name}" if place else ""


def text_of(place: Place | None) -> str:
    """What stands there; nothing if it cannot be read."""
    return linecache.getline(*place).strip() if place else ""


def call_of(frame: FrameType) -> ast.Call | None:
    """The call that a frame is making now, as it is written; None if it makes none."""
    positions = islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
    line, end_line, column, end_column = next(positions, (None,) * 4)
    if line is None or end_line is None or column is None or end_column is None:
        return None
    file = frame.f_code.co_filename
    rows = [linecache.getline(file, number).encode() for number in range(line, end_line + 1)]
    rows[-1] = rows[-1][:end_column]  # columns count bytes
    rows[0] = rows[0][column:]
    try:
        tree = ast.parse(f"({b''.join(rows).decode()})", mode="eval")
    except (SyntaxError, ValueError):
        return None
    return tree.body if isinstance(tree.body, ast.Call) else None


def waits(frame: FrameType) -> bool:
    """Is the frame in a call that waits for other ranks?

    The name must say so, and what is called must belong to a package that communicates, where that
    can be seen: `functools.reduce` waits for nobody.
    """
    call = call_of(frame)
    if call is None:
        return False
    called = _value(call.func, frame)
    if called is not None:
        owner = type(getattr(called, "__self__", None)).__module__.partition(".")[0]
        module = str(getattr(called, "__module__", None)).partition(".")[0]
        name = str(getattr(called, "__name__", ""))
        return waits_for_others(name) and bool({owner, module} & COMMUNICATORS)
    return isinstance(call.func, ast.Attribute) and waits_for_others(call.func.attr)


def _value(node: ast.expr, frame: FrameType) -> object | None:
    """What a name with dots stands for in a frame; None where that cannot be looked up."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, frame), node.attr, None)
    return None
