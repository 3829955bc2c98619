"""What a count of tracebacks is worth: cases by hand, with a launcher's abort and without."""

from pathlib import Path

import pytest

from allhands import triage

ABORT = "MPI_ABORT was invoked on rank {} in communicator MPI_COMM_WORLD"
BODY = [
    "Traceback (most recent call last):",
    '  File "/scratch/run.py", line 140, in <module>',
    "    main()",
    '  File "/scratch/run.py", line 66, in main',
    "    h = f(x)",
]


def job(
    folder: Path,
    raised: dict[int, str],
    *,
    ranks: int,
    cut: dict[int, int] | None = None,
    up: bool = True,
    after: dict[int, str] | None = None,
    end: str = "",
) -> triage.Triage:
    """A tagged log: `raised` whole, `cut` after so many lines, `after` said at the end."""
    lines = [f"[1,{r}]<stdout>:up, world size {ranks}" for r in range(ranks) if up]
    for rank, last in raised.items():
        lines += [f"[1,{rank}]<stderr>:{text}" for text in [*BODY, last]]
    for rank, count in (cut or {}).items():
        lines += [f"[1,{rank}]<stderr>:{text}" for text in BODY[:count]]
    lines += [f"[1,{rank}]<stdout>:{text}" for rank, text in (after or {}).items()]
    log = folder / "job.log"
    log.write_text("\n".join([*lines, end]) + "\n")
    return triage.triage([log])


def test_all_ranks_is_no_matter_of_rank(tmp_path):
    answer = job(tmp_path, dict.fromkeys(range(4), "ValueError: x"), ranks=4, end=ABORT.format(2))
    assert answer.rank_dependent is False
    assert "All 4 ranks" in answer.verdict
    assert answer.cause_id == "code_bug_all_ranks"


def test_one_rank_and_no_abort_depends_on_the_rank(tmp_path):
    answer = job(tmp_path, {2: "ValueError: x"}, ranks=4)
    assert answer.rank_dependent is True
    assert answer.cause_id == "data_error_one_rank"


def test_one_rank_and_an_abort_is_undetermined_with_the_experiment_that_decides(tmp_path):
    answer = job(tmp_path, {2: "ValueError: x"}, ranks=4, end=ABORT.format(2))
    assert answer.rank_dependent is None
    assert "ndetermined" in answer.verdict
    assert "abort that waits" in answer.next_step
    assert "one process" in answer.next_step
    assert answer.as_dict()["rank_dependent"] is None


def test_cut_tracebacks_count_apart_and_as_the_same_failure(tmp_path):
    raised = dict.fromkeys(range(5), "ValueError: x")
    answer = job(tmp_path, raised, ranks=8, cut={5: 4, 6: 2, 7: 1}, end=ABORT.format(0))
    assert str(answer.count) == "5 complete, 3 cut, 0 without it, 0 silent"
    assert answer.rank_dependent is False
    assert answer.duplicate_count == 5
    assert answer.root_ranks == (0, 1, 2, 3, 4)


def test_ranks_that_print_nothing_at_all_are_silent(tmp_path):
    answer = job(
        tmp_path, {2: "ValueError: x"}, ranks=4, up=False, end=f"mpiexec -n 4 python t.py\n{ABORT}"
    )
    assert answer.silent_ranks == (0, 1, 3)
    assert str(answer.count) == "1 complete, 0 cut, 0 without it, 3 silent"


@pytest.mark.parametrize(
    "text",
    ["ModuleNotFoundError: No module named 'kelp'", "NameError: name 'f' is not defined"],
)
def test_errors_that_need_no_rank_are_decided_in_spite_of_an_abort(text, tmp_path):
    answer = job(tmp_path, {2: text}, ranks=4, end=ABORT.format(2))
    assert answer.rank_dependent is False


def test_victims_show_that_the_others_were_in_good_health(tmp_path):
    raised = {1: "IndexError: list index out of range"}
    raised |= dict.fromkeys((0, 2, 3), "RuntimeError: Connection closed by peer [10.1.0.4]:4416")
    answer = job(tmp_path, raised, ranks=4, end=ABORT.format(0))
    assert answer.root_error_class == "IndexError"
    assert answer.root_ranks == (1,)
    assert answer.rank_dependent is True
    assert any("Connection closed" in error for error in answer.secondary_errors)


def test_the_root_is_found_behind_louder_consequences(tmp_path):
    """The victims print first and are more; the root stands after them."""
    raised = dict.fromkeys((0, 2, 3), "HorovodInternalError: Horovod has been shut down.")
    raised[1] = "KeyError: 'tile'"
    answer = job(tmp_path, raised, ranks=4)
    assert (answer.root_error_class, answer.root_ranks) == ("KeyError", (1,))


def test_others_that_wait_in_a_collective_were_healthy(tmp_path):
    answer = job(
        tmp_path,
        {1: "IndexError: list index out of range"},
        ranks=3,
        after={0: "waiting in allreduce", 2: "waiting in allreduce"},
        end=ABORT.format(1),
    )
    assert answer.rank_dependent is True


def test_all_but_rank_0_is_named_as_such(tmp_path):
    raised = dict.fromkeys((1, 2, 3), "FileExistsError: [Errno 17] File exists: 'out'")
    answer = job(tmp_path, raised, ranks=4)
    assert answer.rank_dependent is True
    assert answer.cause_id == "rank0_special"


def test_a_caught_exception_is_no_failure(tmp_path):
    log = tmp_path / "job.log"
    lines = [*BODY, "TimeoutError: no answer", "retry 1/3 ok", "epoch 2 step 5"]
    log.write_text(
        "".join(f"[1,{r}]<stdout>:{t}\n" for r in (0, 1) for t in (lines if r else "ab"))
    )
    answer = triage.triage([log])
    assert not answer.failed
    assert answer.handled == 1
    assert answer.cause_id == "no_error"


def test_a_consequence_alone_is_the_root_only_when_nothing_else_is_there(tmp_path):
    text = "RuntimeError: Connection closed by peer [10.1.0.4]:4416"
    answer = job(tmp_path, dict.fromkeys((0, 1, 3), text), ranks=4, up=False)
    assert answer.cause_id == "peer_lost"
    assert answer.culprit_ranks == (2,)
    assert "TORCH_DISTRIBUTED_DEBUG=DETAIL" in answer.next_step
