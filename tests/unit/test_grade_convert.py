"""What stands in the participant's notebook where the source has an answer."""

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from allhands.grade.convert import STUB, ClearSolutions, given_instead, keep_known


def region(*lines, indent=""):
    inside = [indent + line for line in ("### BEGIN SOLUTION", *lines, "### END SOLUTION")]
    return "\n".join(inside)


def test_a_region_becomes_the_stub_in_its_own_indent():
    assert given_instead(region("return 1", indent="    ")) == "    " + STUB


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (["a = 1"], ["a"]),
        (["a, (b, c) = 1, (2, 3)"], ["a", "b", "c"]),
        (["a = b = 2"], ["a", "b"]),
        (["a: int = 1", "a = 2"], ["a"]),
        (["x[0] = 1", "y.z = 1"], ["x", "y"]),
        (["print(1)"], []),
    ],
)
def test_a_region_at_the_left_edge_keeps_the_names_that_it_assigns(answer, names):
    given = given_instead(region(*answer))
    if not names:
        assert given == STUB
    else:
        assert [line.split(" = ")[0] for line in given.split("\n")] == names
        exec(given.split("\n")[0], {})


def test_faults_become_live_code_in_their_own_indent():
    lines = ["for x in y:", "    use(x)", "### FAULT for x in z:", "    ### FAULT use(y)"]
    assert given_instead(region(*lines, indent="  ")) == "  for x in z:\n      use(y)"


def test_a_cell_with_two_regions_is_cleared_twice():
    source = "\n".join(
        [
            "def f():",
            region("return 1", indent="    "),
            "def g():",
            region("return 2", "### FAULT return 3", indent="    "),
        ]
    )
    cell = new_code_cell(source)
    cell.metadata["nbgrader"] = {"solution": True, "grade": False, "grade_id": "f"}
    cleared, _ = ClearSolutions().preprocess(new_notebook(cells=[cell]), {})
    assert cleared.cells[0].source == f"def f():\n    {STUB}\ndef g():\n    return 3"


def test_an_answer_outside_a_solution_cell_is_refused():
    notebook = new_notebook(cells=[new_code_cell(region("a = 1"))])
    with pytest.raises(RuntimeError, match="non-solution cell"):
        ClearSolutions().preprocess(notebook, {})


def grade_ids(notebook):
    return [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in notebook.cells]


def with_ids(*grade_ids):
    return new_notebook(
        cells=[new_code_cell(metadata={"nbgrader": {"grade_id": each}}) for each in grade_ids]
    )


IDS = ("a", "check_a", "b", "check_b")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["a", "check_a", "b", "check_b"], ["a", "check_a", "b", "check_b"]),
        (["a", "a", "check_a", "b", "check_b"], [None, "a", "check_a", "b", "check_b"]),
        (["x", "check_a", "b", "check_b"], [None, "check_a", "b", "check_b"]),
        (["a", "x", "b", "check_b"], ["a", None, "b", "check_b"]),
        (["x", "check_a", "b", "y"], [None, "check_a", "b", None]),
        (["a", ["a"], None, "b"], ["a", None, None, "b"]),
    ],
)
def test_copies_and_foreign_cells_become_ordinary(given, kept):
    notebook = with_ids(*given)
    keep_known(notebook, IDS)
    assert grade_ids(notebook) == kept
    assert all(cell.metadata.get("nbgrader", True) for cell in notebook.cells)


def test_checks_in_a_row_can_all_be_missing():
    keep_known(with_ids("a", "b"), ("a", "b", "check_a", "check_b"))


def test_metadata_of_another_kind_is_removed():
    notebook = with_ids("a", "b")
    notebook.cells += [new_code_cell(metadata={"nbgrader": odd}) for odd in ("x", None, {})]
    keep_known(notebook, IDS)
    assert [dict(cell.metadata) for cell in notebook.cells[2:]] == [{}, {}, {}]


@pytest.mark.parametrize("given", [["a"], ["a", "check_a"], ["a", "check_a", "x", "y"]])
def test_a_check_that_has_no_place_is_told_with_its_exercise(given):
    with pytest.raises(ValueError, match="cell of exercise b is missing") as caught:
        keep_known(with_ids(*given), IDS)
    assert str(caught.value).endswith("start from a fresh copy and paste your answers.")
