"""The steps of nbgrader that this course does in its own way: clearing answers, running cells.

`ClearSolutions` writes what the participant gets in place of an answer, so that a blank notebook
runs to its last cell. `KeepKnownCells` lets nbgrader read a submission with copied or foreign
cells. `ExecuteToTheEnd` goes on when a submission ends its kernel, or never ends.
"""

import ast
import math
import re
import time
from collections.abc import Sequence
from itertools import pairwise

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearSolutions as NbgraderClearSolutions
from nbgrader.preprocessors import Execute as NbgraderExecute
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Integer

from allhands.grade.source import CHECK_PREFIX

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


class KeepKnownCells(NbGraderPreprocessor):
    """`keep_known` with the ids of the gradebook, in place of nbgrader's DeduplicateIds."""

    def preprocess(self, nb, resources):
        where = resources["nbgrader"]
        with Gradebook(where["db_url"]) as gradebook:
            released = gradebook.find_notebook(where["notebook"], where["assignment"])
            grade_ids = [cell.name for cell in released.source_cells]
        keep_known(nb, grade_ids)
        return nb, resources


def keep_known(notebook: NotebookNode, grade_ids: Sequence[str]) -> None:
    """Make an ordinary cell of each cell with a foreign grade id, and of all copies but the last.

    `grade_ids` are the course's, in their order. nbgrader puts a missing check behind the cell
    before it, mostly its answer; raises ValueError if that is missing too.
    """
    seen = set()
    for cell in reversed(notebook.cells):
        metadata = cell.metadata.get("nbgrader")
        id = metadata.get("grade_id") if isinstance(metadata, dict) else None
        if id not in grade_ids or id in seen:
            cell.metadata.pop("nbgrader", None)
        else:
            seen.add(id)
    for before, id in pairwise(grade_ids):
        if not id.startswith(CHECK_PREFIX) or id in seen:
            continue
        if before not in seen:
            raise ValueError(
                f"the cell of exercise {before} is missing: "
                "start from a fresh copy and paste your answers."
            )
        seen.add(id)


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
