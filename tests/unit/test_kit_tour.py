"""The tour's pages: links to the project's files hold from the folder where a page is written."""

import nbformat

from allhands.kit.tour import _seen_from
from allhands.labs import Course


def test_links_to_the_project_hold_from_the_report_s_folder(tmp_path):
    course = Course(tmp_path / "labs.toml", tmp_path / "notebooks/src", tmp_path / "notebooks")
    out = tmp_path / "build" / "tour"
    cells = [
        nbformat.v4.new_markdown_cell("![a figure](../slides/figures/a.svg)"),
        nbformat.v4.new_code_cell("print('](../stays')"),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    seen = _seen_from(out, notebook, course)
    assert seen.cells[0].source == "![a figure](../../slides/figures/a.svg)"
    assert seen.cells[1].source == cells[1].source
    assert notebook.cells[0].source == "![a figure](../slides/figures/a.svg)"
