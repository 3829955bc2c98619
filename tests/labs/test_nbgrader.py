"""Notebooks get the points they should get, from our grader and from nbgrader's own commands.

The sample lab stands for what holds in every lab: tampering, endless loops, dead kernels,
interrupts. The labs of the course run once blank and once solved, through nbgrader's own commands.
"""

import csv
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from sample_course import COURSE as SAMPLE

from allhands.grade import notebook as grading
from allhands.grade import source
from allhands.kit import build, tour
from allhands.labs import COURSE

# The labs of the course run as long as they need.
of_the_course = pytest.mark.timeout(900)
SETTINGS = COURSE.labs_file.parent / "jupyter" / "nbgrader_config.py"


@pytest.fixture(scope="module")
def grader():
    """Cells may take 6 s, which the cells of the sample do not need."""
    with grading.Grader(SAMPLE, cell_timeout_s=6) as grader:
        yield grader


@pytest.fixture(scope="module")
def blank():
    return nbformat.writes(build.participants_notebook("sample", SAMPLE))


def grade(grader, tmp_path, text, **new_sources):
    """Grade the notebook with the cells of these ids rewritten (None: the cell is deleted)."""
    notebook = nbformat.reads(text, as_version=4)
    notebook.cells = [
        {**cell, "source": new_sources.get(cell.id, cell.source)}
        for cell in map(nbformat.from_dict, notebook.cells)
        if new_sources.get(cell.id, "") is not None
    ]
    path = tmp_path / "renamed.ipynb"
    path.write_text(nbformat.writes(nbformat.from_dict(notebook)), encoding="utf-8")
    return grader.grade(path)


def by_id(score):
    return {each.id: each for each in score.exercises}


def test_a_blank_notebook_runs_to_its_last_cell_and_scores_nothing(grader, blank, tmp_path):
    score = grade(grader, tmp_path, blank)
    assert (score.score, score.max) == (0, 7.5)
    outputs = [output for cell in score.executed.cells[1:] for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert score.executed.cells[-1].outputs[0].text == "the last cell\n"
    assert by_id(score)["double"].said == ("This answer is not written yet.",)


def test_an_edited_check_is_restored_and_a_deleted_one_comes_back(grader, blank, tmp_path):
    score = grade(
        grader,
        tmp_path,
        blank,
        double="def double(n):\n    return 2 * n",
        check_first="2",
        check_size='desk.check("double", double)',
        check_reason=None,
    )
    assert [each.score for each in score.exercises] == [3, 0, 0, 0]
    assert "Try: count from 0." in by_id(score)["first"].said[0]
    assert by_id(score)["size"].said == ("This answer is not written yet.",)
    assert by_id(score)["reason"].said == ("This answer is not written yet.",)


RIGHT = {
    "double": "def double(n):\n    return 2 * n",
    "first": "def first(word):\n    return word[0]",
    "size": "size = 3",
    "reason": 'reason = "a"',
}


def answered():
    """A notebook with all the right answers, as its JSON's cells by id."""
    notebook = build.participants_notebook("sample", SAMPLE)
    for cell in notebook.cells:
        cell.source = RIGHT.get(cell.id, cell.source)
    return notebook, {cell.id: cell for cell in notebook.cells}


def paste_below(notebook, cell):
    """What JupyterLab does: a cell with the same metadata and a new id."""
    copy = nbformat.from_dict({**cell, "id": f"{cell.id}-copy"})
    notebook.cells.insert(notebook.cells.index(cell) + 1, copy)


def rename(_notebook, cell):
    cell.metadata.nbgrader.grade_id += "_mine"


@pytest.mark.parametrize("id", ["double", "check_double"])
@pytest.mark.parametrize("change", [paste_below, rename])
def test_a_copied_or_renamed_cell_costs_nothing(grader, tmp_path, change, id):
    notebook, cells = answered()
    change(notebook, cells[id])
    assert grade(grader, tmp_path, nbformat.writes(notebook)).full


def test_nbgrader_too_grades_copied_and_renamed_cells_and_leaves_runs_out(tmp_path):
    shutil.copy(SETTINGS, tmp_path)
    place = "sample/sample.ipynb"
    source.write(source.solved_notebook("sample", SAMPLE), tmp_path / "source" / place)
    nbgrader(tmp_path, "generate_assignment", "sample")
    for change in (paste_below, rename):
        notebook, cells = answered()
        change(notebook, cells["double"])
        change(notebook, cells["check_first"])
        student = tmp_path / "submitted" / change.__name__
        source.write(notebook, student / place)
        (student / "sample" / "runs").mkdir()
    (student / "sample" / "runs" / "snapshot").write_text("large")
    (student / "sample" / "notes.txt").write_text("mine")
    nbgrader(tmp_path, "autograde", "sample")
    nbgrader(tmp_path, "export", "--to", "grades.csv")
    assert scores(tmp_path, SAMPLE.lab("sample")) == {
        "paste_below": (7.5, 7.5),
        "rename": (7.5, 7.5),
    }
    autograded = tmp_path / "autograded" / "rename" / "sample"
    assert {each.name for each in autograded.iterdir()} >= {"sample.ipynb", "notes.txt"}
    assert not (autograded / "runs").exists()


NOISY = """
import os, sys
def double(number):
    os.write(2, b"from a descriptor")
    os.system("echo from a child >&2")
    print("from Python", file=sys.stderr)
    return 2 * number
"""


def test_in_a_kernel_too_noise_costs_nothing_and_errors_are_told_with_their_line(
    grader, blank, tmp_path
):
    broken = "def first(word):\n    return word.nothing"
    score = grade(grader, tmp_path, blank, double=NOISY, first=broken)
    assert by_id(score)["double"].score == 3
    (said,) = by_id(score)["first"].said
    assert "AttributeError: 'str' object has no attribute 'nothing'" in said
    assert "line 2 of `first`: `return word.nothing`" in said


def test_an_endless_cell_is_stopped_and_the_rest_is_graded(grader, blank, tmp_path):
    score = grade(grader, tmp_path, blank, size="while True: pass", reason='reason = "a"')
    assert score.score == 1
    said = by_id(score)["size"].said
    assert "NameError" in said[0]
    assert (
        said[1] == "Before it, the cell `while True: pass` failed: the cell was stopped after 6 s."
    )


def test_a_dead_kernel_costs_what_comes_after_it(grader, blank, tmp_path):
    answers = {"double": "def double(n):\n    return 2 * n", "reason": 'reason = "a"'}
    score = grade(grader, tmp_path, blank, **answers, size="import os; os._exit(1)")
    assert [each.score for each in score.exercises] == [3, 0, 0, 0]
    assert "an earlier cell ended the kernel" in by_id(score)["reason"].said[0]
    assert "`import os; os._exit(1)` failed: this cell ended" in by_id(score)["reason"].said[1]


def test_all_cells_together_have_a_limit_too(blank, tmp_path):
    with grading.Grader(SAMPLE, notebook_timeout_s=6) as grader:
        score = grade(grader, tmp_path, blank, first="while True: pass", reason='reason = "a"')
    assert score.score == 0
    assert "more than 6 s together" in by_id(score)["reason"].said[0]


def test_the_tour_visits_a_lab_and_links_its_notebook(tmp_path, capsys):
    assert tour.main(["sample", "--out", str(tmp_path)], SAMPLE) == 0
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "7.5 of 7.5" in page
    assert 'href="sample.html"' in page
    assert "twice 3 is 6" in page
    assert "the last cell" in (tmp_path / "sample.html").read_text(encoding="utf-8")
    assert "running the notebook" in capsys.readouterr().out
    assert tour.main(["lab99"], SAMPLE) == 2


GRADE = """
import sys
from sample_course import COURSE
from allhands.grade.notebook import grade_notebook
grade_notebook(sys.argv[1], course=COURSE)
"""
WAIT = """
pipe = open({pipe!r}, "w")
pipe.write("running\\n")
pipe.flush()
while True: pass
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_grading_leaves_no_kernel_behind(blank, tmp_path, signal_number):
    pipe, path = tmp_path / "pipe", tmp_path / "x.ipynb"
    os.mkfifo(pipe)
    notebook = nbformat.reads(blank, as_version=4)
    notebook.cells[0] = nbformat.v4.new_code_cell(WAIT.format(pipe=str(pipe)))
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    command = [sys.executable, "-c", GRADE, str(path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        with open(pipe, encoding="utf-8") as kernel:
            assert kernel.readline() == "running\n"
            process.send_signal(signal_number)
            assert kernel.read() == ""  # the pipe ends when its only writer, the kernel, has ended
        assert process.wait() != 0


@pytest.fixture(scope="module", params=list(COURSE.labs()))
def lab(request):
    return COURSE.lab(request.param)


@pytest.fixture(scope="module")
def classroom(lab, tmp_path_factory):
    """A course folder in which nbgrader's own commands have run for one lab of the course."""
    folder, stem = tmp_path_factory.mktemp("course"), lab.stem
    shutil.copy(SETTINGS, folder)
    source.write(source.solved_notebook(stem), folder / "source" / stem / f"{stem}.ipynb")
    nbgrader(folder, "generate_assignment", stem)
    for student, step in (("blank", "release"), ("solved", "source")):
        shutil.copytree(folder / step / stem, folder / "submitted" / student / stem)
    nbgrader(folder, "autograde", stem)
    nbgrader(folder, "generate_feedback", stem)
    nbgrader(folder, "export", "--to", "grades.csv")
    return folder


def nbgrader(folder, *words):
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *words],
        cwd=folder,
        env={**os.environ, "PATH": programs},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def scores(classroom, lab):
    with open(classroom / "grades.csv", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["assignment"] == lab.stem]
    return {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in rows}


@pytest.mark.slow
@of_the_course
def test_the_released_notebook_is_the_one_that_the_kit_builds(classroom, lab):
    released = nbformat.read(classroom / "release" / lab.stem / f"{lab.stem}.ipynb", as_version=4)
    assert source.text_of(released) == source.text_of(build.participants_notebook(lab.stem))


@pytest.mark.slow
@of_the_course
def test_a_blank_notebook_gets_0_and_a_solved_one_full_points_from_nbgrader(classroom, lab):
    assert scores(classroom, lab) == {"blank": (0, lab.points), "solved": (lab.points, lab.points)}


def autograded(classroom, student, lab):
    place = classroom / "autograded" / student / lab.stem / f"{lab.stem}.ipynb"
    cells = nbformat.read(place, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


@pytest.mark.slow
@of_the_course
def test_a_lab_runs_to_its_last_cell(classroom, lab):
    for student in ("blank", "solved"):
        code = autograded(classroom, student, lab)
        errors = [(c.source, o.evalue) for c in code for o in c.outputs if o.output_type == "error"]
        assert errors == [], student
        assert code[-1].execution_count == len([c for c in code if c.source.strip()])


@pytest.mark.slow
@of_the_course
def test_a_solved_lab_prints_what_its_source_states(classroom, lab):
    """What nbval compares, read off the run that nbgrader has made (nbval: test_nbval.py)."""
    code = source.solved_notebook(lab.stem).cells
    stated = [cell for cell in code if "nbval-check-output" in cell.metadata.get("tags", [])]
    seen = {cell.id: cell for cell in autograded(classroom, "solved", lab)}
    for cell in stated:
        assert texts(seen[cell.id]) == texts(cell), cell.source


def texts(cell):
    """What a cell printed, and its value as text."""
    printed = "".join(o.text for o in cell.outputs if o.get("name") == "stdout")
    return printed, [o.data["text/plain"] for o in cell.outputs if "data" in o]


@pytest.mark.slow
@of_the_course
def test_our_reading_of_the_points_is_nbgraders(classroom, lab):
    for student, (points, _) in scores(classroom, lab).items():
        place = classroom / "autograded" / student / lab.stem / f"{lab.stem}.ipynb"
        read = grading._score(lab, nbformat.read(place, as_version=4), 600)
        assert (read.score, read.max) == (points, lab.points)
        assert all(each.said for each in read.exercises)


@pytest.mark.slow
@of_the_course
def test_nbgraders_feedback_shows_the_verdicts(classroom, lab):
    for student in ("blank", "solved"):
        page = classroom / "feedback" / student / lab.stem / f"{lab.stem}.html"
        text = page.read_text(encoding="utf-8")
        assert all(exercise.title.split("`")[0] in text for exercise in lab.exercises)
