"""Logs without labels: hooks and MPI name a traceback's rank, or the answer is undetermined."""

from pathlib import Path

import pytest
import rich.console

from allhands import triage

TRACEBACK = """Traceback (most recent call last):
  File "/scratch/job.py", line 125, in <module>
    main()
  File "/scratch/job.py", line 86, in main
    counts[word] += 1
"""
HOOK = "Rank {} of 4 raised {}; the job will be aborted in {:g} s.\n"
CHAINERMN = """
******************************************
ChainerMN:
   Uncaught exception on rank {}.
   Calling MPI_Abort() to shut down MPI...
******************************************
"""
ABORT = (
    "Abort(1) on node {0} (rank {0} in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1)\n"
)
INDEX = "IndexError: index 12 is out of bounds for axis 0 with size 12\n"


def answer_to(folder: Path, text: str) -> triage.Triage:
    log = folder / "job.log"
    log.write_text(text)
    return triage.triage([log])


def labelled(rank: int, text: str) -> str:
    return "".join(f"[{rank}] {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("labels", [False, True])
def test_one_rank_whose_hook_waited_depends_on_the_rank(labels, tmp_path):
    text = HOOK.format(2, "IndexError", 3) + TRACEBACK + INDEX + ABORT.format(2)
    text = labelled(2, text) if labels else text
    answer = answer_to(tmp_path, f"102 sentences on 4 ranks\n{text}")
    assert (answer.world_size, answer.root_ranks, answer.culprit_ranks) == (4, (2,), (2,))
    assert answer.rank_dependent is True
    assert answer.cause_id == "data_error_one_rank"
    assert "3 s after the error" in answer.verdict
    assert "abort that waits" not in answer.next_step


@pytest.mark.parametrize("labels", [False, True])
def test_a_hook_that_did_not_wait_decides_nothing(labels, tmp_path):
    text = HOOK.format(2, "IndexError", 0) + TRACEBACK + INDEX + ABORT.format(2)
    answer = answer_to(tmp_path, labelled(2, text) if labels else text)
    assert answer.root_ranks == (2,)
    assert answer.rank_dependent is None
    assert answer.cause_id == "code_bug_undetermined"
    assert "abort that waits" in answer.next_step


def test_all_hooks_speak_of_the_same_error(tmp_path):
    each = [HOOK.format(r, "IndexError", 3) + TRACEBACK + INDEX for r in (2, 1, 3, 0)]
    answer = answer_to(tmp_path, "".join(each) + ABORT.format(3) + ABORT.format(1))
    assert (answer.rank_dependent, answer.root_ranks) == (False, (0, 1, 2, 3))
    assert answer.count.complete == (0, 1, 2, 3)


@pytest.mark.parametrize("named", [CHAINERMN, ABORT], ids=["ChainerMN's hook", "MPI_Abort"])
def test_what_stands_behind_a_traceback_names_its_rank(named, tmp_path):
    answer = answer_to(tmp_path, f"on 4 ranks\n{TRACEBACK}{INDEX}{named.format(1)}")
    assert (answer.world_size, answer.root_ranks) == (4, (1,))
    assert answer.rank_dependent is None


def test_the_rank_that_aborted_is_one_of_the_job(tmp_path):
    assert answer_to(tmp_path, TRACEBACK + INDEX + ABORT.format(5)).world_size == 6


def test_two_tracebacks_and_one_abort_name_no_rank(tmp_path):
    text = f"on 4 ranks\n{TRACEBACK}{INDEX}{TRACEBACK}ValueError: x\n{ABORT.format(2)}"
    answer = answer_to(tmp_path, text)
    assert answer.root_ranks == ()
    assert answer.rank_dependent is None
    assert "auncher or its agent" not in answer.verdict + answer.cause
    assert "-prepend-rank" in answer.next_step


def test_one_rank_of_an_unknown_number_is_not_all_ranks(tmp_path):
    answer = answer_to(tmp_path, labelled(0, TRACEBACK + INDEX + ABORT.format(0)))
    assert (answer.world_size, answer.rank_dependent) == (1, None)
    assert "All 1" not in answer.verdict


def test_a_text_that_is_no_log_is_asked_about(tmp_path):
    answer = answer_to(tmp_path, "Permission is granted, free of charge, to any person.\n" * 9)
    assert not answer.failed
    assert "Is this a job's log?" in answer.cause
    assert "Nothing to debug" not in answer.next_step


def test_the_page_calls_ranks_that_failed_later_a_consequence(tmp_path):
    later = f"{TRACEBACK}mpi4py.MPI.Exception: Other MPI error, error stack:\n"
    text = "on 3 ranks\n" + labelled(2, TRACEBACK + INDEX) + labelled(0, later)
    answer = answer_to(tmp_path, f"{text}[1] epoch 1\n")
    page = triage.page(answer)
    assert 'title="rank 0: consequence, or ended by others"' in page
    assert 'title="rank 1: no error"' in page
    assert '"marked consequence"' in page
    assert "ranks\n0:" not in page


def test_a_notebook_gets_the_text_too(tmp_path, monkeypatch):
    answer = answer_to(tmp_path, TRACEBACK + INDEX)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    assert "IndexError" in triage.report(answer)


JOB = """[job] 2026-11-30 01:54:59 job 7, part 1, on n1: python my_train.py
epoch 1: loss 0.25
[job] 2026-11-30 01:55:03 job 7 ended with exit code {}. Run folder: runs/mine/7
"""


def test_the_log_of_a_job_script_is_a_jobs_log(tmp_path):
    answer = answer_to(tmp_path, JOB.format(0))
    assert not answer.failed
    assert "Is this a job's log?" not in answer.cause
    assert answer.next_step == "Nothing to debug."


def test_a_job_that_failed_without_a_word_is_not_called_well(tmp_path):
    answer = answer_to(tmp_path, JOB.format(0) + JOB.format(3))
    assert "exit code 3" in answer.cause
    assert "Nothing to debug" not in answer.next_step
    assert answer_to(tmp_path, JOB.format(3) + JOB.format(0)).next_step == "Nothing to debug."
