"""The checks of bug2: one function for each exercise, named by its id.

`climb` is judged with programs that are only played; the repairs run on real ranks.
"""

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from allhands import launch
from allhands.grade.check import Marker, has_body, likely, show
from allhands.grade.checks import bug2_singlegpu_ranks as programs
from allhands.train.faults import bug2_singlegpu as faults
from allhands.train.rungs import start

__all__ = ["begin", "climb", "rung", "same", "steps", "words"]

LIMIT_S = 6.0
PLAYED = ("report", "fit_line", "count_words", "train_line", "name_labels")


class Played:
    """A program that is only played: `run(ranks)` gives what is written here, and is counted."""

    def __init__(self, outcomes: Mapping[int, object]) -> None:
        self.outcomes, self.started = outcomes, []

    def run(self, ranks: int) -> list:
        self.started.append(ranks)
        outcome = self.outcomes.get(ranks, [7] * ranks)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def climb(mark: Marker, climb: Callable) -> None:
    hang = launch.TimeUp("no rank ended within 5 s", None)
    crash = launch.LaunchError("rank 1 raised ValueError")
    healthy, hangs, crashes = Played({}), Played({4: hang}), Played({1: crash, 2: hang})

    def climbed(played: Played, *rungs: Sequence[int]) -> tuple:
        try:
            found = mark.run(climb, played.run, *rungs, none_passes=True)
        except launch.LaunchError as error:
            mark.need(
                False,
                "the error of a rung, caught",
                f"`{type(error).__name__}` came through",
                "`except launch.LaunchError as error:` catches every way in which a start can fail",
            )
        mark.need(
            isinstance(found, tuple) and len(found) == 2,
            "a pair: the rung, and what was seen; (None, None) if no rung fails",
            show(found),
            likely((found is None, "`return None, None` after the loop")),
        )
        return found

    passes, found, first = climbed(healthy), climbed(hangs), climbed(crashes)
    errors = mark.require(
        passes[0] is None and found[0] == 4 and found[1] is hang and first[0] == 1,
        1,
        "the first rung whose start raises an error, and the error; (None, None) if there is none",
        f"{show(passes)} for a healthy program, {show(found)} for one that hangs on 4 ranks, "
        f"{show(first)} for one that fails on each",
        likely(
            (first[0] == 2, "return at once: the first rung that fails counts, not the last"),
            (passes[0] is not None, "if no rung fails, return (None, None) after the loop"),
            (found[0] == 4, "return the error itself, not its text: its `calls` are needed later"),
            otherwise="for ranks in rungs: try: run(ranks); except launch.LaunchError as error",
        ),
    )
    silent = Played({2: [{"loss": 1.0}, {"loss": 1.5}]})
    last, middle = Played({4: [3, 3, 3, 4]}), Played({4: [3, 3, 4, 3]})
    differ, late, between = climbed(silent), climbed(last), climbed(middle)
    mark.require(
        differ == (2, silent.outcomes[2])
        and late == (4, last.outcomes[4])
        and between == (4, middle.outcomes[4]),
        1,
        "the rung on which the ranks' results differ, and the list of results",
        f"{show(differ)} for results that differ on 2 ranks, {show(late)} where only the last of 4 "
        f"ranks differs, {show(between)} where only the third does",
        likely(
            (differ[0] is None, "no error is no proof: compare each result with results[0]"),
            (late[0] is None, "compare all results with the first, not only the second"),
            (between[0] is None, "compare all results with the first, not only the last"),
            otherwise="return ranks, results",
        ),
    )
    others = Played({})
    climbed(others, (1, 3))
    mark.require(
        healthy.started == [1, 2, 4]
        and crashes.started == [1]
        and silent.started == [1, 2]
        and others.started == [1, 3],
        1,
        "the rungs that are asked for, from the first on, each started once, and none after the "
        "first that fails",
        f"the ranks started were {show(healthy.started)} for a healthy program, "
        f"{show(crashes.started)} for one that fails alone, {show(others.started)} for the rungs "
        "(1, 3)",
        likely(
            (len(crashes.started) > 1, "a hang costs time: return as soon as a rung fails"),
            (len(healthy.started) > 3, "call run(ranks) once a rung, and keep its results"),
            (others.started != [1, 3], "take the numbers from the argument `rungs`"),
            otherwise="for ranks in rungs: ...",
        ),
        after=errors,
    )


def rung(mark: Marker, seen: Mapping) -> None:
    truth = {one.name: (one.rung, one.kind) for one in faults.SYMPTOMS if one.name in PLAYED}
    mark.need(
        isinstance(seen, Mapping)
        and set(truth) <= set(seen)
        and all(isinstance(seen[name], tuple | list) and len(seen[name]) == 2 for name in truth),
        f"a dict with the keys {', '.join(truth)}; each value is a pair such as (2, 'hang')",
        show(seen),
    )
    wrong = [name for name, (ranks, _) in truth.items() if seen[name][0] != ranks]
    mark.require(
        not wrong,
        1,
        "the first rung that fails, for each program",
        ", ".join(f"{name}: {show(seen[name][0])}" for name in wrong),
        likely(
            (
                any(isinstance(seen[name][0], str) for name in wrong),
                "a rung is a number, without quotes",
            ),
            (
                "name_labels" in wrong,
                "name_labels fails alone already: read the first line of its outcome",
            ),
            (
                "fit_line" in wrong and seen["fit_line"][0] == 2,
                "fit_line passes on 2 ranks: 51 points each; look at the line again",
            ),
            otherwise="take the numbers from the outcomes above: outcomes[name][0]",
        ),
    )
    wrong = [name for name, (_, kind) in truth.items() if seen[name][1] != kind]
    mark.require(
        not wrong,
        1,
        "how it fails: 'error', 'hang' or 'differs'",
        ", ".join(f"{name}: {show(seen[name][1])}" for name in wrong),
        likely(
            (
                bool(wrong) and truth[wrong[0]][1] == "differs",
                "no rank raised anything: the job ended well, with different results",
            ),
            (
                bool(wrong) and truth[wrong[0]][1] == "hang",
                "no rank raised anything, and the time was up (TimeUp): a hang",
            ),
            otherwise="a rank raised an exception: the sentence names rank, exception and line",
        ),
    )


def steps(mark: Marker, fit_line: Callable) -> None:
    results = _on_ranks(mark, programs.result_of, fit_line, ranks=4)
    right = _loss_of_the_union(ranks=4)
    passed = mark.require(
        all(_is_number(one) for one in results) and len(set(results)) == 1,
        1,
        "four ranks that all come to their end, with the same loss",
        show(results),
        likely(
            (
                all(_is_number(one) and np.isnan(one) for one in results),
                "the mean of an empty batch is nan (0 / 0): add up the gradients of all ranks, and "
                "divide by the number of all points in the step",
            ),
            otherwise="all ranks must make the same calls: agree on one number of steps, with "
            "comm.allgather",
        ),
    )
    mark.require(
        passed and np.isclose(results[0], right),
        1,
        "all 102 points, each once: four shares of 26, 26, 25 and 25",
        f"the loss is {show(results[0])}, and should be {right:.3g}",
        likely(
            (
                passed and results[0] < right,
                "that are more steps than the rank with the most points needs: each rank steps "
                "over its own points, and each point comes once",
            ),
            otherwise="as many steps as the rank with the most points (`max`, not `min`); a slice "
            "beyond the end is empty, and adds 0; repeat no point",
        ),
        after=passed,
    )


def _loss_of_the_union(ranks: int) -> float:
    """What `fit_line` must return: in each step the points of all ranks, here in this process."""
    x, slope = np.linspace(-1, 1, 102), 0.0
    shares = [np.arange(rank, len(x), ranks) for rank in range(ranks)]
    for step in range(-(-len(shares[0]) // 5)):
        batch = np.concatenate([share[5 * step : 5 * step + 5] for share in shares])
        slope -= np.mean((slope - 3) * x[batch] ** 2)
    return float(np.sum(((slope - 3) * x) ** 2))


def words(mark: Marker, count_words: Callable) -> None:
    found = _on_ranks(mark, programs.result_and_calls, count_words, ranks=4)
    results = [result for result, _ in found]
    mark.need(
        all(isinstance(one, Mapping) for one in results), "a dict on every rank", show(results)
    )
    mark.need(
        all(n_calls for _, n_calls in found),
        "each rank counts in its own sentences, and the numbers of all ranks are added",
        "no rank called `comm`",
        "keep SENTENCES[comm.rank :: comm.size]; to count all sentences on all ranks is N times "
        "the work",
    )
    right = Counter(" ".join(faults.SENTENCES).split())
    missing = sorted(set(right) - set(results[0]))
    agree = mark.require(
        all(set(one) == set(right) for one in results),
        1,
        f"all {len(right)} words on every rank",
        f"rank 0 has {len(results[0])}; there are no {show(missing)}",
        likely(
            (
                all(set(one) == set(results[0]) for one in results),
                "all ranks have one vocabulary, but not all words: rank 0's alone will not do; "
                "unite the sets of all ranks (comm.allgather)",
            ),
            otherwise="unite the sets of all ranks: set().union(*comm.allgather(set(mine)))",
        ),
    )
    wrong = sorted(word for word in right if results[0].get(word) != right[word])
    mark.require(
        all(dict(one) == dict(right) for one in results),
        1,
        "the right number of each word, on every rank",
        f"on rank 0 these are wrong: {show(wrong)}" if wrong else "the ranks differ",
        "the array adds number by number: each word must have the same place on all ranks. The "
        "order of a set differs from process to process: sorted(...)",
        after=agree,
    )


def same(mark: Marker, same_everywhere: Callable) -> None:
    if not has_body(same_everywhere):
        mark.run(lambda: None)  # not written yet
    answers = _on_ranks(mark, programs.same_of, same_everywhere, ranks=3)
    mark.need(
        all(answer is not None for one in answers for answer in one.values()),
        "True or False on all ranks",
        show([one["equal"] for one in answers]),
        "`return` the comparison, on every rank",
    )
    right = programs.SAME
    wrong = {
        case: [one[case] for one in answers]
        for case in right
        if any(bool(one[case]) != right[case] for one in answers)
    }
    simple = [case for case in ("equal", "not a number", "one differs") if case in wrong]
    split = [case for case, given in wrong.items() if len(set(map(bool, given))) > 1]
    passed = mark.require(
        not simple and not split,
        1,
        "True on all ranks for equal arrays (nan included), False on all ranks if one number "
        "differs",
        ", ".join(
            f"{case}: {show(given)}" for case, given in wrong.items() if case in simple + split
        ),
        likely(
            (
                bool(split),
                "the ranks give different answers: all must compare the same things; gather the "
                "checksums of all ranks on all of them (comm.allgather)",
            ),
            (
                "not a number" in wrong,
                "nan is not equal to nan: compare the bytes, not the numbers",
            ),
            (
                "one differs" in wrong,
                "only the last of three ranks differs: compare the checksums of all ranks",
            ),
            otherwise="one checksum of each rank, and all must be the same",
        ),
    )
    mark.require(
        not wrong,
        1,
        "False, too, if the numbers stand in another order or the shape differs",
        ", ".join(f"{case}: {show(given)}" for case, given in wrong.items()),
        likely(
            (
                "another order" in wrong,
                "a sum does not see the order: zlib.crc32 of the bytes does",
            ),
            otherwise="add the shape to the bytes: repr(array.shape).encode() + array.tobytes()",
        ),
        after=passed,
    )


def begin(mark: Marker, train_line: Callable) -> None:
    results = _on_ranks(mark, programs.result_of, train_line, ranks=2)
    keys = ("slope", "offset", "loss")
    mark.need(
        all(isinstance(one, Mapping) and set(keys) <= set(one) for one in results),
        f"a dict with {', '.join(keys)} on every rank",
        show(results),
    )
    agree = mark.require(
        results[0] == results[1],
        1,
        "the same slope and offset on both ranks",
        " and ".join(f"slope {one['slope']:.3f}, offset {one['offset']:.3f}" for one in results),
        "comm.bcast returns rank 0's object, on all ranks: line = comm.bcast(line)",
    )
    mark.require(
        results[0]["loss"] < 1e-3,
        1,
        "a loss near 0 after 50 steps",
        show(results[0]["loss"]),
        "broadcast before the first step: each gradient is then taken at the same point",
        after=agree,
    )


def _is_number(value: object) -> bool:
    return isinstance(value, float | int | np.number)


def _on_ranks(mark: Marker, program: Callable, *functions: Callable, ranks: int) -> list:
    """Run the answer on real ranks; a job that hangs or fails ends the check with its sentence."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            found = start(program, *functions, ranks=ranks, time_limit_s=LIMIT_S)
    except launch.TimeUp as error:
        mark.need(
            False,
            f"a program that comes to its end on {ranks} ranks",
            str(error),
            "which rank makes a call that the others do not make?",
        )
    except launch.LaunchError as error:
        mark.need(
            False,
            f"a program that runs on {ranks} ranks",
            str(error),
            likely(
                (
                    "truncated" in str(error),
                    "the arrays of the ranks have different sizes: what decides the size?",
                ),
                (
                    "NameError" in str(error),
                    "the ranks know this function alone: import inside of it; `np` is there",
                ),
                otherwise="read the exception and its line",
            ),
        )
    return mark.run(lambda: found)
