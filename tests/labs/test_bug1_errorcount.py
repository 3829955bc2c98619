"""Bug 1: each fault shows and is gone when repaired; logs of real ranks."""

import subprocess
import sys

import numpy as np
import pytest

from allhands import launch, triage
from allhands.grade.checks import bug1_errorcount as checks
from allhands.labs import COURSE
from allhands.train.faults import bug1_errorcount as ours
from allhands.train.faults import bug1_errorcount_log as logs
from allhands.train.faults.readings import readings
from allhands.train.rungs import start

BENCH = COURSE.labs_file.parent / "bug1_errorcount"


# ---- the three faults: the symptom is there, and gone ----


def test_the_table_fails_on_every_rank_with_a_message_of_its_own():
    both = readings("bug1_errorcount:table")
    messages = set()
    for n_sentences in (25, 26):
        with pytest.raises(TypeError, match=f"'{n_sentences}'") as caught:
            both.faulty(12, n_sentences)
        messages.add(str(caught.value))
        assert both.repaired(12, n_sentences).shape == (12, n_sentences)
    assert len(messages) == 2
    assert len({ours.normalise(message) for message in messages}) == 1


def test_counting_fails_only_where_the_unknown_word_is():
    both = readings("bug1_errorcount:count_words")
    for rank in range(4):
        mine = range(ours.N_SENTENCES)[rank::4]
        words = ours.sentences(mine)
        assert both.repaired(np.zeros((ours.N_WORDS, len(mine))), words) == 4 * len(mine)
        room = np.zeros((ours.N_WORDS, len(mine)))
        if 2 in mine:
            with pytest.raises(IndexError, match="index 12 is out of bounds"):
                both.faulty(room, words)
        else:
            assert both.faulty(room, words) == 4 * len(mine)


def test_a_rank_set_twice_gives_two_processes_one_name_and_loses_half_of_the_sentences():
    both = readings("bug1_errorcount:identify")
    for name, ranks, n_read in (("faulty", [0, 1, 0, 1], 52), ("repaired", [0, 1, 2, 3], 102)):
        found = start(both.named(name), ranks=4, time_limit_s=30)
        read = {n for me in found for n in range(102)[me["rank"] :: me["size"]]}
        assert [me["rank"] for me in found] == ranks
        assert [me["device"] for me in found] == [0, 1, 0, 1]
        assert len(read) == n_read


# ---- logs of real ranks ----


def counted(log: logs.Log) -> dict:
    return ours.count(log.output, ours.normalise)


def test_without_a_fault_every_word_is_counted():
    assert "408 words" in logs.run("none").output[0]


def test_a_fault_of_all_ranks_is_printed_by_all_and_also_after_a_delayed_abort():
    for ending in ("plain", "delayed"):
        log = logs.run("type", ending, spread_s=0.05, wait_s=2.0)
        assert list(counted(log)["complete"].values()) == [[0, 1, 2, 3]]
        assert log.had_time


@pytest.mark.parametrize("ending", ["hook", "mpi4py"])
def test_an_abort_at_once_takes_the_word_from_the_ranks_that_come_late(ending):
    log = logs.run("type", ending, spread_s=0.6)
    found = counted(log)
    (whole,) = found["complete"].values()
    assert 0 in whole
    assert 3 not in whole
    assert not log.had_time
    assert ours.verdict(log.ranks, len(whole), log.had_time) == "undetermined"


def test_a_fault_of_one_rank_is_printed_by_one_and_the_others_had_time():
    log = logs.run("index", "delayed")
    found = counted(log)
    assert list(found["complete"].values()) == [[2]]
    assert found["silent"] == [0, 1, 3]
    assert log.had_time


def test_python_s_own_ending_leaves_the_others_waiting_until_the_time_limit():
    log = logs.run("index", "plain", time_limit_s=5)
    assert log.wall_s >= 5
    assert list(counted(log)["complete"].values()) == [[2]]
    assert log.had_time


def test_names_that_the_program_gives_itself_do_not_tell_four_processes_apart():
    log = logs.run("ids")
    named = logs.by_label(log.text, logs.OWN_NAME)
    assert {name: text.count("Traceback") for name, text in named.items()} == {0: 2, 1: 2}
    by_launcher = ours.count(logs.by_label(log.text, logs.NOT_OWN_NAME), ours.normalise)
    assert list(by_launcher["complete"].values()) == [[0, 1, 2, 3]]


# ---- reading logs ----


def test_labels_put_on_and_taken_off_give_the_text_of_each_rank_back():
    output = {0: "one\n  two", 2: "[1] no label of mine", 3: "a\n\nb\nc"}
    assert logs.by_label(logs.labelled(output)) == output


def test_the_ranks_take_turns():
    assert logs.labelled({0: "a\nb\nc", 1: "d"}) == "[0] a\n[1] d\n[0] b\n[0] c"


def test_a_rank_without_a_line_is_silent():
    log = logs.Log("x", 3, "[1] hello", had_time=True)
    assert log.output == {0: "", 1: "hello", 2: ""}
    assert counted(log)["silent"] == [0, 1, 2]


def test_an_unknown_recorded_log_is_refused_with_the_names_that_there_are():
    with pytest.raises(ValueError, match="There are: device, duplicate"):
        logs.recorded("lunch")


@pytest.mark.parametrize("name", ["device", "duplicate"])
def test_the_counter_agrees_with_allhands_triage_on_the_recorded_logs(name):
    (ranks,) = counted(logs.recorded(name))["complete"].values()
    answer = triage.triage([logs.RECORDED / f"{name}.log"])
    assert list(answer.root_ranks) == ranks
    assert answer.duplicate_count == len(ranks)
    assert answer.world_size == 4


def test_the_counter_of_the_bench_counts_a_log():
    log = logs.RECORDED / "device.log"
    command = [sys.executable, str(BENCH / "count_errors.py"), str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "3 of 4 ranks [1, 2, 3]: ValueError" in done.stdout
    assert "silent: [0]" in done.stdout
    done = subprocess.run([*command[:-1], "nothing.log"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no file nothing.log" in done.stderr


def test_the_job_of_the_bench_fails_on_all_ranks():
    with pytest.raises(launch.RanksFailed) as caught:
        launch.mpirun(BENCH / "my_job.py", ranks=3, time_limit_s=60)
    output = {rank: caught.value.finished.text(rank, "err") for rank in range(3)}
    found = ours.count(output, ours.normalise)
    assert list(found["complete"].values()) == [[0, 1, 2]]


def test_a_row_of_the_table_has_the_most_frequent_error():
    text = "\n".join(f"[{r}] {line}" for r in (0, 1) for line in checks.WHOLE.splitlines())
    text += "\n[2] " + checks.HEADER
    table = logs.tabulate([logs.Log("x", 4, text, False)], ours.count, ours.normalise, ours.verdict)
    assert table.splitlines()[-1].split() == ["x", "2", "1", "1", "undetermined"]
