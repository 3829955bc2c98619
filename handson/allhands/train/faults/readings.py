"""How does one source hold a fault and its repair? A function whose body is the repaired code, and
whose lines `### FAULT code` are, together, the whole body of the faulty one:

    def mean(total, comm):
        "The mean of the ranks' totals."
        ### FAULT if comm.rank == 0:
        ### FAULT     return comm.allreduce(total) / comm.size
        return comm.allreduce(total) / comm.size

    both = readings("bug2_singlegpu:mean")
    both.faulty(1.0, comm)
    both.repaired(1.0, comm)

The notebooks are built from the same lines (`grade.source`, `grade.convert`), so the participant
receives just what is measured here. FAULT lines that stand behind the last statement do not come
into a notebook: write them above the repaired body. A deeper indent of the faulty code stands after
the word FAULT.
"""

import ast
import importlib
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

PACKAGE = "allhands.train.faults"
WRITTEN = "faulty_reading"  # the module of a faulty function: it is not one of this package's own
_FAULT = re.compile(r"^(?P<indent>[ \t]*)### FAULT ?(?P<code>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Readings:
    """The two callables of one source: same name, signature, docstring and global names."""

    faulty: Callable
    repaired: Callable

    def named(self, name: str) -> Callable:
        """Return the reading `name`: "faulty" or "repaired"."""
        if name not in ("faulty", "repaired"):
            raise ValueError(f"A reading is 'faulty' or 'repaired', and not {name!r}.")
        return self.faulty if name == "faulty" else self.repaired


def readings(where: str | Callable) -> Readings:
    """Return both readings of a fault.

    where: "module:function", or the function. A module without a dot is one of this folder:
    "bug3_togpu:choose" is "allhands.train.faults.bug3_togpu:choose".

    `inspect.getsource` knows the faulty function, and a traceback shows its lines. `on_ranks` sends
    it to the ranks as a source, without this module's global names: let a fault that goes there
    import inside itself. Raises ValueError if there is no such function, or no FAULT line in it.
    """
    function = _function(where) if isinstance(where, str) else where
    name = f"{function.__module__}:{function.__name__}"
    text = faulty_source(function)
    file = f"<{name}, faulty>"
    names: dict[str, Callable] = {}
    exec(compile(text, file, "exec"), function.__globals__, names)
    faulty = names[function.__name__]
    faulty.__module__ = WRITTEN
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return Readings(faulty, function)


def faulty_source(function: Callable) -> str:
    """Return the source of the faulty reading: signature, docstring and the FAULT lines."""
    head, body = _head_and_body(function)
    lines = [found["indent"] + found["code"] for found in _FAULT.finditer(body)]
    if not lines:
        raise ValueError(f"{function.__module__}:{function.__name__} has no line `### FAULT code`.")
    return "\n".join([head, *lines]) + "\n"


def programs(module: str) -> dict[str, Callable]:
    """The faults of a module of this folder that are programs of a rank, by name.

    Such a program is `program(comm)` or `program(comm, cupy)`; the repaired reading is returned.
    """
    lab = importlib.import_module(f"{PACKAGE}.{module}")
    return {
        name: function
        for name, function in inspect.getmembers(lab, inspect.isfunction)
        if function.__module__ == lab.__name__ and _is_program(function)
    }


def _is_program(function: Callable) -> bool:
    try:
        faulty_source(function)
    except ValueError:  # it has no fault
        return False
    return list(inspect.signature(function).parameters) in (["comm"], ["comm", "cupy"])


def _function(where: str) -> Callable:
    module, _, name = where.partition(":")
    full = module if "." in module else f"{PACKAGE}.{module}"
    try:
        return getattr(importlib.import_module(full), name)
    except ModuleNotFoundError as error:
        if error.name != full:
            raise
        raise ValueError(f"{where}: there is no module {full}.") from error
    except AttributeError as error:
        raise ValueError(f"{where}: {full} has no function {name!r}.") from error


def _head_and_body(function: Callable) -> tuple[str, str]:
    """(signature and docstring, the rest), from column 0."""
    text = textwrap.dedent(inspect.getsource(function)).rstrip("\n")
    node = ast.parse(text).body[0]
    lines = text.split("\n")
    if ast.get_docstring(node) is not None:
        n_head = node.body[0].end_lineno
    else:  # the signature may have several lines; a comment may stand above the first statement
        n_head = next(
            number
            for number, line in enumerate(lines[node.lineno - 1 :], start=node.lineno)
            if line.partition("  #")[0].rstrip().endswith(":")
        )
    return "\n".join(lines[:n_head]), "\n".join(lines[n_head:])
