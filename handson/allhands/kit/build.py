"""Build the notebooks of the labs from their text sources. For authors.

    python -m allhands.kit.build                        # notebooks/<stem>.ipynb, for participants
    python -m allhands.kit.build --check                # build nothing; exit 1 if out of date
    python -m allhands.kit.build --solved build/solved  # the notebooks with their answers
    python -m allhands.kit.build --solved build/solved --execute lab1_seq2seq

A participants' notebook is what nbgrader's generate_assignment makes of the solved one: there is no
other way. Building twice gives the same bytes. Note that a build overwrites the answers of whoever
works in notebooks/<stem>.ipynb.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from allhands.grade import source
from allhands.grade.nbgrader_course import CELL_TIMEOUT_S, TemporaryCourse
from allhands.labs import COURSE, Course


def participants_notebook(
    stem: str, course: Course = COURSE, within: TemporaryCourse | None = None
) -> NotebookNode:
    """The notebook without answers and outputs, as nbgrader's generate_assignment makes it."""
    solved = source.solved_notebook(stem, course)
    if within is not None:
        return within.release(stem, solved, gradebook=False)
    with TemporaryCourse() as temporary:
        return temporary.release(stem, solved, gradebook=False)


def build(course: Course = COURSE, stems: list[str] | None = None) -> list[Path]:
    """Write the participants' notebooks; returns their paths."""
    paths = []
    with TemporaryCourse() as temporary:
        for stem in stems or list(course.labs()):
            path = course.notebooks / f"{stem}.ipynb"
            source.write(participants_notebook(stem, course, temporary), path)
            paths.append(path)
    return paths


def out_of_date(course: Course = COURSE, stems: list[str] | None = None) -> list[str]:
    """One sentence for each notebook that is not what its source gives.

    A notebook in which somebody works differs from its source. So the committed file counts as
    well: a notebook is out of date if neither the file nor its last commit is what the source
    gives.
    """
    sentences = []
    with TemporaryCourse() as temporary:
        for stem in stems or list(course.labs()):
            path = course.notebooks / f"{stem}.ipynb"
            text = source.text_of(participants_notebook(stem, course, temporary))
            on_disk = path.read_text(encoding="utf-8") if path.exists() else None
            if text not in (on_disk, _committed(path)):
                sentences.append(f"{path} is not what {stem}.py gives: run `make notebooks`.")
    return sentences


def _committed(path: Path) -> str | None:
    command = ["git", "-C", str(path.parent), "show", f"HEAD:./{path.name}"]
    try:
        done = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode("utf-8")


def build_solved(
    folder: Path,
    course: Course = COURSE,
    stems: list[str] | None = None,
    *,
    execute: bool = False,
    cell_timeout_s: int = CELL_TIMEOUT_S,
) -> list[Path]:
    """Write the solved notebooks to `folder`; returns their paths.

    Without `execute` they hold only the outputs that the source states. With it they hold the
    outputs of a run in `folder`; raises ValueError with the cell and its error if a cell fails.
    """
    paths = []
    for stem in stems or list(course.labs()):
        notebook = source.solved_notebook(stem, course)
        path = Path(folder) / f"{stem}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        if execute:
            place = {"metadata": {"path": str(path.parent)}}
            client = NotebookClient(notebook, timeout=cell_timeout_s, resources=place)
            try:
                client.execute()
            except CellExecutionError as error:
                raise ValueError(f"The solved notebook of {stem} failed.\n{error}") from error
        source.write(notebook, path)
        paths.append(path)
    return paths


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.build", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("stems", nargs="*", metavar="STEM", help="the labs to build (default: all)")
    parser.add_argument("--check", action="store_true", help="exit 1 if a notebook is out of date")
    parser.add_argument(
        "--solved", type=Path, metavar="DIR", help="write the solved notebooks there"
    )
    parser.add_argument("--execute", action="store_true", help="run the solved notebooks first")
    asked = parser.parse_args(arguments)
    if asked.execute and asked.solved is None:
        parser.error("--execute goes with --solved DIR")
    try:
        if asked.check:
            stale = out_of_date(COURSE, asked.stems)
            print(*stale, sep="\n", end="\n" if stale else "")
            return 1 if stale else 0
        if asked.solved is not None:
            paths = build_solved(asked.solved, COURSE, asked.stems, execute=asked.execute)
        else:
            paths = build(COURSE, asked.stems)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(*paths, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
