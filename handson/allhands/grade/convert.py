"""The two steps of nbgrader that this course does in its own way: clearing answers, running cells.

`ClearSolutions` writes what the participant gets in place of an answer, so that a blank notebook
runs to its last cell. `ExecuteToTheEnd` goes on when a submission ends its kernel, or never ends.
"""

import ast
import math
import re
import time

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import ClearSolutions as NbgraderClearSolutions
from nbgrader.preprocessors import Execute as NbgraderExecute
from traitlets import Integer

STUB = "...  # your code here"
_REGION = re.compile(
    r"^(?P<indent>[ \t]*)### BEGIN SOLUTION[^\n]*\n(?P<inside>.*?)^[ \t]*### END SOLUTION[^\n]*$",
    re.MULTILINE | re.DOTALL,
)
_FAULT = re.compile(r"^(?P<indent>[ \t]*)### FAULT ?(?P<code>.*)$", re.MULTILINE)

KERNEL_ENDED, STOPPED, OUT_OF_TIME = "KernelEnded", "CellTimeoutError", "NotebookTimeoutError"


class ClearSolutions(NbgraderClearSolutions):
    """In place of a solution region: its FAULT lines as live code, or `name = ...`, or the stub.

    A region at the left edge that assigns names becomes `name = ...` for each of them, because the
    cells below use these names. Any other region becomes the stub, in its own indent.
    """

    def _replace_solution_region(self, cell: NotebookNode, language: str) -> bool:
        if cell.cell_type != "code":
            return super()._replace_solution_region(cell, language)
        before = cell.source
        cell.source = _REGION.sub(lambda found: given_instead(found[0]), before)
        changed = cell.source != before
        return super()._replace_solution_region(cell, language) or changed


def given_instead(region: str) -> str:
    """What the participant gets in place of a solution region (from BEGIN to END SOLUTION)."""
    found = _REGION.fullmatch(region)
    faults = [fault["indent"] + fault["code"] for fault in _FAULT.finditer(found["inside"])]
    if faults:
        return "\n".join(faults)
    names = [] if found["indent"] else _assigned(found["inside"])
    if names:
        return "\n".join(f"{name} = {STUB}" for name in names)
    return found["indent"] + STUB


def _assigned(code: str) -> list[str]:
    """The names that the top-level statements of `code` assign, in order, each once."""
    targets: list[ast.expr] = []
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.Assign):
            targets += statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets.append(statement.target)
    nodes = [node for target in targets for node in ast.walk(target)]
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    return list(dict.fromkeys(names))


class ExecuteToTheEnd(NbgraderExecute):
    """Runs every cell that can still run; the others get an error output that says why not."""

    notebook_timeout = Integer(
        3600, help="The time (in seconds) that all cells of one notebook may take together."
    ).tag(config=True)

    def preprocess(self, nb, resources=None, km=None):
        self._cell_timeout = self.timeout
        self._deadline_s = time.monotonic() + self.notebook_timeout
        self._ended: tuple[str, str] | None = None
        return super().preprocess(nb, resources, km)

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type != "code":
            return cell, resources
        left_s = self._deadline_s - time.monotonic()
        if self._ended is None and left_s <= 0:
            limit = f"the cells before took more than {self.notebook_timeout} s together"
            self._ended = (OUT_OF_TIME, limit)
        if self._ended is not None:
            cell.outputs = [_error(*self._ended)]
            return cell, resources
        self.timeout = max(1, math.ceil(min(self._cell_timeout or left_s, left_s)))
        try:
            return super().preprocess_cell(cell, resources, index)
        except DeadKernelError:
            cell.outputs.append(_error(KERNEL_ENDED, "this cell ended the kernel"))
            self._ended = (KERNEL_ENDED, "an earlier cell ended the kernel")
        except CellTimeoutError:
            why = f"it ran longer than {self.timeout} s and could not be interrupted"
            cell.outputs.append(_error(STOPPED, why))
            self._ended = (KERNEL_ENDED, "an earlier cell could not be interrupted")
        return cell, resources


def _error(name: str, value: str) -> NotebookNode:
    return new_output("error", ename=name, evalue=value, traceback=[f"{name}: {value}"])
