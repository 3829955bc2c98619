"""What a comparison makes of its records: hand-made ones, without ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands import launch
from allhands.train.compare import Check, Comparison, causes, results
from allhands.train.compare.begin import sample_facts
from allhands.train.compare.checks import by_rank
from allhands.train.compare.comparison import JUDGES, judged
from allhands.train.compare.records import Records, distance, fit_together

ONE = np.ones(1, np.float32)
START = {"/W": np.zeros((2, 3), np.float32), "/b": ONE}
GRADIENT = {"/W": np.array([[3, 0, 0], [0, 4, 0]], np.float32), "/b": 0 * ONE}
OWN = [{"/W": np.array([[3 + d, d, 0], [0, 4, 0]], np.float32), "/b": 0 * ONE} for d in (1, -1)]
LAST = {"/W": -0.1 * GRADIENT["/W"], "/b": ONE}
SAID = {"n_sentences": 4, "n_tokens": 20, "loss_per_token": 2.0, "bleu": 30.0, "exact_match": 25.0}
EPOCHS = [
    [[[2, 0], [5, 7]], [[7, 2], [0, 5]]],
    [[[4, 1], [6, 3]], [[3, 6], [4, 1]]],
]


def built(**same) -> dict:
    return {
        "same": {"n_samples": 8, "alpha": 0.1, "vocabulary": ["a", "b"], **same},
        "settings": {"alpha": 0.1},
        "initial": START,
        "shapes": {"/W": (2, 3), "/b": (1,)},
        "state": {},
        "speaks": None,
        "n_held_out": None,
        "handed_over": False,
    }


@pytest.fixture
def records(tmp_path) -> Records:
    """Two ranks that did everything right; a test then changes a record."""
    records = Records(tmp_path)
    for rank in (0, 1):
        who = f"rank{rank}"
        records.put(who, "world", 2)
        records.put(who, "built", built())
        epochs = [[np.array(batch) for batch in epoch] for epoch in EPOCHS[rank]]
        records.put(who, "epochs", epochs)
        records.put(who, "only_broadcast", True)
        records.put(who, "start", START)
        records.put(who, "gradient", GRADIENT)
        records.put(who, "used", GRADIENT)
        records.put(who, "raw", OWN[rank])
        records.put(who, "begun", START)
        records.put(who, "last", LAST)
        records.put(who, "batches", [2, 2])
        records.put(who, "evaluated", SAID)
    for name, value in {
        "built": built(),
        "start": START,
        "gradient": GRADIENT,
        "used": GRADIENT,
        "gradient_again": GRADIENT,
        "last": LAST,
        "last_again": LAST,
        "own_gradients": OWN,
        "raw": OWN,
        "mistakes": {},
        "evaluated": SAID,
        "evaluated_again": SAID,
    }.items():
        records.put("alone", name, value)
    return records


def look(records: Records, end=None) -> Comparison:
    return judged("program.py", records, 2, end, 60.0)


def scaled(values: dict, factor: float) -> dict:
    return {name: factor * one for name, one in values.items()}


def test_equal_records_are_equal(records):
    found = look(records)
    assert found.equal
    assert found.first_difference is None
    assert [check.name for check in found.checks] == list(JUDGES)
    assert all(check.equal and not check.cause for check in found.checks)
    assert str(found).endswith("2 ranks and the run alone are equal.")


CHANGES = {  # record -> what rank 1, or both ranks, say instead -> check, cause
    "a vocabulary of its own": ("rank1", "built", built(vocabulary=["a"]), "rank-local-vocabulary"),
    "a seed of its own": ("rank1", "start", {"/W": np.ones((2, 3)), "/b": ONE}, "no-broadcast"),
    "a snapshot of its own": ("rank1", "begun", scaled(START, 2), "changed-after-broadcast"),
    "a hook of its own": ("both", "used", scaled(GRADIENT, 2), "hooks-differ"),
    "a sample of its own": (
        "rank1",
        "raw",
        {"/W": GRADIENT["/W"][::-1], "/b": 0 * ONE},
        None,  # the average is right all the same
    ),
    "a speaker of its own": ("both", "built", built() | {"speaks": True}, "wrong-speaker"),
    "a sentence that nobody evaluates": (
        "both",
        "built",
        built() | {"n_held_out": 5},
        "held-out-short",
    ),
    "other tokens": ("both", "evaluated", SAID | {"n_tokens": 21}, "other-held-out"),
    "another evaluation each time": (
        "alone",
        "evaluated_again",
        SAID | {"loss_per_token": 2.1},
        "random-evaluation",
    ),
    "a setting of its own": ("rank1", "built", built(clip=3), "rank-local-setting"),
    "a gradient of its own": ("rank1", "gradient", scaled(GRADIENT, -1), "ranks-disagree"),
    "a summed gradient": ("both", "gradient", scaled(GRADIENT, 2), "summed"),
    "a gradient divided twice": ("both", "gradient", scaled(GRADIENT, 0.5), "divided-twice"),
    "a step twice as long": ("both", "last", LAST | {"/W": 2 * LAST["/W"]}, "rate-in-update"),
    "a step of its own": ("rank1", "last", LAST | {"/W": 2 * LAST["/W"]}, "optimizer-state"),
    "another step": ("both", "last", LAST | {"/W": LAST["/W"][::-1]}, "other-steps"),
    "no sentence": ("rank1", "evaluated", {}, None),
    "its own sentences": ("rank1", "evaluated", SAID | {"n_sentences": 2}, "local-counts"),
    "too many sentences": ("both", "evaluated", SAID | {"n_sentences": 5}, "padded-counts"),
    "twice the sentences": (
        "both",
        "evaluated",
        SAID | {"n_sentences": 8, "n_tokens": 40},
        "held-out-on-all",
    ),
    "another bleu": ("both", "evaluated", SAID | {"bleu": 29.0}, "mean-of-bleus"),
    "another loss": ("both", "evaluated", SAID | {"loss_per_token": 2.1}, "mean-of-means"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_change_is_named(records, change):
    who, name, value, cause = CHANGES[change]
    for rank in ("rank0", "rank1") if who == "both" else (who,):
        records.put(rank, name, value)
    found = look(records)
    assert (found.difference.id if found.difference else None) == cause, found


def test_a_gradient_that_is_not_that_of_the_same_samples_tells_of_other_samples(records):
    other = {"/W": GRADIENT["/W"][::-1], "/b": 0 * ONE}
    records.put("rank1", "raw", other)
    for rank in (0, 1):
        records.put(f"rank{rank}", "gradient", GRADIENT | {"/W": GRADIENT["/W"] + other["/W"]})
    assert look(records).difference.id == "other-samples"
    records.put("rank0", "raw", other)  # even on the rank that made the run alone: no such thing
    assert look(records).difference.id == "other-gradient"


def test_ranks_that_each_use_their_own_gradient_do_not_exchange(records):
    for rank in (0, 1):
        records.put(f"rank{rank}", "gradient", OWN[rank])
    assert look(records).difference.id == "not-exchanged"


def test_parameters_without_values_explain_ranks_that_start_apart(records):
    for rank in (0, 1):
        initial = START | {"/b": None}
        records.put(f"rank{rank}", "built", built() | {"initial": initial})
        records.put(f"rank{rank}", "start", START | {"/b": (1 + rank) * ONE})
    assert look(records).difference.id == "not-yet-initialised"


def test_a_difference_that_nobody_foresaw_has_the_last_cause_of_its_check(records):
    for rank in (0, 1):
        records.put(f"rank{rank}", "gradient", GRADIENT | {"/W": GRADIENT["/W"][::-1]})
    assert look(records).difference.id == "other-gradient"


def test_a_loss_that_changes_by_itself_is_random(records):
    records.put("alone", "gradient_again", OWN[0])
    assert look(records).difference.id == "random-loss"


@given(st.permutations(range(8)), st.permutations(range(8)))
def test_any_deal_of_shuffled_samples_has_each_once(first, second):
    epochs = [[[np.array(order[r::2])] for order in (first, second)] for r in (0, 1)]
    facts = sample_facts(epochs, 8)
    assert (facts["n_missing"], facts["n_repeated"], facts["n_unknown"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([[0, 3], [1, 2, 3]], {"n_missing": 1, "n_repeated": 1}),
        ([[4, 0, 2], [3, 1, 9]], {"n_unknown": 1, "n_missing": 0}),
        ([[4, 2, 0, 1, 3], [0, 1, 2, 4, 3]], {"all_on_all": True, "n_repeated": 5}),
        ([[4, 2], [4, 2]], {"same_on_all": True, "n_missing": 3}),
    ],
)
def test_samples_by_hand(numbers, expected):
    facts = sample_facts([[[np.array(row)]] * 2 for row in numbers], 5)
    assert {name: facts[name] for name in expected} == expected


@given(st.integers(0, 2**32 - 1))
def test_another_order_of_summation_is_equal_and_a_lost_sample_is_not(seed):
    """The mean of 200 vectors in float32, term by term, in two orders: numpy as the oracle."""
    random = np.random.default_rng(seed)
    terms = (1 + random.standard_normal((200, 8))).astype(np.float32)

    def mean(rows: np.ndarray) -> dict:
        return {"/W": np.cumsum(rows, axis=0, dtype=np.float32)[-1] / np.float32(len(rows))}

    right = mean(terms)
    bound = results.GRADIENT_FLOOR
    assert distance(mean(terms[random.permutation(200)]), right) < bound
    assert distance(mean(terms[1:]), right) > 10 * bound


def test_distance_by_hand():
    one, other = {"a": np.array([3.0]), "b": np.array([5.0])}, {"a": np.array([3.0]), "b": None}
    assert distance({"a": np.array([0.0, 5.0])}, {"a": np.array([4.0, 5.0])}) == pytest.approx(
        4 / 41**0.5
    )
    assert distance(one, other) == float("inf")
    assert distance({"a": np.zeros(2)}, {"a": np.zeros(2)}) == 0


def test_a_shape_that_is_not_known_yet_fits():
    assert fit_together([{"W": (2, 3)}, {"W": None}])
    assert not fit_together([{"W": (2, 3)}, {"W": (2, 4)}])
    assert not fit_together([{"W": (2, 3)}, {"V": (2, 3)}])


def test_ranks_that_say_the_same_are_told_together():
    assert by_rank(["5", "4", "5"], "14") == "ranks 0, 2 5, rank 1 4, alone 14"
    assert by_rank({2: "5"}) == "rank 2 5"


@pytest.mark.parametrize("check", JUDGES)
def test_every_check_has_a_cause_for_what_nobody_foresaw(check):
    last = [cause for cause in causes.CAUSES if cause.check == check][-1]
    assert last.when({}) is True


def test_causes_are_named_once_and_written_as_sentences():
    ids = [cause.id for cause in causes.CAUSES]
    assert len(set(ids)) == len(ids)
    for cause in causes.CAUSES:
        assert cause.check in {*JUDGES, causes.ANY}
        assert not cause.cause.endswith(".")  # the report ends the sentence
        assert cause.remedy.endswith(".")


def finished() -> launch.Finished:
    return launch.Finished(2, (None, None), ((), ()), 60.0)


def stand(records: Records, rank: int, now: str | None, left: str, waits: bool) -> None:
    (records.folder / f"rank{rank}.where").write_text(
        f'{{"now": {f"{chr(34)}{now}{chr(34)}" if now else "null"}, "left": "{left}", '
        f'"place": "line 9 of program.py: f(x)", "waits": {str(waits).lower()}, "still_s": 9.0}}'
    )


def forget(records: Records, *names: str) -> None:
    for name in names:
        for file in records.folder.glob(f"*.{name}"):
            file.unlink()


def test_a_rank_that_still_works_when_the_time_is_up_is_slow_and_does_not_hang(records):
    forget(records, "evaluated")
    stand(records, 0, "evaluate", "step 3", waits=False)
    stand(records, 1, None, "evaluate", waits=True)
    found = look(records, launch.TimeUp("no rank ended", finished()))
    assert (found.first_difference, found.difference.id) == ("counts", "too-slow")
    assert found.difference.seen == (
        "rank 1 left `evaluate`; rank 0 still is in it after 60 s "
        "(rank 0 at line 9 of program.py: f(x))"
    )


def test_a_loop_that_is_longer_on_one_rank_hangs_in_its_stage(records):
    forget(records, "gradient", "last", "evaluated")
    stand(records, 0, None, "step 1", waits=True)
    stand(records, 1, "step 1", "first update", waits=True)
    (records.folder / "hang").touch()
    found = look(records, launch.RanksFailed("rank 1 ended with exit code 70", finished()))
    assert (found.first_difference, found.difference.id) == ("gradient", "rank-condition-hang")
    assert found.checks[-1].seen == "not compared, since the ranks did not come so far"


def test_an_error_of_mpi_is_a_difference_and_one_of_the_program_is_wrong_use(records):
    forget(records, "start", "gradient", "last", "evaluated")
    raised = {"what": "Exception: truncated", "place": "line 3 of p.py", "stage": "first update"}
    records.put("rank1", "raised", raised | {"by_mpi": True})
    end = launch.RanksFailed("rank 1 raised", finished())
    assert look(records, end).difference.id == "different-calls"
    records.put("rank0", "raised", raised | {"what": "KeyError: 'x'", "by_mpi": False})
    with pytest.raises(ValueError, match=r"rank 0 of 2 raised KeyError: 'x' \(line 3 of p.py\)"):
        look(records, end)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (launch.TimeUp("no rank ended", finished()), "all ranks are in `build` after 60 s"),
        (launch.RanksFailed("rank 1 was killed by signal 9", finished()), "killed by signal 9"),
    ],
)
def test_a_job_that_ended_before_the_program_was_built_is_no_difference(records, end, said):
    for file in (records.folder).glob("*"):
        file.unlink()
    for rank in (0, 1):
        stand(records, rank, "build", "", waits=False)
    with pytest.raises(ValueError, match="Nothing was compared") as caught:
        look(records, end)
    assert said in str(caught.value)


def test_json_has_what_the_command_promises(records):
    records.put("rank1", "built", built(vocabulary=["a", "c"]))
    found = look(records).as_dict()
    assert (found["equal"], found["first_difference"]) == (False, "same")
    assert [check["name"] for check in found["checks"]] == list(JUDGES)
    assert found["checks"][1]["seen"] == (
        "vocabulary: rank 0 ['a', 'b'], rank 1 ['a', 'c'], alone ['a', 'b']"
    )


def test_a_check_that_was_not_made_is_no_difference():
    checks = (Check("world", True, ""), Check("counts", None, "not compared, since ..."))
    assert Comparison("p.py", 2, checks).equal
