"""Lab bug2: checks refuse likely mistakes with the sentence meant for them, and take repairs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from allhands import launch
from allhands.grade.checks.bug2_singlegpu import PLAYED
from allhands.grade.desk import Desk
from allhands.train import last_seen, rungs
from allhands.train.faults import bug2_singlegpu as faults
from allhands.train.faults.readings import readings

RUNGS = (1, 2, 4)


@pytest.fixture
def desk() -> Desk:
    return Desk("bug2_singlegpu")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


# --- climb ---------------------------------------------------------------------------------------


def reads_on(run, rungs=RUNGS):
    found = (None, None)
    for ranks in rungs:
        try:
            results = run(ranks)
        except launch.LaunchError as error:
            found = (ranks, error)
            continue
        if any(result != results[0] for result in results):
            return ranks, results
    return found


def errors_only(run, rungs=RUNGS):
    for ranks in rungs:
        try:
            run(ranks)
        except launch.LaunchError as error:
            return ranks, error
    return None, None


def first_two_only(run, rungs=RUNGS):
    for ranks in rungs:
        try:
            results = run(ranks)
        except launch.LaunchError as error:
            return ranks, error
        if len(results) > 1 and results[0] != results[1]:
            return ranks, results
    return None, None


def last_only(run, rungs=RUNGS):
    for ranks in rungs:
        try:
            results = run(ranks)
        except launch.LaunchError as error:
            return ranks, error
        if results[-1] != results[0]:
            return ranks, results
    return None, None


def rungs_of_its_own(run, rungs=RUNGS):
    return rungs_climb(run, RUNGS)


def without_an_end(run, rungs=RUNGS):
    ranks, what = rungs_climb(run, rungs)
    if ranks is not None:
        return ranks, what


def as_text(run, rungs=RUNGS):
    ranks, what = rungs_climb(run, rungs)
    return ranks, str(what)


def catches_nothing(run, rungs=RUNGS):
    for ranks in rungs:
        run(ranks)
    return None, None


rungs_climb = rungs.climb
CLIMBS = {
    "last rung": (reads_on, "the first rung that fails counts, not the last"),
    "errors only": (errors_only, "no error is no proof"),
    "first two": (first_two_only, "compare all results with the first"),
    "last": (last_only, "not only the last"),
    "own rungs": (rungs_of_its_own, "take the numbers from the argument `rungs`"),
    "no end": (without_an_end, "`return None, None` after the loop"),
    "text": (as_text, "return the error itself, not its text"),
    "no except": (catches_nothing, "`except launch.LaunchError as error:`"),
    "no pair": (lambda run: 2, "a pair: the rung, and what was seen"),
}


@pytest.mark.parametrize("mistake", CLIMBS)
def test_climb_refuses(desk, mistake):
    answer, sentence = CLIMBS[mistake]
    refused(desk.check("climb", answer), sentence)


def test_climb_takes_the_package_s_own(desk):
    assert desk.check("climb", rungs.climb).full


# --- rung ----------------------------------------------------------------------------------------

SEEN = {one.name: (one.rung, one.kind) for one in faults.SYMPTOMS if one.name in PLAYED}
RUNG_MISTAKES = {
    "not alone": ({"name_labels": (2, "error")}, "name_labels fails alone already"),
    "on two": ({"fit_line": (2, "hang")}, "fit_line passes on 2 ranks"),
    "an error": ({"train_line": (2, "error")}, "the job ended well, with different results"),
    "no hang": ({"report": (2, "error")}, "the time was up (TimeUp): a hang"),
    "a hang": ({"name_labels": (1, "hang")}, "the sentence names rank, exception and line"),
    "a number": ({"report": 2}, "each value is a pair"),
    "quotes": ({"report": ("2", "hang")}, "a rung is a number, without quotes"),
}


@pytest.mark.parametrize("mistake", RUNG_MISTAKES)
def test_rung_refuses(desk, mistake):
    change, sentence = RUNG_MISTAKES[mistake]
    refused(desk.check("rung", {**SEEN, **change}), sentence)


def test_rung_takes_what_the_programs_show(desk):
    assert desk.check("rung", SEEN).full
    assert desk.check("rung", SEEN | {"a program of mine": "hang"}).full


# --- the repairs, on real ranks ------------------------------------------------------------------


def fewest_steps(comm):
    x = np.linspace(-1, 1, 102)
    mine = np.arange(comm.rank, len(x), comm.size)
    slope = 0.0
    for step in range(min(comm.allgather(-(-len(mine) // 5)))):
        batch = mine[5 * step : 5 * step + 5]
        gradient = np.sum((slope - 3) * x[batch] ** 2)
        slope -= comm.allreduce(gradient) / comm.allreduce(len(batch))
    return comm.allreduce(np.sum(((slope - 3) * x[mine]) ** 2))


def mean_of_means(comm):
    x = np.linspace(-1, 1, 102)
    mine = np.arange(comm.rank, len(x), comm.size)
    slope = 0.0
    for step in range(max(comm.allgather(-(-len(mine) // 5)))):
        batch = mine[5 * step : 5 * step + 5]
        slope -= comm.allreduce(np.mean((slope - 3) * x[batch] ** 2)) / comm.size
    return comm.allreduce(np.sum(((slope - 3) * x[mine]) ** 2))


def each_for_itself(comm):
    x, slope = np.linspace(-1, 1, 102), 0.0
    for step in range(21):
        slope -= np.mean((slope - 3) * x[5 * step : 5 * step + 5] ** 2)
    return float(np.sum(((slope - 3) * x) ** 2))


def own_loss(comm):
    return float(comm.rank)


def all_words_everywhere(comm):
    from allhands.train.faults.bug2_singlegpu import SENTENCES

    words = " ".join(SENTENCES).split()
    return {word: words.count(word) for word in words}


def vocabulary_of_rank_0(comm):
    from allhands.train.faults.bug2_singlegpu import SENTENCES

    mine = " ".join(SENTENCES[comm.rank :: comm.size]).split()
    vocabulary = comm.bcast(sorted(set(mine)))
    total = comm.allreduce(np.array([mine.count(word) for word in vocabulary]))
    return dict(zip(vocabulary, total.tolist(), strict=True))


def places_by_chance(comm):
    from allhands.train.faults.bug2_singlegpu import SENTENCES

    mine = " ".join(SENTENCES[comm.rank :: comm.size]).split()
    everything = sorted(set().union(*comm.allgather(set(mine))))
    vocabulary = everything[comm.rank :] + everything[: comm.rank]  # as sets have no fixed order
    total = comm.allreduce(np.array([mine.count(word) for word in vocabulary]))
    return dict(zip(vocabulary, total.tolist(), strict=True))


def adds_up(comm, array):
    return len(set(comm.allgather(float(np.nan_to_num(array).sum())))) == 1


def without_the_shape(comm, array):
    import zlib

    return len(set(comm.allgather(zlib.crc32(array.tobytes())))) == 1


def first_two_ranks(comm, array):
    import zlib

    checksums = comm.allgather(zlib.crc32(repr(array.shape).encode() + array.tobytes()))
    return checksums[0] == checksums[1]


def says_nothing(comm, array):
    comm.allgather(array.sum())


def asks_rank_0(comm, array):
    return comm.bcast(array.tobytes()) == array.tobytes()


def compares_numbers(comm, array):
    return all(np.array_equal(array, other) for other in comm.allgather(array))


def throws_it_away(comm):
    line = np.random.default_rng(comm.rank).normal(size=2)
    comm.bcast(line)
    return {"slope": line[0], "offset": line[1], "loss": 0.0}


def broadcasts_at_the_end(comm):
    from allhands.train.faults.readings import readings

    return comm.bcast(readings("bug2_singlegpu:train_line").faulty(comm))


REPAIRS = {
    "fewest steps": ("steps", fewest_steps, "`max`, not `min`", 1),
    "mean of means": ("steps", mean_of_means, "the mean of an empty batch is nan", 0),
    "for itself": ("steps", each_for_itself, "more steps than the rank with the most points", 1),
    "own loss": ("steps", own_loss, "all ranks must make the same calls", 0),
    "all words": ("words", all_words_everywhere, "keep SENTENCES[comm.rank :: comm.size]", 0),
    "rank 0's words": ("words", vocabulary_of_rank_0, "rank 0's alone will not do", 0),
    "places": ("words", places_by_chance, "each word must have the same place", 1),
    "a sum": ("same", adds_up, "a sum does not see the order", 1),
    "no shape": ("same", without_the_shape, "add the shape to the bytes", 1),
    "two ranks": ("same", first_two_ranks, "compare the checksums of all ranks", 0),
    "no return": ("same", says_nothing, "`return` the comparison", 0),
    "rank 0": ("same", asks_rank_0, "the ranks give different answers", 0),
    "numbers": ("same", compares_numbers, "nan is not equal to nan", 0),
    "thrown away": ("begin", throws_it_away, "comm.bcast returns rank 0's object", 0),
    "at the end": ("begin", broadcasts_at_the_end, "broadcast before the first step", 1),
}


@pytest.mark.parametrize("mistake", REPAIRS)
def test_the_checks_on_ranks_refuse(desk, mistake):
    exercise, answer, sentence, score = REPAIRS[mistake]
    verdict = desk.check(exercise, answer)
    refused(verdict, sentence)
    assert verdict.score == score


@pytest.mark.parametrize(
    ("exercise", "name", "sentence"),
    [
        ("steps", "fit_line", "which rank makes a call that the others do not make?"),
        ("words", "count_words", "the arrays of the ranks have different sizes"),
        ("begin", "train_line", "comm.bcast returns rank 0's object"),
    ],
)
def test_the_given_faults_are_refused_and_their_repairs_get_full_marks(
    desk, monkeypatch, exercise, name, sentence
):
    monkeypatch.setattr(
        "allhands.grade.checks.bug2_singlegpu.LIMIT_S", 4.0 if name == "fit_line" else 30.0
    )
    both = readings(f"bug2_singlegpu:{name}")
    verdict = desk.check(exercise, both.faulty)
    refused(verdict, sentence)
    assert verdict.score == 0
    monkeypatch.setattr("allhands.grade.checks.bug2_singlegpu.LIMIT_S", 30.0)
    assert desk.check(exercise, both.repaired).full


def test_same_takes_the_package_s_own(desk):
    assert desk.check("same", rungs.same_everywhere).full


def test_the_bench_s_program_ends_alone(tmp_path):
    bench = Path(__file__).parents[2] / "handson" / "bug2_singlegpu" / "hang.py"
    done = subprocess.run([sys.executable, bench], cwd=tmp_path, capture_output=True, text=True)
    assert "loss 1.00" in done.stdout
    names = [call.name for call in last_seen.read(tmp_path / "runs" / "hang")[0]]
    assert names == ["barrier", "barrier", "barrier", "allreduce"]
