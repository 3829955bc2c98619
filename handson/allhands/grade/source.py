"""How a lab's text source, notebooks/src/<stem>.py, becomes its solved notebook.

The source is percent text (jupytext) and holds the lab with its answers. Besides nbgrader's own
`### BEGIN SOLUTION` and `### END SOLUTION` it may use five short forms, which this file expands:

    # %% exercise="pad"      the participant works here: nbgrader's metadata of a solution cell
    # %% check="pad"         the answer is judged here: a locked grade cell, points from labs.toml
    ### SOLUTION FROM allhands.data.batch:pad
                             indented: the body of that function, as a solution region;
                             at the left edge: the whole function, signature and docstring stay
    # > text                 last lines of a cell: what it prints (stored, compared by nbval)
    # = text                 last lines of a cell: its value as text (stored, compared by nbval)

and, inside a solution region, `### FAULT code`: what a repair exercise gives the participant
instead (`grade.convert` makes live code of it; deeper indents stand after the word FAULT).

Lines before the first `# %%` are for tools that read Python (ruff); they stay out of the notebook.
Cell ids, metadata and kernel name depend on the source alone: the same source gives the same bytes.
"""

import ast
import importlib.util
import re
import textwrap
from pathlib import Path

import jupytext
import nbformat
from nbformat import NotebookNode

from allhands.labs import COURSE, Course, Lab

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
_TOLD = re.compile(r"# ?(?P<what>[>=]) ?(?P<text>.*)")
_PULL = re.compile(r"^(?P<indent>[ \t]*)### SOLUTION FROM (?P<where>\S+)[ \t]*$", re.MULTILINE)
CHECK_PREFIX = "check_"  # the grade id of the check of exercise pad is check_pad


def solved_notebook(stem: str, course: Course = COURSE) -> NotebookNode:
    """The notebook with its answers, not executed; the source of everything that nbgrader does.

    Raises ValueError, with the source's name, if the source does not fit labs.toml (an unknown
    exercise, one without a check cell, a check twice) or names a function that is not there.
    """
    lab = course.lab(stem)
    path = course.sources / f"{stem}.py"
    if not path.exists():
        raise ValueError(f"The lab {stem} has no source: {path} is not there.")
    text = path.read_text(encoding="utf-8")
    first_cell = re.search(r"^# %%", text, re.MULTILINE)
    text = text[first_cell.start() :] if first_cell else ""
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata = nbformat.from_dict({**METADATA, "allhands": {"stem": stem}})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    try:
        for number, cell in enumerate(notebook.cells, start=1):
            _expand(cell, lab)
            cell.metadata.pop("lines_to_next_cell", None)
            cell.id = cell.metadata.get("nbgrader", {}).get("grade_id", f"cell-{number}")
        _compare_with_lab(notebook, lab)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return notebook


def write(notebook: NotebookNode, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text_of(notebook), encoding="utf-8")


def text_of(notebook: NotebookNode) -> str:
    """The file's text: keys sorted, one space of indent, one newline at the end."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT).rstrip("\n") + "\n"


def _expand(cell: NotebookNode, lab: Lab) -> None:
    exercise_id, check_id = cell.metadata.pop("exercise", None), cell.metadata.pop("check", None)
    if cell.cell_type == "code":
        cell.source = _PULL.sub(_pull, cell.source)
        _store_output(cell)
    if exercise_id is not None:
        lab.exercise(exercise_id)
        cell.metadata["nbgrader"] = _nbgrader(exercise_id, cell, solution=True)
    if check_id is not None:
        points = float(lab.exercise(check_id).points)
        points = int(points) if points.is_integer() else points  # as JupyterLab saves it
        grade = _nbgrader(CHECK_PREFIX + check_id, cell, grade=True, locked=True)
        cell.metadata["nbgrader"] = {**grade, "points": points}
    cell.metadata = nbformat.from_dict(cell.metadata)


def _nbgrader(grade_id: str, cell: NotebookNode, **true: bool) -> dict:
    return {
        "grade": False,
        "grade_id": grade_id,
        "locked": False,
        "schema_version": 3,
        "solution": False,
        "task": False,
        "cell_type": cell.cell_type,
        **true,
    }


def _compare_with_lab(notebook: NotebookNode, lab: Lab) -> None:
    graded = [
        cell.metadata.nbgrader.grade_id for cell in notebook.cells if "nbgrader" in cell.metadata
    ]
    for exercise in lab.exercises:
        for what, id in (("exercise", exercise.id), ("check", CHECK_PREFIX + exercise.id)):
            if graded.count(id) != 1:
                raise ValueError(
                    f'the exercise {exercise.id!r} of labs.toml needs one cell `# %% {what}="'
                    f'{exercise.id}"`, and there are {graded.count(id)}.'
                )


def _store_output(cell: NotebookNode) -> None:
    """Turn the last lines `# > ...` and `# = ...` into stored outputs."""
    lines = cell.source.split("\n")
    n_code = len(lines)
    while n_code and _TOLD.fullmatch(lines[n_code - 1]):
        n_code -= 1
    told = [_TOLD.fullmatch(line) for line in lines[n_code:]]
    if not told:
        return
    cell.source = "\n".join(lines[:n_code]).rstrip("\n")
    printed = "".join(line["text"] + "\n" for line in told if line["what"] == ">")
    value = "\n".join(line["text"] for line in told if line["what"] == "=")
    cell.execution_count = 1  # nbval compares only cells that say that they ran
    if printed:
        cell.outputs.append(nbformat.v4.new_output("stream", name="stdout", text=printed))
    if value:
        cell.outputs.append(
            nbformat.v4.new_output("execute_result", {"text/plain": value}, execution_count=1)
        )
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), "nbval-check-output"]


def _pull(found: re.Match) -> str:
    head, body = function_text(found["where"])
    if not found["indent"]:
        inner = textwrap.indent(body, "    ", lambda line: bool(line.strip()))
        return f"{head}\n    ### BEGIN SOLUTION\n{inner}\n    ### END SOLUTION"
    region = f"### BEGIN SOLUTION\n{body}\n### END SOLUTION"
    return textwrap.indent(region, found["indent"], lambda line: bool(line.strip()))


def function_text(where: str) -> tuple[str, str]:
    """(signature and docstring, body) of "module:function" or "module:Class.method", both dedented.

    The module's file is read, not imported. Raises ValueError if it is not there.
    """
    module, _, name = where.partition(":")
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None:
        raise ValueError(f"SOLUTION FROM {where}: there is no module {module}.")
    text = Path(spec.origin).read_text(encoding="utf-8")
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        inside = [each for each in node.body if isinstance(each, kinds) and each.name == part]
        if not inside:
            raise ValueError(f"SOLUTION FROM {where}: {spec.origin} has no {name!r}.")
        node = inside[0]
    if isinstance(node, ast.ClassDef):
        raise ValueError(f"SOLUTION FROM {where}: {name!r} is a class; name a function.")
    lines = text.split("\n")
    has_docstring = ast.get_docstring(node) is not None
    first = node.body[0].end_lineno if has_docstring else node.body[0].lineno - 1
    head = textwrap.dedent("\n".join(lines[node.lineno - 1 : first]))
    body = textwrap.dedent("\n".join(lines[first : node.end_lineno])).strip("\n")
    return head, body
