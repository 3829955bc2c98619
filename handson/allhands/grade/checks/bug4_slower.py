"""The checks of the lab bug4: one function for each exercise, named by its id.

The participant's functions are called rank by rank, with communicators that note what is asked of
them: a fault shows in what a rank takes, reads, counts and prints, and in no time.
"""

from collections.abc import Callable, Mapping
from types import SimpleNamespace

import numpy as np

from allhands.grade import guard
from allhands.grade.check import Marker, likely, show
from allhands.trace import critical_path as right
from allhands.trace.events import Event

CAUSES = {
    "data": {"samples of an epoch and rank"},
    "batch": {"samples of a step and rank"},
    "loader": {"samples read by a rank"},
    "evaluation": {"images in an evaluation", "lines printed"},
    "threads": {"threads", "switches of a step"},
}


def fair(mark: Marker, step_s: Callable, speed_up: Callable) -> None:
    times_s = [8.0, 1.0, 1.0, 2.0, 2.0, 3.0, 2.0, 2.0]
    got = float(mark.run(step_s, times_s))
    mark.require(
        got == 2.0,
        1,
        "the median of the steps, without the first three",
        f"{got:.4g} s for the steps {show(times_s)}",
        likely(
            (abs(got - np.mean(times_s)) < 1e-9, "that is the mean of all, the first included"),
            (abs(got - np.mean(times_s[3:])) < 1e-9, "one step with a pause spoils a mean: median"),
            otherwise="np.median(times_s[3:])",
        ),
    )
    alone = SimpleNamespace(step_s=1.0, samples_per_step=64)
    together = SimpleNamespace(step_s=1.25, samples_per_step=128)
    got = float(mark.run(speed_up, alone, together))
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
    got = float(mark.run(critical_path_s, TWO_RANKS, 0.0))
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
    got = float(mark.run(critical_path_s, TWO_RANKS, 0.5))
    other = _events((1, 0, "forward", 1), (2, 0, "forward", 2), (4, 0, "evaluate", 3))
    for_one = float(mark.run(critical_path_s, other, 0.0))
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
            otherwise="copy the row's first words as they are printed",
        ),
    )


class Rank:
    """A communicator that notes its calls. `results`: what its collectives give back, in turn."""

    def __init__(self, rank: int, size: int, results: list | None = None) -> None:
        self.rank, self.size = rank, size
        self.calls: list[tuple[str, object]] = []
        self._results = list(results or [])

    def _call(self, name: str, thing: object) -> object:
        self.calls.append((name, thing))
        return self._results.pop(0) if self._results else thing

    def allreduce(self, thing, *_):
        return self._call("allreduce", thing)

    def gather(self, thing, *_, **__):
        self._call("gather", thing)
        return [thing] * self.size if self.rank == 0 else None

    def scatter(self, things, *_, **__):
        self._call("scatter", None)
        return things[0] if things else np.zeros((0, 64))

    def bcast(self, thing, *_, **__):
        self._call("bcast", None)
        return thing


def data(mark: Marker, numbers: Callable) -> None:
    def shares(n_samples: int, size: int, epoch: int) -> list[list[int]]:
        return [
            [int(i) for i in mark.run(numbers, n_samples, Rank(rank, size), epoch)]
            for rank in range(size)
        ]

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
    size, read_by_rank, calls = 3, [], []
    for rank in range(size):
        comm, asked = Rank(rank, size), []

        def read(numbers, asked=asked):
            asked.extend(int(i) for i in numbers)
            return np.array(numbers)

        got = load(read, np.array([10 * rank, 10 * rank + 1]), comm)
        read_by_rank.append(asked)
        calls += [name for name, _ in comm.calls]
        if rank == 0:
            mark.need(got is not None, "the samples that `read` gives", "None", "return them")
    mark.require(
        read_by_rank == [[0, 1], [10, 11], [20, 21]] and not calls,
        1,
        "each rank reads its own numbers, and sends nothing",
        f"ranks 0 to 2 read {show(read_by_rank)}; calls: {', '.join(sorted(set(calls))) or 'none'}",
        likely(
            (not read_by_rank[1], "rank 1 reads nothing itself"),
            (calls, "no collective is needed here"),
            otherwise="read(numbers)",
        ),
    )
    counted, sent, said = _evaluations(mark, evaluate, size, 10)
    whole = sorted(i for numbers in counted for i in numbers)
    good = mark.require(
        whole == list(range(10)) and max(map(len, counted)) <= 4,
        1,
        "each held-out image is counted on one rank, by shares that are nearly equal",
        f"10 images on 3 ranks: {show(counted)}",
        likely(
            (all(len(one) == 10 for one in counted), "each rank counts all of them"),
            (len(counted[0]) == 10, "rank 0 counts all of them, and the others wait for it"),
            (len(whole) < 10, "some images are counted by nobody"),
            otherwise="np.arange(comm.rank, n_images, comm.size)",
        ),
    )
    shares, lines = said
    mark.require(
        all(abs(share - 0.5) < 1e-9 for share in shares) and lines == [1, 0, 0],
        1,
        "the right share on all ranks, and one line: on rank 0",
        f"shares {show([round(s, 3) for s in shares])}, where 0.5 is right; lines printed by rank: "
        f"{show(lines)}",
        likely(
            (not all(sent), "add up the counts of all ranks with comm.allreduce, on every rank"),
            (sum(lines) > 1, "only rank 0 prints"),
            (lines[0] == 0, "rank 0 prints a line"),
            otherwise="divide the sum of the counts by n_images, not by the own share",
        ),
        after=good,
    )


def _evaluations(mark: Marker, evaluate: Callable, size: int, n_images: int):
    """Per rank: numbers counted, whether it sent something; then (shares, lines printed)."""
    counted: list[list[int]] = [[] for _ in range(size)]

    def call(rank: int, results: list | None) -> tuple[Rank, object, str]:
        comm = Rank(rank, size, results)

        def count_right(numbers):
            counted[rank] = [int(i) for i in numbers]
            return sum(i < n_images / 2 for i in counted[rank])

        with guard.captured() as printed:
            share = mark.run(evaluate, count_right, n_images, comm)
        return comm, share, printed.text

    first = [call(rank, None)[0] for rank in range(size)]
    sent = [[thing for name, thing in comm.calls if name == "allreduce"] for comm in first]
    sums = [sum(things) for things in zip(*sent, strict=False)]
    again = [call(rank, sums) for rank in range(size)]
    shares = [float(share) for _, share, _ in again]
    return (
        counted,
        [bool(one) for one in sent],
        (
            shares,
            [len(text.splitlines()) for _, _, text in again],
        ),
    )


def cores(mark: Marker, threads: Callable, batch_of_rank: Callable) -> None:
    cases = {(2, 2): 1, (2, 1): 2, (8, 2): 4, (3, 2): 1, (2, 4): 1}
    got = {case: mark.run(threads, *case) for case in cases}
    wrong = [case for case, n in cases.items() if got[case] != n]
    mark.require(
        not wrong,
        1,
        "as many threads as cores in all, and at least one a rank",
        "; ".join(f"{show(got[c])} on {c[0]} cores with {c[1]} ranks" for c in wrong),
        likely(
            (got[2, 4] == 0, "no rank can work with 0 threads: max(1, ...)"),
            (got[2, 2] == 2, "two ranks with two threads each are four threads on two cores"),
            (got[3, 2] == 1.5, "a whole number: //"),
            otherwise="the ranks share the cores: cores // ranks",
        ),
    )
    found = [int(mark.run(batch_of_rank, 16, Rank(0, size))) for size in (1, 2, 4)]
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
