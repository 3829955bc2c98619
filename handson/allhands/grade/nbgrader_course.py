"""nbgrader with this course's settings, in a folder of its own.

`configure` is the one place for settings. JupyterLab's Validate button, the commands `nbgrader ...`
(both by handson/jupyter/nbgrader_config.py) and `TemporaryCourse` (by import) all use it.
"""

import io
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.converters.base import BaseConverter, NbGraderException
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearSolutions as NbgraderClearSolutions
from nbgrader.preprocessors import DeduplicateIds, SaveCells
from nbgrader.preprocessors import Execute as NbgraderExecute
from traitlets.config import Config

from allhands.grade import source
from allhands.grade.convert import STUB, ClearSolutions, ExecuteToTheEnd, KeepKnownCells

CELL_TIMEOUT_S = 600
NOTEBOOK_TIMEOUT_S = 3600
STUDENT = "participant"


def configure(
    c: Config,
    *,
    cell_timeout_s: float = CELL_TIMEOUT_S,
    notebook_timeout_s: float = NOTEBOOK_TIMEOUT_S,
) -> Config:
    """Put the course's settings into an nbgrader configuration (a config file's `get_config()`)."""
    c.GenerateAssignment.preprocessors = [
        ClearSolutions if each is NbgraderClearSolutions else each
        for each in GenerateAssignment.preprocessors.default_args[0]
    ]
    c.Autograde.sanitize_preprocessors = [
        KeepKnownCells if each is DeduplicateIds else each
        for each in Autograde.sanitize_preprocessors.default_args[0]
    ]
    c.Autograde.autograde_preprocessors = [
        ExecuteToTheEnd if each is NbgraderExecute else each
        for each in Autograde.autograde_preprocessors.default_args[0]
    ]
    c.ClearSolutions.code_stub = {"python": STUB}
    c.ClearSolutions.text_stub = "*Your answer here.*"
    c.CourseDirectory.ignore = [*CourseDirectory.ignore.default_args[0], "runs"]
    c.OverwriteCells.add_missing_cells = True
    c.Execute.timeout = max(1, round(cell_timeout_s))
    c.ExecutePreprocessor.timeout = max(1, round(cell_timeout_s))
    c.ExecuteToTheEnd.shutdown_kernel = "immediate"
    c.ExecuteToTheEnd.notebook_timeout = max(1, round(notebook_timeout_s))
    return c


class TemporaryCourse:
    """An nbgrader course in a temporary folder; a context manager that removes it.

    The converters are called without nbgrader's API object, because that swallows an interrupt.
    """

    def __init__(self, **limits: float) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="allhands-")
        self.folder = Path(self._temporary.name).resolve()
        self.config = configure(Config(), **limits)
        self.config.CourseDirectory.root = str(self.folder)
        if os.name == "posix":  # sockets in the folder: no port, and nobody else can connect
            self.config.KernelManager.transport = "ipc"
            self.config.KernelManager.ip = str(self.folder / "kernel")
            self.config.KernelManager.connection_file = str(self.folder / "kernel.json")

    def __enter__(self) -> "TemporaryCourse":
        return self

    def __exit__(self, *_error: object) -> None:
        with suppress(OSError):
            self._temporary.cleanup()

    def release(self, stem: str, solved: NotebookNode, *, gradebook: bool = True) -> NotebookNode:
        """Run generate_assignment: the notebook without its answers, with locked check cells.

        Only grading needs the gradebook, and making one takes a second or more.
        """
        source.write(solved, self.folder / "source" / stem / f"{stem}.ipynb")
        steps = self.config.GenerateAssignment.preprocessors
        steps = [each for each in steps if gradebook or each is not SaveCells]
        self._convert(GenerateAssignment, stem, ".", preprocessors=steps, no_database=not gradebook)
        return self._read("release", ".", stem)

    def autograde(self, stem: str, submitted: NotebookNode) -> NotebookNode:
        """Run autograde (after `release`): locked cells are restored, then all cells run."""
        source.write(submitted, self.folder / "submitted" / STUDENT / stem / f"{stem}.ipynb")
        self._convert(Autograde, stem, STUDENT)
        return self._read("autograded", STUDENT, stem)

    def _convert(self, kind: type[BaseConverter], stem: str, student: str, **settings) -> None:
        directory = CourseDirectory(config=self.config)
        directory.assignment_id, directory.student_id = stem, student
        converter = kind(coursedir=directory, config=self.config)
        converter.force = True
        for name, value in settings.items():
            setattr(converter, name, value)
        told = io.StringIO()
        listener = logging.StreamHandler(told)
        listener.setLevel(logging.ERROR)
        converter.log.addHandler(listener)
        try:
            with _programs_found(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # from nbgrader's use of SQLAlchemy
                converter.start()
        except NbGraderException as error:
            raise NbGraderException(_reason(told.getvalue()) or str(error)) from error
        finally:
            converter.log.removeHandler(listener)

    def _read(self, step: str, student: str, stem: str) -> NotebookNode:
        return nbformat.read(self.folder / step / student / stem / f"{stem}.ipynb", as_version=4)


def _reason(log: str) -> str:
    """The line of nbgrader's error log that says what happened: the last one of its traceback."""
    noise = (" ", "Traceback", "There was an error", "Please see")
    lines = [line for line in log.splitlines() if line and not line.startswith(noise)]
    return lines[-1] if lines else ""


@contextmanager
def _programs_found() -> Iterator[None]:
    """nbgrader starts the program `alembic`: find it also in an environment that is not active."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before
