"""From records to one sentence, worked by hand. Times are seconds; the keeper stopped at 10."""

import json
import re

import pytest

from allhands.launch import RanksFailed, TimeUp, WrongWorld
from allhands.launch.job import Job
from allhands.launch.report import judge

BOOM = {"what": "raised ValueError: boom", "where": "line 7 of train.py"}


@pytest.fixture
def job(tmp_path) -> Job:
    return Job("id", tmp_path, 4)


def record(job: Job, name: str, at_s: float, **content: object) -> None:
    (job.folder / name).write_text(json.dumps(content | {"at_s": at_s}))


def verdict(job: Job, why: str = "launcher ended", code: int = 1):
    keeper = {"why": why, "code": code, "wall_s": 10.0, "stopped_s": 10.0, "most_bytes": 9}
    return judge(job, keeper, 15, "mpiexec")


def failure(job: Job, kind: type = RanksFailed, **keeper) -> tuple[str, tuple[int, ...]]:
    with pytest.raises(kind) as caught:
        verdict(job, **keeper)
    return str(caught.value), getattr(caught.value, "culprits", ())


def test_all_ended_well(job):
    for rank in range(4):
        record(job, f"rank{rank}.ended", 5, code=0)
        (job.folder / f"rank{rank}.out").write_text(f"a{rank}\nb\n")
    done = verdict(job, code=0)
    assert done.returncodes == (0, 0, 0, 0)
    assert [done.text(rank) for rank in range(4)] == ["a0\nb", "a1\nb", "a2\nb", "a3\nb"]


def test_the_first_to_fail_is_named_whatever_its_rank_and_those_the_launcher_ended_are_not(job):
    record(job, "rank0.ended", 6, code=-15)
    record(job, "rank1.ended", 6, code=-15)
    record(job, "rank2.ended", 5, code=-9)
    assert failure(job) == (
        "rank 2 was killed by signal 9 (SIGKILL): out of memory?; ranks 0, 1, 3 were stopped",
        (2,),
    )


def test_an_error_that_follows_from_the_first_is_told_as_such(job):
    record(job, "rank3.raised", 5, **BOOM)
    record(job, "rank0.raised", 6, what="raised RuntimeError: Connection closed", where="")
    record(job, "rank1.ended", 7, code=0)
    assert failure(job) == (
        "rank 3 raised ValueError: boom (line 7 of train.py); "
        "rank 0 raised RuntimeError: Connection closed after that; rank 2 was stopped",
        (3,),
    )


def test_ranks_with_the_same_error_are_named_together(job):
    for rank in (1, 3):
        record(job, f"rank{rank}.raised", 5 + rank, **BOOM)
    sentence, culprits = failure(job)
    assert culprits == (1, 3)
    assert sentence.startswith("ranks 1, 3 raised ValueError: boom")


def test_the_rank_that_mpich_names_as_aborting(job):
    (job.folder / "rank1.err").write_text(
        "some warning\nAbort(14) on node 1 (rank 1 in comm 0): Fatal error in internal_Bcast: "
        "Message truncated, error stack:\n"
    )
    assert failure(job) == (
        "rank 1 aborted the job (Fatal error in internal_Bcast: Message truncated, error stack:); "
        "ranks 0, 2, 3 were stopped",
        (1,),
    )


def test_what_ranks_do_while_the_job_is_being_stopped_is_no_cause(job):
    for rank in range(4):
        record(job, f"rank{rank}.ended", 10.5, code=-9)
        record(job, f"rank{rank}.over", 10.5)
    (job.folder / "rank2.out").write_text("epoch 1\nepoch 2\n\n")
    sentence, culprits = failure(job, TimeUp, why="time")
    assert culprits == ()
    assert sentence == (
        "no rank ended within 15 s; rank 0 was at an unknown place (it said nothing); "
        "rank 1 was at an unknown place (it said nothing); "
        'rank 2 was at an unknown place (its last line: "epoch 2"); '
        "rank 3 was at an unknown place (it said nothing)"
    )


def test_a_last_line_that_several_ranks_share_is_quoted_once(job):
    for rank, text in enumerate(["epoch 1", "epoch 2", "epoch 1", ""]):
        (job.folder / f"rank{rank}.out").write_text(f"{text}\n")
    sentence, _ = failure(job, TimeUp, why="time")
    assert re.findall(r"\((.*?)\)", sentence) == [
        'its last line: "epoch 1"',
        'its last line: "epoch 2"',
        "the same last line as rank 0",
        "it said nothing",
    ]


def test_ranks_that_write_too_much_are_named_and_an_error_comes_before_them(job):
    (job.folder / "rank1.out").write_text("0123456789")
    (job.folder / "rank2.out").write_text("012345678")
    (job.folder / "rank3.err").write_text("0123456789a")
    sentence, culprits = failure(job, why="output")
    assert culprits == (1, 3)
    assert sentence == (
        "rank 1 wrote 10 bytes to stdout and rank 3 wrote 11 bytes to stderr, and a job is ended "
        "above 9 bytes: print less, or into a file of the program's own"
    )
    record(job, "rank0.raised", 5, **BOOM)
    sentence, culprits = failure(job, why="output")
    assert culprits == (0,)
    assert sentence.startswith("rank 0 raised ValueError: boom (line 7 of train.py); ranks 1, 2, 3")
    assert "rank 1 wrote 10 bytes" in sentence


def test_ranks_that_ended_in_time_are_told_from_those_that_did_not(job):
    for rank in (0, 1, 3):
        record(job, f"rank{rank}.ended", 5, code=0)
    sentence, _ = failure(job, TimeUp, why="time")
    assert sentence.startswith(
        "rank 2 did not end within 15 s, while ranks 0, 1, 3 did; rank 2 was"
    )


def test_worlds_of_one(job):
    for pid in (11, 12, 13, 14):
        record(job, f"{pid}.world", 1, size=1)
    sentence, _ = failure(job, WrongWorld)
    assert sentence.startswith("asked for 4 ranks, but MPI built 4 worlds of 1 rank: mpiexec and")


def test_a_launcher_that_starts_nothing_is_quoted(job):
    (job.folder / "launcher.out").write_text("-----\nNot enough slots.\n-----\n")
    assert failure(job, code=3) == (
        "mpiexec ended with exit code 3 before a rank started; it said: Not enough slots.",
        (),
    )


def test_a_long_message_is_cut_to_one_short_line(job):
    record(job, "rank0.raised", 5, what="raised ValueError: a\n" + "b" * 1000, where="")
    sentence, _ = failure(job)
    assert "raised ValueError: a bbb" in sentence
    assert "\n" not in sentence
    assert len(sentence) < 300


def test_a_rank_that_left_in_the_middle_is_named_whatever_the_launcher_says(job):
    for rank in range(4):
        record(job, f"rank{rank}.pid", 1, pid=1)
    record(job, "rank1.ended", 5, code=0)  # os._exit(0): its script was not over
    record(job, "rank2.over", 5)
    record(job, "rank2.ended", 5.1, code=0)
    assert failure(job, code=0) == (
        "rank 1 ended with exit code 0 within its program (os._exit?); mpiexec ended with exit "
        "code 0 before ranks 0, 3 did",
        (1,),
    )
