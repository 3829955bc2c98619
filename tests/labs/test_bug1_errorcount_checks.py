"""Bug 1: checks refuse likely mistakes with the sentence meant for each, and take what is right."""

import re

import pytest

from allhands.grade.checks import bug1_errorcount as checks
from allhands.grade.desk import Desk
from allhands.train.faults import bug1_errorcount as ours
from allhands.train.faults import bug1_errorcount_log as logs
from allhands.train.faults.readings import readings


@pytest.fixture
def desk() -> Desk:
    return Desk("bug1_errorcount")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


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
    lists = {"type": [0, 1, 2, 3], "index": [2], "device": [1, 2, 3]}
    refused(desk.check("by_hand", lists, three_logs), "write it as a number")


def test_by_hand_wants_the_logs_of_the_lab(desk, three_logs):
    right = {"type": 4, "index": 1, "device": 3}
    for logs_ in ({}, {"type": three_logs["type"]}, dict.fromkeys(three_logs, "text"), 3):
        refused(desk.check("by_hand", right, logs_), "run the cells above again")


NORMALISE_MISTAKES = {
    "nothing": (lambda m: m, "use it"),
    "only digits in a row of words": (lambda m: re.sub(r" \d+", " <n>", m), "stay different"),
    "no addresses": (lambda m: re.sub(r"(?<!\w)-?\d+(\.\d+)?(?!\w)", "<n>", m), "addresses first"),
    "digits of names": (lambda m: re.sub(r"0x\w+|-?[\d.]+(e-\d+)?", "#", m), "inside a name stay"),
    "no sign": (lambda m: re.sub(r"0x\w+|\b\d+(\.\d+)?(e-\d+)?\b", "#", m), "the sign belongs"),
    "everything": (lambda m: "error", "keep the words"),
    "the class only": (lambda m: m.partition(":")[0], "keep the words"),
    "no text": (lambda m: [m], "a text"),
    "no return": (lambda m: print(m), "return the message"),
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


def last_line(output, normalise):
    """Takes the last line of a rank's text for its error."""
    found = {"complete": {}, "cut": [], "silent": []}
    for rank, text in sorted(output.items()):
        last = (text.splitlines() or [""])[-1]
        if "Traceback" not in text:
            found["silent"].append(rank)
        elif last.startswith(" ") or "Traceback" in last:
            found["cut"].append(rank)
        else:
            found["complete"].setdefault(normalise(last), []).append(rank)
    return found


COUNT_MISTAKES = {
    "the last line": (counter(lambda lines, errors: lines[-1]), "not the last"),
    "the last line, with banners": (
        lambda output, normalise: last_line(output, normalise),
        "rank 1 has lines behind its error",
    ),
    "in the order of the log": (
        lambda output, normalise: {
            **(found := ours.count(output, normalise)),
            "silent": found["silent"][::-1],
        },
        "lists of ranks, sorted",
    ),
    "tuples": (
        lambda output, normalise: {
            key: tuple(value) if key != "complete" else value
            for key, value in ours.count(output, normalise).items()
        },
        "lists of ranks, sorted",
    ),
    "no return": (lambda output, normalise: print(len(output)), "a dict with the keys"),
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


def test_count_may_change_what_it_is_given(desk):
    def empties(output, normalise):
        found = ours.count(dict(output), normalise)
        output.clear()
        return found

    assert desk.check("count", empties).full


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
    "a way without return": (
        lambda n, k, t: ours.verdict(n, k, t) if t or k == n else None,
        "every way through the function",
    ),
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


def no_size(world):
    """A size that nothing can be shared out by."""
    return {"rank": world.rank, "device": world.rank % 2, "size": 0}


def forgets_the_node(world):
    """The rank alone, and a line that fails."""
    return {"rank": world.rank, "device": node.rank, "size": world.size}  # noqa: F821


IDENTIFY_MISTAKES = {
    "as it was given": (readings("bug1_errorcount:identify").faulty, "two processes have one name"),
    "one number for both": (one_number, "the devices 0 and 1 only"),
    "all on device 0": (one_device, "all on device 0"),
    "the size of a node": (size_of_the_node, "size counts all processes"),
    "size 0": (no_size, "a size of at least 1"),
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
