"""Bug 1: each fault shows and is gone when repaired; logs of real ranks; checks refuse mistakes."""

import re
import subprocess
import sys

import numpy as np
import pytest

from allhands import launch, triage
from allhands.grade.checks import bug1_errorcount as checks
from allhands.grade.desk import Desk
from allhands.labs import COURSE
from allhands.train.faults import bug1_errorcount as ours
from allhands.train.faults import bug1_errorcount_log as logs
from allhands.train.faults.readings import readings
from allhands.train.rungs import start

BENCH = COURSE.labs_file.parent / "bug1_errorcount"


@pytest.fixture
def desk() -> Desk:
    return Desk("bug1_errorcount")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


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


# ---- checks: likely mistakes, and the sentence meant for each ----


@pytest.fixture(scope="module")
def three_logs() -> dict[str, logs.Log]:
    """The logs of the notebook, without starting ranks."""
    error = checks.WHOLE
    everybody = {r: error if r < 2 else error.replace("26", "25") for r in range(4)}
    alone = {0: "", 1: "", 2: error.replace("TypeError", "IndexError"), 3: ""}
    return {
        "type": logs.Log("type", 4, logs.labelled(everybody), True),
        "index": logs.Log("index", 4, logs.labelled(alone), True),
        "device": logs.recorded("device"),
    }


BY_HAND_MISTAKES = {
    "all say it": ({"device": 4}, "not every rank of this log"),
    "texts, not faults": ({"type": 2}, "messages that differ in numbers are one"),
    "lines": ({"index": 0}, "for how many labels"),
    "two wrong": ({"type": 2, "index": 4}, "at least two of the three"),
}


@pytest.mark.parametrize("mistake", BY_HAND_MISTAKES)
def test_by_hand_refuses(desk, three_logs, mistake):
    change, sentence = BY_HAND_MISTAKES[mistake]
    right = {"type": 4, "index": 1, "device": 3}
    refused(desk.check("by_hand", right | change, three_logs), sentence)
    assert desk.check("by_hand", right, three_logs).full


def test_by_hand_gives_a_point_for_two_of_three(desk, three_logs):
    answer = {"type": 4, "index": 1, "device": 4}
    assert desk.check("by_hand", answer, three_logs).score == 1
    assert desk.check("by_hand", answer | {"type": 1}, three_logs).score == 0
    refused(desk.check("by_hand", 4, three_logs), "a dict with the keys")


NORMALISE_MISTAKES = {
    "nothing": (lambda m: m, "use it"),
    "only digits in a row of words": (lambda m: re.sub(r" \d+", " <n>", m), "stay different"),
    "no addresses": (lambda m: re.sub(r"(?<!\w)-?\d+(\.\d+)?(?!\w)", "<n>", m), "addresses first"),
    "digits of names": (lambda m: re.sub(r"0x\w+|-?[\d.]+(e-\d+)?", "#", m), "inside a name stay"),
    "no sign": (lambda m: re.sub(r"0x\w+|\b\d+(\.\d+)?(e-\d+)?\b", "#", m), "the sign belongs"),
    "everything": (lambda m: "error", "keep the words"),
    "the class only": (lambda m: m.partition(":")[0], "keep the words"),
    "no text": (lambda m: [m], "a text"),
}


@pytest.mark.parametrize("mistake", NORMALISE_MISTAKES)
def test_normalise_refuses(desk, mistake):
    answer, sentence = NORMALISE_MISTAKES[mistake]
    refused(desk.check("normalise", answer), sentence)


def test_normalise_takes_other_words_in_the_place_of_numbers(desk):
    other = lambda m: re.sub(r"(?<!\w)-?\d+(\.\d+)?(e-?\d+)?(?!\w)", "#", re.sub("0x\\w+", "@", m))  # noqa: E731
    assert desk.check("normalise", other).full
    assert desk.check("normalise", ours.normalise).full
    assert desk.check("normalise", lambda m: m).score == 0


def counter(pick, *, cut: bool = True):
    """A `count` that picks the line of the error by `pick(lines)`."""

    def count(output, normalise):
        found = {"complete": {}, "cut": [], "silent": []}
        for rank, text in sorted(output.items()):
            lines = text.splitlines()
            after = lines[lines.index(checks.HEADER) + 1 :] if checks.HEADER in lines else []
            errors = [line for line in after if line and line[0] != " "]
            if errors:
                found["complete"].setdefault(normalise(pick(lines, errors)), []).append(rank)
            else:
                found["cut" if cut and checks.HEADER in lines else "silent"].append(rank)
        return found

    return count


COUNT_MISTAKES = {
    "the last line": (counter(lambda lines, errors: lines[-1]), "not the last"),
    "the header": (counter(lambda lines, errors: checks.HEADER), "below the header"),
    "the last error": (counter(lambda lines, errors: errors[-1]), "not the last"),
    "cut is silent": (counter(lambda lines, errors: errors[0], cut=False), "a cut traceback"),
    "not normalised": (
        lambda output, normalise: ours.count(output, lambda m: m),
        "`normalise` the line of the error",
    ),
    "numbers of ranks": (
        lambda output, normalise: {
            **(found := ours.count(output, normalise)),
            "complete": {m: len(ranks) for m, ranks in found["complete"].items()},
        },
        "lists of ranks",
    ),
    "no dict": (lambda output, normalise: 4, "a dict with the keys"),
}


@pytest.mark.parametrize("mistake", COUNT_MISTAKES)
def test_count_refuses(desk, mistake):
    answer, sentence = COUNT_MISTAKES[mistake]
    refused(desk.check("count", answer), sentence)


def test_count_wants_the_root_of_a_chain(desk):
    def last_of_the_chain(output, normalise):
        shorter = {r: text[max(text.rfind(checks.HEADER), 0) :] for r, text in output.items()}
        return ours.count(shorter, normalise)

    refused(desk.check("count", last_of_the_chain), "the first error is the root")
    assert desk.check("count", ours.count).full


VERDICT_MISTAKES = {
    "the plain rule": (lambda n, k, t: "all ranks" if k == n else "some ranks", "silence means"),
    "time first": (
        lambda n, k, t: ("all ranks" if k == n else "some ranks") if t else "undetermined",
        "N of N is strong",
    ),
    "a majority": (
        lambda n, k, t: "all ranks" if k > n / 2 else "some ranks" if t else "undetermined",
        "the others had time and said nothing",
    ),
    "nearly all": (
        lambda n, k, t: ours.verdict(n, n if k == n - 1 and n > 4 else k, t),
        "7 of 8 is no proof",
    ),
    "other words": (lambda n, k, t: k == n, "one of the words"),
}


@pytest.mark.parametrize("mistake", VERDICT_MISTAKES)
def test_verdict_refuses(desk, mistake):
    answer, sentence = VERDICT_MISTAKES[mistake]
    refused(desk.check("verdict", answer), sentence)


def test_verdict_gives_nothing_for_one_answer_to_all(desk):
    for word in ("all ranks", "some ranks", "undetermined"):
        assert desk.check("verdict", lambda n, k, t, word=word: word).score == 0
    assert desk.check("verdict", ours.verdict).full


def one_number(world):
    """The rank among all, also for the device."""
    return {"rank": world.rank, "device": world.rank, "size": world.size}


def one_device(world):
    """Everything on device 0."""
    return {"rank": world.rank, "device": 0, "size": world.size}


def size_of_the_node(world):
    """The size is that of a node."""
    node = world.Split(world.rank // 2)
    return {"rank": world.rank, "device": node.rank, "size": node.size}


def forgets_the_node(world):
    """The rank alone, and a line that fails."""
    return {"rank": world.rank, "device": node.rank, "size": world.size}  # noqa: F821


IDENTIFY_MISTAKES = {
    "as it was given": (readings("bug1_errorcount:identify").faulty, "two processes have one name"),
    "one number for both": (one_number, "the devices 0 and 1 only"),
    "all on device 0": (one_device, "all on device 0"),
    "the size of a node": (size_of_the_node, "size counts all processes"),
    "an error": (forgets_the_node, "name 'node' is not defined"),
}


@pytest.mark.parametrize("mistake", IDENTIFY_MISTAKES)
def test_identify_refuses(desk, mistake):
    answer, sentence = IDENTIFY_MISTAKES[mistake]
    refused(desk.check("identify", answer), sentence)


def test_identify_takes_the_repair_and_gives_nothing_for_the_fault(desk):
    both = readings("bug1_errorcount:identify")
    assert desk.check("identify", both.repaired).full
    assert desk.check("identify", both.faulty).score == 0


@pytest.mark.parametrize(("id", "right"), [("decide", "c"), ("trap", "b")])
def test_each_wrong_choice_has_a_sentence_of_its_own(desk, id, right):
    wrong = sorted(set("abcd") - {right})
    assert len({desk.check(id, letter).said for letter in wrong}) == 3
    assert not any(desk.check(id, letter).full for letter in wrong)
    assert desk.check(id, right).full
