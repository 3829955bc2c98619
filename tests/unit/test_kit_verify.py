"""The report over all notebooks: what counts as right, and that it says what did not run."""

import dataclasses
import itertools
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from sample_course import COURSE as SAMPLE

from allhands import config
from allhands.grade import source
from allhands.grade.notebook import Grader
from allhands.kit import verify, verify_run
from allhands.kit.verify_report import Case, Part, Report
from allhands.labs import COURSE

GOOD = Part("lab", "cells", (Case("one"), Case("two")), 1.0)


def report(*parts: Part, not_done: tuple[str, ...] = ()) -> Report:
    return Report({"machine": "m"}, "cpu", "Level: CPU.", list(parts), list(not_done))


def test_a_changed_output_is_a_difference_in_all_three_files(tmp_path, monkeypatch):
    """The sample lab, one stored output of which is wrong: all cells run, all points are there."""
    solved = source.solved_notebook

    def with_a_wrong_output(stem, course):
        notebook = solved(stem, course)
        notebook.cells[-1].outputs[0].text = "another cell\n"
        return notebook

    monkeypatch.setattr(verify.source, "solved_notebook", with_a_wrong_output)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # the kernel's too
    found = report()
    with Grader(SAMPLE) as grader:
        parts = verify.planned(["sample"], grader, tmp_path, n_gpus=0)
        verify.verify(found, parts, tmp_path, stop_after_s=600)
    cells, exercises = found.parts
    code = [cell for cell in solved("sample", SAMPLE).cells if cell.cell_type == "code"]
    assert (cells.n_run, len(cells.troubles)) == (len(code), 1)
    assert "another cell" in cells.troubles[0].trouble
    assert "the last cell" in cells.troubles[0].trouble
    assert exercises.good
    assert exercises.points == (7.5, 7.5)
    assert not found.good
    told = (tmp_path / "report.txt").read_text()
    assert "7.5/7.5" in told
    assert "+ another cell" in told
    page = (tmp_path / "report.html").read_text()
    assert "+ another cell" in page
    assert 'href="sample.html"' in page
    assert (tmp_path / "sample.html").exists()
    suites = ET.parse(tmp_path / "junit.xml").getroot()
    assert [suite.get("failures") for suite in suites] == ["1", "0"]
    assert len(list(suites.iter("failure"))) == 1


def test_a_kernel_that_dies_is_named_at_once_and_a_hanging_cell_when_the_time_is_over(tmp_path):
    """Cells: one is right, in one the kernel ends, the next has none. Then one that never ends."""
    said = nbformat.v4.new_output("stream", text="so\n")
    texts = ("print('so')", "import os; os._exit(3)", "print('so')", "while True: pass")
    sources = [new_code_cell(text, outputs=[said], execution_count=1) for text in texts]
    for name, chosen in (("dies", sources[:3]), ("hangs", [sources[0], sources[3]])):
        notebook = nbformat.v4.new_notebook(cells=chosen)
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "", "language": "python"}
        (tmp_path / name).mkdir()
        nbformat.write(notebook, tmp_path / name / "a.ipynb")
    died = verify.nbval("lab", tmp_path / "dies", limit_s=verify.CELL_TIMEOUT_S / 2)
    assert [bool(case.trouble) for case in died.cases] == [False, True, True]
    assert "The kernel died while this cell ran" in died.cases[1].trouble
    hung = verify.nbval("lab", tmp_path / "hangs", limit_s=5.0)
    assert hung.troubles[-1].trouble.startswith("It was stopped after 5 s")
    assert not hung.good


def test_what_a_stopped_step_has_started_ends_with_it(tmp_path, processes):
    text = """if True:
        import os, subprocess, sys, time
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        open("pid.part", "w").write(str(child.pid))
        os.replace("pid.part", "pid")
        time.sleep(600)
        """
    assert "time was over" in verify_run.run(["-c", text], 3.0, tmp_path)
    child, end_s = int((tmp_path / "pid").read_text()), time.monotonic() + 30
    while processes.is_running(child) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert processes.end([child]) == []


@pytest.mark.parametrize(
    ("found", "good"),
    [
        (report(GOOD), True),
        (report(), False),  # nothing ran
        (report(GOOD, Part("lab", "cells", (), 0.0)), False),  # nothing ran in it
        (report(GOOD, Part("lab", "gpu", (Case("a", left_out="no GPU"),), 0.0)), False),
        (report(Part("lab", "gpu", (Case("a", left_out="no GPU"), Case("b")), 0.0)), True),
        (report(Part("lab", "cells", (Case("a", trouble="broken"), Case("b")), 0.0)), False),
        (report(GOOD, not_done=("lab2: cells",)), False),
    ],
)
def test_right_is_what_ran_and_did_not_fail(found, good, tmp_path):
    assert found.good is good
    found.write(tmp_path)
    suites = ET.parse(tmp_path / "junit.xml").getroot()
    bad = [*suites.iter("failure"), *suites.iter("error")]
    left_out_whole = any(len(part.left_out) == len(part.cases) for part in found.parts)
    assert bool(bad) or left_out_whole or good
    assert found.verdict in (tmp_path / "report.txt").read_text()


def test_what_a_program_printed_cannot_break_the_files(tmp_path):
    ugly = "\x1b[91m<b>&\x00\x1b[0m 二十四"
    report(Part("lab", "cells", (Case(ugly, trouble=ugly),), 0.0)).write(tmp_path)
    told = ET.parse(tmp_path / "junit.xml").getroot().find(".//failure").text
    assert told == "<b>&? 二十四"
    assert "<b>" not in (tmp_path / "report.html").read_text()


def test_without_a_gpu_the_level_is_cpu_and_says_so():
    assert verify.level_here("auto", []) == (
        "cpu",
        "Level: CPU. The GPU level was not run: PyTorch sees no GPU here.",
    )
    assert verify.level_here("auto", ["H200"])[0] == "gpu"
    assert verify.level_here("cpu", ["H200"])[1].endswith("not run: it was not asked for.")


def test_level_gpu_without_one_is_refused_with_a_report(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(verify, "machine", lambda: ({"GPUs": "none"}, []))
    assert verify.main(["--level", "gpu", "--out", str(tmp_path)], SAMPLE) == 2
    assert "PyTorch sees no GPU" in capsys.readouterr().err
    assert "PyTorch sees no GPU" in (tmp_path / "report.txt").read_text()
    assert ET.parse(tmp_path / "junit.xml").getroot().find(".//error") is not None
    assert verify.main(["none_such"], SAMPLE) == 2
    assert "There are: sample" in capsys.readouterr().err


def test_a_job_that_is_killed_has_named_what_it_did_not_do(tmp_path):
    """The report is written before each part too: then what waits is in it."""

    def killed(left_s: float) -> Part:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify.verify(report(), iter([("lab1: cells", killed)]), tmp_path, stop_after_s=60)
    assert "Not all is right: lab1: cells" in (tmp_path / "report.txt").read_text()


def test_what_is_not_done_in_time_is_named(tmp_path):
    def never(left_s: float) -> Part:
        raise AssertionError("it was begun")

    found = verify.verify(report(), iter([("lab1: cells", never)]), tmp_path, stop_after_s=-1)
    assert found.not_done == ["lab1: cells"]
    assert "lab1: cells" in (tmp_path / "report.txt").read_text()


def test_a_step_passes_fails_with_its_last_lines_or_is_left_out(tmp_path):
    plain = verify.Step("lab", "a step", ("-c", "import sys; sys.exit(sys.argv[1:])", "{run}"))
    failed = verify.step(plain, 1, tmp_path, limit_s=60)
    assert f"{tmp_path / 'run'}" in failed.troubles[0].trouble
    passed = verify.step(dataclasses.replace(plain, words=("-c", "")), 1, tmp_path, limit_s=60)
    assert passed.good
    two = verify.step(dataclasses.replace(plain, n_gpus=2), 1, tmp_path, limit_s=60)
    assert two.left_out[0].left_out == "it needs 2 GPUs, and here is 1"
    assert report(GOOD, two).verdict == "All that ran is right; left out: lab: a step."
    assert not report(GOOD, dataclasses.replace(two, beyond=False)).good
    endless = dataclasses.replace(plain, words=("-c", "while True: pass"))
    assert "time was over" in verify.step(endless, 1, tmp_path, limit_s=0.2).troubles[0].trouble


def test_the_gpu_level_trains_every_preset_for_gpus_of_every_lab(tmp_path):
    trained = {step.words[3] for step in verify.GPU_STEPS if "train" in step.words}
    on_gpus = {name for name in config.PRESETS if "_gpu" in name}
    assert trained == on_gpus
    owners = {step.words[3]: step.lab for step in verify.GPU_STEPS if "train" in step.words}
    assert all(preset in COURSE.lab(lab).presets for preset, lab in owners.items())
    for step in verify.GPU_STEPS:
        if "train" not in step.words:
            assert (verify.PROJECT / step.words[0]).exists()
        for option, value in itertools.pairwise(step.words):
            if option == "--set":
                config.override(config.preset(step.words[3]), [value])


def test_at_level_gpu_a_lab_s_steps_follow_its_notebook_and_the_marked_tests_end_it(tmp_path):
    grader = type("Grader", (), {"course": COURSE})
    at = {n: [what for what, _ in planned(grader, tmp_path, n)] for n in (0, 1)}
    assert at[0] == ["lab1_seq2seq: cells (nbval)", "lab1_seq2seq: exercises"]
    assert at[1] == [*at[0], "lab1_seq2seq: trains lab1_gpu", "all: tests marked gpu"]


def planned(grader, folder, n_gpus):
    return verify.planned(["lab1_seq2seq"], grader, folder, n_gpus)
