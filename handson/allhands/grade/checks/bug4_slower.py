"""The checks of the lab bug4: one function for each exercise, named by its id.

The participant's functions are called rank by rank, in this process, with communicators that note
what is asked of them: a fault shows in what a rank takes, reads, counts and prints, and in no time.
"""

import numbers as kinds
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import numpy as np

from allhands.grade import guard
from allhands.grade.check import Marker, likely, show
from allhands.grade.checks.bug4_slower_ranks import Rank, on_ranks
from allhands.trace import critical_path as right
from allhands.trace.events import Event

CAUSES = {
    "data": {"samples of an epoch and rank"},
    "batch": {"samples of a step and rank"},
    "loader": {"samples read by a rank"},
    "evaluation": {"images in an evaluation", "lines printed"},
    "threads": {"threads"},
}
RIGHT = {0, 1, 3, 6}  # of 10 images; a mean of the shares of 3 ranks is another number


def _number(mark: Marker, function: Callable, *args) -> float:
    """What the participant's function returns, if it is a number; else the check ends here."""
    got = mark.run(function, *args, none_passes=True)
    mark.need(
        isinstance(got, kinds.Real),
        f"a number from `{getattr(function, '__name__', 'your function')}`",
        show(got),
        "does it end with `return ...`?" if got is None else "return one number",
    )
    return float(got)


def fair(mark: Marker, step_s: Callable, speed_up: Callable) -> None:
    times_s = [9.0, 8.0, 7.0, 2.0, 2.0, 3.0, 4.0, 6.0]
    got = _number(mark, step_s, times_s)
    mark.require(
        got == 3.0,
        1,
        "the median of the steps, without the first three",
        f"{got:.4g} s for the steps {show(times_s)}",
        likely(
            (abs(got - np.mean(times_s)) < 1e-9, "that is the mean of all, the first included"),
            (abs(got - np.mean(times_s[3:])) < 1e-9, "one step with a pause spoils a mean: median"),
            (got == np.median(times_s), "a median of all: the first three steps do not count"),
            (
                got in (np.median(times_s[1:]), np.median(times_s[2:])),
                "leave out the first three steps, so `[3:]`",
            ),
            otherwise="np.median(times_s[3:])",
        ),
    )
    alone = SimpleNamespace(step_s=1.0, samples_per_step=64)
    together = SimpleNamespace(step_s=1.25, samples_per_step=128)
    got = _number(mark, speed_up, alone, together)
    mark.require(
        abs(got - 1.6) < 1e-9,
        1,
        "how many times as many samples a second",
        f"{got:.4g} for 64 samples in 1 s alone and 128 samples in 1.25 s together",
        likely(
            (abs(got - 0.8) < 1e-9, "these are steps a second: how many samples has a step?"),
            (abs(got - 0.625) < 1e-9, "that is the other way round: together / alone"),
            (abs(got - 0.4) < 1e-9, "samples a second are samples_per_step / step_s"),
            otherwise="64 samples/s alone, 102.4 samples/s together: 1.6",
        ),
    )


def _events(*rows: tuple[int, int, str, float]) -> list[Event]:
    """(step, rank, what, seconds), one after the other on each rank."""
    now_s: dict[int, float] = {}
    found = []
    for step, rank, what, duration_s in rows:
        start_s = now_s.get(rank, 0.0)
        now_s[rank] = start_s + duration_s
        found.append(Event(start_s, now_s[rank], rank, what, step=step))
    return found


TWO_RANKS = _events(
    (1, 0, "batch", 1), (1, 0, "forward", 2), (1, 0, "communicate", 9),
    (1, 1, "batch", 1), (1, 1, "forward", 4), (1, 1, "communicate", 1),
    (2, 0, "forward", 6), (2, 0, "communicate", 1), (2, 0, "update", 1),
    (2, 1, "forward", 3), (2, 1, "communicate", 8), (2, 1, "update", 1),
)  # fmt: skip


def critical_path(mark: Marker, critical_path_s: Callable) -> None:
    got = _number(mark, critical_path_s, TWO_RANKS, 0.0)
    mark.require(
        got == 12.0,
        2,
        "12 s for two steps: 5 s on rank 1, then 7 s on rank 0",
        f"{got:.4g} s",
        likely(
            (got == 19, "the ranks work at the same time: of each step the larger one, no sum"),
            (got == 10, "the slowest changes from step to step: first the largest, then the sum"),
            (got in (24, 38), "waiting is no work: leave out the events `communicate`"),
            otherwise="for each step add up the events of each rank, and take the largest sum",
        ),
    )
    got = _number(mark, critical_path_s, TWO_RANKS, 0.5)
    other = _events((1, 0, "forward", 1), (2, 0, "forward", 2), (4, 0, "evaluate", 3))
    for_one = _number(mark, critical_path_s, other, 0.0)
    mark.require(
        got == 13.0 and for_one == right.critical_path_s(other),
        1,
        "`transfer_s` once a step, and all other kinds of work, on any number of ranks",
        f"{got:.4g} s with transfer_s = 0.5, where 13 is right; {for_one:.4g} s for one rank, "
        f"where 6 is right",
        likely(
            (got == 12.5, "once for each step, not once for the run"),
            (got == 12.0, "add transfer_s for each step"),
            otherwise="the kinds of work are not only batch, forward, backward and update",
        ),
    )


def evidence(mark: Marker, evidence: Mapping) -> None:
    mark.need(
        isinstance(evidence, Mapping) and set(CAUSES) <= set(evidence),
        f"a dict with the keys {', '.join(CAUSES)}",
        show(evidence),
    )
    wrong = [cause for cause, rows in CAUSES.items() if str(evidence[cause]).strip() not in rows]
    said = str(evidence[wrong[0]]).strip() if wrong else ""
    mark.require(
        not wrong,
        2,
        "for each cause the row that shows it and nothing else",
        f"for {', '.join(wrong)} another row" if wrong else "",
        likely(
            (
                said == "steps of an epoch",
                "two causes change the steps: which row tells them apart?",
            ),
            (said.startswith("ms:"), "take a number that can be counted: no time"),
            (
                said == "switches of a step",
                "other programs of the machine take cores away too: which row is the cause itself?",
            ),
            otherwise="copy the row's first words as they are printed",
        ),
    )


def data(mark: Marker, numbers: Callable) -> None:
    def shares(n_samples: int, size: int, epoch: int) -> list[list[int]]:
        def program(comm: Rank) -> list[int]:
            got = mark.run(numbers, n_samples, comm, epoch, none_passes=True)
            mark.need(
                got is not None, "the numbers of the samples", "`None`", "end with `return ...`"
            )
            return [int(i) for i in got]

        return on_ranks(program, size)[0]

    wrong, advice = "", ""
    for n_samples, size in ((10, 2), (11, 2), (11, 4), (7, 1)):
        found = shares(n_samples, size, 0)
        together = sorted(i for share in found for i in share)
        sizes = [len(share) for share in found]
        if together != list(range(n_samples)) or max(sizes) - min(sizes) > 1:
            wrong = f"{n_samples} samples on {size} ranks: {show(found)}"
            advice = likely(
                (size > 1 and sizes == [n_samples] * size, "each rank takes every size-th number"),
                (len(together) < n_samples, "some numbers are on no rank: what of the remainder?"),
                (len(set(together)) < len(together), "one number on two ranks: the same order?"),
                otherwise="order[comm.rank :: comm.size]",
            )
            break
    epochs = shares(40, 2, 0) != shares(40, 2, 1)
    mark.require(
        not wrong and epochs,
        1,
        "each sample on one rank, as many on each as can be, and in a new order each epoch",
        wrong or "the same order in epochs 0 and 1",
        advice or "the epoch is the seed: np.random.default_rng(epoch)",
    )


def shared(mark: Marker, load: Callable, evaluate: Callable) -> None:
    size, n_images = 3, 10
    read_by_rank: list[list[int]] = [[] for _ in range(size)]

    def loads(comm: Rank) -> object:
        read_by_rank[comm.rank] = []

        def read(numbers):
            read_by_rank[comm.rank].extend(int(i) for i in numbers)
            return _samples(numbers)

        return mark.run(load, read, _numbers_of(comm.rank), comm, none_passes=True)

    batches, comms = on_ranks(loads, size)
    mark.need(
        not any(batch is None for batch in batches),
        "the samples that `read` gives",
        "`None`",
        "return them",
    )
    calls = sorted({name for comm in comms for name, _ in comm.calls})
    own = [list(_numbers_of(rank)) for rank in range(size)]
    mark.require(
        read_by_rank == own and not calls and all(map(_is_batch_of, batches, range(size))),
        1,
        "each rank reads its own numbers, returns these samples, and sends nothing",
        f"ranks 0 to 2 read {show(read_by_rank)}; calls: {', '.join(calls) or 'none'}; rank 2 "
        f"returns {show(batches[2])}",
        likely(
            (not read_by_rank[1], "rank 1 reads nothing itself"),
            (calls, "no collective is needed here"),
            (read_by_rank == own, "return what `read` gives"),
            otherwise="read(numbers)",
        ),
    )
    counted: list[list[int]] = [[] for _ in range(size)]
    lines = [0] * size

    def evaluates(comm: Rank) -> float:
        counted[comm.rank] = []

        def count_right(numbers) -> int:
            asked = [int(i) for i in numbers]
            counted[comm.rank] += asked
            return sum(i in RIGHT for i in asked)

        with guard.captured() as printed:
            share = _number(mark, evaluate, count_right, n_images, comm)
        lines[comm.rank] = len(printed.text.splitlines())
        return share

    shares, comms = on_ranks(evaluates, size)
    whole = sorted(i for numbers in counted for i in numbers)
    good = mark.require(
        whole == list(range(n_images)) and max(map(len, counted)) <= 4,
        1,
        "each held-out image is counted on one rank, by shares that are nearly equal",
        f"10 images on 3 ranks: {show(counted)}",
        likely(
            (all(len(one) == n_images for one in counted), "each rank counts all of them"),
            (len(counted[0]) == n_images, "rank 0 counts all of them, and the others wait for it"),
            (len(whole) < n_images, "some images are counted by nobody"),
            otherwise="np.arange(comm.rank, n_images, comm.size)",
        ),
    )
    same = len({tuple(name for name, _ in comm.calls) for comm in comms}) == 1
    exact = all(abs(share - len(RIGHT) / n_images) < 1e-9 for share in shares)
    mark.require(
        exact and lines == [1, 0, 0] and same,
        1,
        "the right share on all ranks, and one line: on rank 0",
        f"shares {show([round(s, 3) for s in shares])}, where 0.4 is right; lines printed by rank: "
        f"{show(lines)}",
        likely(
            (not same, "a collective is called on some ranks only: on real ranks it hangs"),
            (
                not comms[0].calls,
                "add up the counts of all ranks with comm.allreduce, on every rank",
            ),
            (sum(lines) > 1, "only rank 0 prints"),
            (lines[0] == 0, "rank 0 prints a line"),
            otherwise="divide the sum of the counts by n_images, not by the own share",
        ),
        after=good,
    )


def _numbers_of(rank: int) -> np.ndarray:
    return np.array([10 * rank, 10 * rank + 1, 10 * rank + 2])


def _samples(numbers: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Samples as the program's `read` gives them: images, and digits."""
    numbers = np.asarray(numbers, int)
    return np.repeat(numbers[:, None], 64, axis=1).astype(np.float32), numbers % 10


def _is_batch_of(batch: object, rank: int) -> bool:
    right = _samples(_numbers_of(rank))
    if not isinstance(batch, tuple | list) or len(batch) != len(right):
        return False
    return all(np.array_equal(np.asarray(a), b) for a, b in zip(batch, right, strict=True))


def cores(mark: Marker, threads: Callable, batch_of_rank: Callable) -> None:
    cases = {(2, 2): 1, (2, 1): 2, (8, 2): 4, (3, 2): 1, (2, 4): 1}
    got = {case: _number(mark, threads, *case) for case in cases}
    wrong = [case for case, n in cases.items() if got[case] != n]
    mark.require(
        not wrong,
        1,
        "as many threads as cores in all, and at least one a rank",
        "; ".join(f"{got[c]:g} on {c[0]} cores with {c[1]} ranks" for c in wrong),
        likely(
            (got[2, 4] == 0, "no rank can work with 0 threads: max(1, ...)"),
            (got[2, 2] == 2, "two ranks with two threads each are four threads on two cores"),
            (got[3, 2] == 1.5, "a whole number: //"),
            otherwise="the ranks share the cores: cores // ranks",
        ),
    )
    found = [_number(mark, batch_of_rank, 16, Rank(0, size)) for size in (1, 2, 4)]
    mark.require(
        found == [16, 16, 16],
        1,
        "the batch of a rank stays as it is alone",
        f"{show(found)} samples on 1, 2 and 4 ranks",
        likely(
            (found[1] < 16, "half the samples take more than half the time"),
            (found[1] > 16, "the batch of all ranks grows by itself"),
            otherwise="batch_size",
        ),
    )
