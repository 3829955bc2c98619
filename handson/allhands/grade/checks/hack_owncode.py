"""The checks of hack_owncode: one function for each exercise, named by its id.

Functions that communicate are called as ranks in this process (hack_owncode_ranks.py); the device
whose speed is measured is a model with a clock of its own. Figures are computed again from the
records of the participant's runs.
"""

import re
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch.utils.data import DataLoader

from allhands.grade.check import Marker, likely, show
from allhands.grade.checks.hack_owncode_ranks import Alone, on_ranks
from allhands.migrate import Checked
from allhands.train import own_page
from allhands.train.own_program import Record

SAME = 1e-3  # float32 sums in another order: about 1e-6 was seen; another answer: 1e-2 and more


class Device:
    """A device that is asked and works on: steps of 0.5 s, the first three of 4 s."""

    ASKING_S, STEP_S, FIRST_S = 0.01, 0.5, 4.0

    def __init__(self) -> None:
        self.now_s, self.free_at_s, self.n_steps = 0.0, 0.0, 0

    def step(self) -> None:
        self.now_s += self.ASKING_S
        length_s = self.FIRST_S if self.n_steps < 3 else self.STEP_S
        self.free_at_s = max(self.free_at_s, self.now_s) + length_s
        self.n_steps += 1

    def wait(self) -> None:
        self.now_s = max(self.now_s, self.free_at_s)

    def clock(self) -> float:
        return self.now_s


def measure(mark: Marker, steps_per_s: Callable) -> None:
    device = Device()
    got = mark.run(steps_per_s, device.step, device.wait, device.clock, 10, 3, none_passes=True)
    mark.need(
        isinstance(got, (int, float)), "a number of steps a second", show(got), "end with `return`"
    )
    right = abs(got - 2.0) < 0.05
    mark.require(
        right,
        1.5,
        "2 steps a second for a device whose steps take 0.5 s, after three slow ones",
        f"{got:.4g}",
        likely(
            (got > 5, "these are steps that were asked for: wait() before you look at the clock"),
            (abs(got - 0.5) < 0.02, "these are seconds a step: n_steps over the time"),
            (abs(got - 10 / 17) < 0.02, "the three slow ones are in it: wait() before the start"),
            (got < 1, "the first steps count, or wait() is missing before the start"),
            (abs(got - 2.6) < 0.05, "n_steps, and not all steps, over the time"),
            otherwise="warm up, wait, clock, n_steps steps, wait, clock: n_steps / seconds",
        ),
    )
    mark.require(
        device.n_steps == 13,
        0.5,
        "3 steps to warm up and 10 that count",
        f"{device.n_steps} steps",
        "call step() warm_up times, and then n_steps times",
        after=right,
    )


def findings(mark: Marker, answer: Mapping, checked: Checked) -> None:
    mark.need(
        isinstance(answer, Mapping) and {"sure", "line"} <= set(answer),
        "a dict with `sure` and `line`",
        show(answer),
    )
    sure = {each.rule.rule_id for each in checked.of("sure")}
    given = answer["sure"]
    words = re.findall(r"[\w-]+", given) if isinstance(given, str) else given or ()
    given = {str(each) for each in words}
    others = {each.rule.rule_id for each in checked.findings} - sure
    mark.require(
        given == sure,
        1,
        "the names of the rules whose findings are sure",
        show(sorted(given)),
        likely(
            (given & others, "`likely` is no `sure`: look at the words in the brackets"),
            (given < sure, f"there are {len(sure)} of them"),
            otherwise="the name stands in brackets after the title of a finding",
        ),
    )
    hangs = next(e for e in checked.of("sure") if e.rule.rule_id == "collective-on-some-ranks")
    branch = int(re.search(r"line (\d+)", hangs.detail)[1])
    mark.require(
        str(answer["line"]) == str(hangs.line),
        1,
        "the line in which rank 0 waits for the others",
        show(answer["line"]),
        likely(
            (answer["line"] == branch, "there it is decided; in which line does it then wait?"),
            (
                answer["line"] in {each.line for each in checked.findings},
                "this is a fault, but nobody waits there: which one is about a collective?",
            ),
            otherwise="the number before the code, under the finding about a collective",
        ),
    )


def _epoch(loader: DataLoader, epoch: int) -> list[list[int]]:
    loader.sampler.set_epoch(epoch)
    return [batch.tolist() for batch in loader]


def share(mark: Marker, share: Callable) -> None:
    n, size, batch = 96, 3, 24
    data = torch.arange(n)
    try:
        loaders = [mark.run(share, data, batch, r, size, none_passes=True) for r in range(size)]
    except ValueError as error:
        if "process group" not in str(error):
            raise
        asks = "DistributedSampler looks for rank and size in a process group, and there is none"
        mark.need(False, "a loader of this rank", asks, "give it num_replicas=size and rank=rank")
    mark.need(
        all(isinstance(each, DataLoader) for each in loaders),
        "a DataLoader from `share`",
        show(type(loaders[0]).__name__),
        "does it end with `return DataLoader(...)`?" if loaders[0] is None else "",
    )
    mark.need(
        all(hasattr(each.sampler, "set_epoch") for each in loaders),
        "a loader whose sampler is a DistributedSampler",
        show(type(loaders[0].sampler).__name__),
        "DataLoader(..., sampler=DistributedSampler(dataset, num_replicas=size, rank=rank))",
    )
    ranks = [_epoch(each, 0) for each in loaders]
    seen = [number for rank in ranks for batch_ in rank for number in batch_]
    whole = sorted(seen) == list(range(n))
    mark.require(
        whole,
        0.5,
        "each sample on one rank, and none left out",
        f"{len(seen)} of {n} samples, {len(set(seen))} different ones",
        likely(
            (len(seen) > n, "all ranks have the same: does the sampler know rank and size?"),
            (
                len(set(seen)) == n // size,
                "all ranks have the same share: rank=rank, not the same number for all",
            ),
            (len(set(seen)) < len(seen), "the ranks' orders differ: leave the seed as it is"),
            otherwise="num_replicas=size, rank=rank, and no drop_last",
        ),
    )
    sizes = {len(batch_) for rank in ranks for batch_ in rank}
    mark.require(
        sizes == {batch // size},
        1,
        f"batches of {batch // size} on each of {size} ranks, {batch} together",
        f"batches of {show(sorted(sizes))}",
        likely(
            (batch in sizes, "that is a batch of all ranks on each: divide it by `size`"),
            otherwise="batch_size // size",
        ),
    )
    again = _epoch(loaders[0], 1)
    order = [number for batch_ in ranks[0] for number in batch_]
    mark.require(
        again != ranks[0] and sorted(order) != order,
        0.5,
        "another order in each epoch",
        "the same order in epochs 0 and 1",
        "leave out shuffle=False: a DistributedSampler shuffles by itself",
        after=whole,
    )


def total(mark: Marker, total: Callable) -> None:
    counted = [(9, 10), (1, 2)]
    try:
        got = on_ranks(lambda dist: total(*counted[dist.get_rank()], dist), size=2)
    except Alone as error:
        mark.need(False, "one all_reduce that all ranks call", str(error), "no `if` around it")
    mark.run(lambda: None if all(each is None for each in got) else got)
    first = got[0]
    mark.need(isinstance(first, (int, float)), "a number", show(first), "`float(...)` makes one")
    mark.require(
        abs(first - 10 / 12) < 1e-5,
        1.5,
        "10 right of 12 on both ranks together: 0.833",
        f"{first:.4g} on rank 0, which counted 9 of 10; rank 1 counted 1 of 2",
        likely(
            (abs(first - 0.9) < 1e-5, "that is rank 0 alone: all_reduce the counts"),
            (abs(first - 0.7) < 1e-5, "a mean of two ratios: add up the counts first, then divide"),
            (abs(first - 1.4) < 1e-5, "a sum of two ratios: add up the counts first, then divide"),
            otherwise="all_reduce both counts, then divide one by the other",
        ),
    )
    mark.require(
        got[1] == first,
        0.5,
        "the same number on both ranks",
        f"{show(got[0])} on rank 0, {show(got[1])} on rank 1",
        "all ranks return it",
    )


def save(mark: Marker, save: Callable) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writers, there = set(), {}
        for first in (1, 0):  # each rank once before the other: who writes last is no accident
            path = Path(folder) / f"model_{first}.pt"

            def one(dist, path: Path = path) -> bool:
                save({"of": torch.tensor(dist.get_rank())}, path, dist)
                there.setdefault(dist.get_rank(), path.exists())
                return True

            try:
                on_ranks(one, size=2, first=[first])
            except Alone as error:
                advice = "it stands after the `if`, not inside"
                mark.need(False, "a barrier that all ranks call", str(error), advice)
            mark.run(lambda path=path: True if path.exists() or save.__code__.co_names else None)
            mark.need(path.exists(), "a file at `path`", "none", "torch.save(state, path), rank 0")
            state = torch.load(path)
            whole = isinstance(state, Mapping) and "of" in state
            mark.need(whole, "all of `state` in the file", show(state), "torch.save(state, path)")
            writers.add(int(state["of"]))
        who = "all ranks write the file" if len(writers) > 1 else f"rank {min(writers)} writes"
        mark.require(
            writers == {0} and there[1],
            1,
            "rank 0 writes, and rank 1 comes back when the file is there",
            f"{who}; when rank 1 came back the file was {'there' if there[1] else 'not there yet'}",
            likely(
                (writers != {0}, "all ranks write the same file: only rank 0 should"),
                (not there[1], "nobody waits: a barrier on all ranks, after the `if` and the save"),
            ),
        )


def _number(thing: object) -> float | None:
    """A number as a float, also one of NumPy or PyTorch; None if it is none."""
    try:
        return None if isinstance(thing, str) else float(thing)
    except (TypeError, ValueError, RuntimeError):
        return None


def same(mark: Marker, answer: float, one: Record, two: Record) -> None:
    mark.need(
        len(one.losses) == len(two.losses),
        "two runs of equally many steps",
        f"{len(one.losses)} and {len(two.losses)} steps",
        "is the batch of a rank batch_size // size? Run the cell with both runs again",
    )
    largest = own_page.difference(one, two)
    given, answer = answer, _number(answer)
    mark.need(answer is not None, "a number", show(given), "`max(...)` over all steps")
    absolute = max(abs(a - b) for a, b in zip(one.losses, two.losses, strict=True))
    right = abs(answer - largest) <= 1e-2 * largest + 1e-12
    mark.require(
        right,
        0.5,
        "the largest of |one - two| / |one| over all steps",
        f"{answer:.3g}, where {largest:.3g} is right",
        likely(
            (abs(answer - absolute) <= 1e-2 * absolute, "divide by the loss of the one: relative"),
            (answer < 0, "take abs(...): differences have signs"),
            otherwise="max(abs(a - b) / a for a, b in zip(one.losses, two.losses))",
        ),
    )
    mark.require(
        largest < SAME,
        0.5,
        "two ranks that give the answer of one",
        f"losses that differ by {largest:.1%}",
        "run `allhands check` on your edits, and look at `share` first",
        after=right,
    )


def speed(mark: Marker, answer: Mapping, one: Record, two: Record) -> None:
    mark.need(
        isinstance(answer, Mapping) and {"speed_up", "efficiency"} <= set(answer),
        "a dict with `speed_up` and `efficiency`",
        show(answer),
    )
    wanted = own_page.speed_up(one, two)
    medians = [statistics.median(each.times_s) for each in (one, two)]
    means = [statistics.fmean(each.times_s) for each in (one, two)]
    got, efficiency = _number(answer["speed_up"]), _number(answer["efficiency"])
    mark.need(None not in (got, efficiency), "two numbers", show(answer), "no text, no unit")
    right = abs(got - wanted) < 1e-3 * wanted
    mark.require(
        right,
        0.5,
        "samples a second on two ranks over samples a second on one",
        f"{got:.4g}, where {wanted:.4g} is right",
        likely(
            (abs(got - 1 / wanted) < 1e-3 / wanted, "that is one over two"),
            (abs(got - medians[0] / medians[1]) < 1e-3, "leave out the first three steps"),
            (abs(got - means[0] / means[1]) < 1e-3, "the median, not the mean"),
            otherwise="two.samples_per_s / one.samples_per_s",
        ),
    )
    mark.require(
        abs(efficiency - wanted / two.ranks) < 1e-3 * wanted,
        0.5,
        "the share of what two ranks could do",
        f"{efficiency:.4g}",
        "speed_up / two.ranks",
        after=right,
    )


def _is_short(text: str) -> bool:
    """Below four words; a language that is written without spaces has two letters for a word."""
    return len(text.split()) + sum(not each.isascii() for each in text) // 2 < 4


def page(mark: Marker, words: Mapping, one: Record, two: Record) -> None:
    mark.need(
        isinstance(words, Mapping) and {"what", "trouble", "next"} <= set(words),
        "a dict with `what`, `trouble` and `next`",
        show(words),
    )
    mark.run(lambda: "".join(str(words[name] or "") for name in ("what", "trouble", "next")))
    short = [name for name in ("what", "trouble", "next") if _is_short(str(words[name]))]
    full = mark.require(
        not short,
        0.5,
        "three sentences",
        f"too little for {' and '.join(short)}",
        "four words at least: what you did, what went wrong and why, what comes next",
    )
    mark.require(
        bool(re.search(r"\d", str(words["what"]))),
        0.5,
        "a figure in `what`",
        show(words["what"]),
        "how many ranks, how many times as fast: a claim without a figure cannot be checked",
        after=full,
    )
