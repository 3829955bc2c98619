"""The checks of lab 2: one function for each exercise, named by its id.

The all-reduces by hand have a file of their own. The participant's program as a whole is judged by
the comparison of N ranks with one. Figures are computed again from what the participant measured.
"""

import contextlib
import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from allhands import launch
from allhands.grade.check import Marker, likely, show
from allhands.grade.checks import lab2_dataparallel_ranks as programs
from allhands.grade.checks.lab2_dataparallel_by_hand import doubling, link, ring
from allhands.trace import scaling
from allhands.trace.events import Event
from allhands.trace.scaling import Measured
from allhands.trace.summary import time_by
from allhands.train import parallel
from allhands.train.compare import compare
from allhands.train.on_ranks import on_ranks

__all__ = ["doubling", "link", "metrics", "report", "ring", "same_answer", "shard", "speedup"]

HANG_S = 12.0


def ranks_of(size: int) -> list[SimpleNamespace]:
    """What `shard` may ask of a communicator, for each rank of one node."""
    return [
        SimpleNamespace(
            rank=r, size=size, intra_rank=r, intra_size=size, inter_rank=0, inter_size=1
        )
        for r in range(size)
    ]


def shard(mark: Marker, shard: Callable) -> None:
    n_samples, seed, size = 103, 5, 4
    state = np.random.get_state()
    try:
        shares = [np.asarray(mark.run(shard, n_samples, comm, seed)) for comm in ranks_of(size)]
        again = [np.asarray(mark.run(shard, n_samples, comm, seed)) for comm in ranks_of(size)]
        other = np.asarray(mark.run(shard, n_samples, ranks_of(size)[0], seed + 1))
        alone = np.asarray(mark.run(shard, n_samples, ranks_of(1)[0], seed))
    finally:
        np.random.set_state(state)
    mark.need(
        all(share.ndim == 1 and share.dtype.kind in "iu" for share in shares),
        "an array of whole numbers: sample numbers",
        f"dtype {shares[0].dtype}, shape {show(shares[0].shape)}",
    )
    numbers = np.concatenate(shares)
    missing, twice = n_samples - len(np.unique(numbers)), len(numbers) - len(np.unique(numbers))
    repeatable = all(np.array_equal(a, b) for a, b in zip(shares, again, strict=True))
    once = mark.require(
        sorted(numbers.tolist()) == list(range(n_samples))
        and sorted(alone.tolist()) == list(range(n_samples)),
        1,
        f"each of {n_samples} samples on exactly one of {size} ranks",
        f"{missing} samples on no rank, and {twice} too many",
        likely(
            (
                not repeatable,
                "the ranks draw different orders: use the seed that is given, and no other random "
                "numbers",
            ),
            (
                all(len(np.unique(share)) == n_samples for share in shares),
                "every rank has all samples: take a part, such as order[comm.rank :: comm.size]",
            ),
            (
                missing > 0 and twice > 5,
                "the ranks have different orders: shuffle with the same seed on all of them",
            ),
            (
                0 < twice <= size and missing == 0,
                "the shares need not be equally long: repeat no sample",
            ),
            (twice == 0 and missing > 0, f"{n_samples} is no multiple of {size}: the rest counts"),
            otherwise="shuffle all numbers, then cut them into shares",
        ),
    )
    sizes = [len(share) for share in shares]
    shuffled = not all(np.array_equal(share, np.sort(share)) for share in shares)
    mark.require(
        shuffled
        and repeatable
        and not np.array_equal(other, shares[0])
        and max(sizes) - min(sizes) <= 1,
        1,
        "shuffled shares whose sizes differ by one at most; the same for the same seed, others for "
        "another",
        f"sizes {show(sizes)}, the first numbers of rank 0 {show(shares[0][:6])}",
        likely(
            (not shuffled, "shuffle first: a file may be sorted"),
            (not repeatable, "the same seed must give the same shares"),
            (max(sizes) - min(sizes) > 1, "deal the samples out like cards: order[rank::size]"),
            otherwise="use the argument `seed`",
        ),
        after=once,
    )


def metrics(mark: Marker, metrics: Callable) -> None:
    found = _on_two_ranks(mark, programs.metrics_of, metrics)
    names = ("exact_match", "loss_per_token")
    mark.need(
        all(isinstance(one, Mapping) and set(names) <= set(one) for one in found),
        "a dict with exact_match and loss_per_token on every rank",
        show(found),
    )
    first, second = programs.COUNTS
    for name, top, bottom, factor in (
        ("exact_match", "n_right", "n_sentences", 100),
        ("loss_per_token", "loss", "n_tokens", 1),
    ):
        right = factor * (first[top] + second[top]) / (first[bottom] + second[bottom])
        own = [factor * one[top] / one[bottom] for one in programs.COUNTS]
        got = [float(one[name]) for one in found]
        mark.require(
            np.allclose(got, right),
            1,
            f"{name}: the ratio of the sums of all ranks, {right:.4g} here, on both ranks",
            " and ".join(f"{one:.4g}" for one in got),
            likely(
                (
                    np.allclose(got, np.mean(own)),
                    "that is the mean of the ranks' ratios: add up the counts first, and divide "
                    "then",
                ),
                (np.allclose(got, own), "each rank gives its own ratio: use all of `everyone`"),
                (np.allclose(got, right / 100), "in percent: times 100"),
                otherwise=f"sum of {top} divided by sum of {bottom}",
            ),
        )


def report(mark: Marker, report: Callable) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found = _on_two_ranks(mark, programs.reported, report)
    n_all = sum(programs.SENTENCES)
    mark.require(
        all(one == n_all for one in found),
        1,
        f"no rank waits for ever, and both return the sum, {n_all}",
        show(found),
        likely(
            (found == list(programs.SENTENCES), "the sum of both ranks: comm.allreduce"),
            otherwise="call comm.allreduce on every rank, outside of the `if`, and return it",
        ),
    )
    lines = printed.getvalue().splitlines()
    mark.require(
        len(lines) == 1 and lines[0].startswith("[0]") and str(n_all) in lines[0],
        1,
        f"one line, from rank 0 alone, with the number {n_all}",
        show(lines),
        likely(
            (len(lines) > 1, "the `if comm.rank == 0:` stays around the print"),
            otherwise="rank 0 prints the sum",
        ),
    )


def _on_two_ranks(mark: Marker, program: Callable, answer: Callable) -> list:
    """Run the answer on two ranks; a job that hangs or fails ends the check with its sentence."""
    try:
        found = on_ranks(program, answer, ranks=2, time_limit_s=HANG_S)
    except launch.TimeUp as error:
        mark.need(
            False,
            "a collective that all ranks call",
            str(error),
            "who calls it, and who does not? Take the call out of the `if`",
        )
    except launch.LaunchError as error:
        mark.need(False, "a function that runs on two ranks", str(error))
    return mark.run(lambda: found)


def same_answer(
    mark: Marker,
    shard: Callable,
    multi_node: Callable,
    total: Callable,
    speaks: Callable,
    rate_factor: Callable,
) -> None:
    rules = {"none": 1.0, "sqrt": 2.0, "linear": 4.0}
    factors = {rule: mark.run(rate_factor, rule, 4) for rule in rules}
    said = [mark.run(speaks, comm) for comm in ranks_of(3)]
    mark.require(
        all(np.isclose(float(factors[rule]), right) for rule, right in rules.items())
        and [bool(one) for one in said] == [True, False, False],
        1,
        "for 4 ranks the factors 1 (none), 2 (sqrt) and 4 (linear); of three ranks, rank 0 speaks",
        f"factors {show(factors)}; the ranks that speak: {show([bool(one) for one in said])}",
        likely(
            (all(said), "only one rank speaks: comm.rank == 0"),
            (
                np.isclose(float(factors["linear"]), 0.25),
                "a larger batch needs a larger rate: multiply, do not divide",
            ),
            otherwise="linear is `ranks`, sqrt its square root, none is 1",
        ),
    )
    with tempfile.TemporaryDirectory(prefix="allhands-lab2-") as folder:
        mine = [shard, multi_node, total, speaks, rate_factor]
        ours = [getattr(parallel, function.__name__, None) for function in mine]
        written = [one for one, our in zip(mine, ours, strict=True) if one is not our]
        program = parallel.write_edits(Path(folder) / "mine.py", *written)
        try:
            found = compare(program, ranks=2)
        except (launch.LaunchError, ValueError) as error:
            mark.need(False, "a program that runs on two ranks", str(error))
    first = found.difference
    mark.require(
        first is None,
        3,
        "two ranks give the answer of one",
        f"the first difference is in `{first.name}`: {first.seen}" if first else "",
        f"{first.remedy or first.cause}" if first else "",
    )


def speedup(
    mark: Marker,
    mine: Mapping,
    weak: Sequence[Measured],
    strong: Sequence[Measured],
    events: Sequence[Event],
) -> None:
    keys = ("weak", "strong", "efficiency", "communicate")
    mark.need(
        isinstance(mine, Mapping) and set(keys) <= set(mine),
        f"a dict with the keys {', '.join(keys)}",
        show(mine),
    )
    got = {key: float(mine[key]) for key in keys}
    ranges = {}
    for mode, measured in (("weak", weak), ("strong", strong)):
        two = next(one for one in scaling.speedups(measured) if one.ranks == 2)
        by_rank = {one.ranks: one.median_samples_per_s for one in measured}
        either = (two.median, by_rank[2] / by_rank[1])  # both ways to take the median are right
        ranges[mode] = (0.99 * min(either), 1.01 * max(either))

    def inside(value: float, mode: str) -> bool:
        return ranges[mode][0] <= value <= ranges[mode][1]

    wrong = [mode for mode in ("weak", "strong") if not inside(got[mode], mode)]
    steps = {"weak": weak, "strong": strong}[wrong[0]] if wrong else weak
    by_time = {one.ranks: one.median_step_s for one in steps}
    mark.require(
        not wrong,
        1,
        "both speed-ups: samples per second on two ranks, divided by those on one",
        ", ".join(f"{mode}: {show(got[mode])}" for mode in wrong),
        likely(
            (
                len(wrong) == 2 and inside(got["weak"], "strong"),
                "weak and strong have changed places",
            ),
            (bool(wrong) and inside(2 * got[wrong[0]], wrong[0]), "that is the efficiency"),
            (
                bool(wrong) and inside(1 / got[wrong[0]], wrong[0]),
                "two ranks / one, not one / two",
            ),
            (
                bool(wrong) and abs(got[wrong[0]] - by_time[1] / by_time[2]) < 0.02,
                "that is a ratio of step times; in weak scaling two ranks do twice the work in a "
                "step: take samples per second",
            ),
            otherwise="weak[1].median_samples_per_s / weak[0].median_samples_per_s",
        ),
    )
    mark.require(
        inside(2 * got["efficiency"], "strong"),
        1,
        "the efficiency of strong scaling: its speed-up divided by 2 ranks",
        show(got["efficiency"]),
        likely(
            (inside(got["efficiency"] / 50, "strong"), "give a share, not percent"),
            (inside(2 * got["efficiency"], "weak"), "that is the efficiency of weak scaling"),
            (inside(got["efficiency"], "strong"), "that is the speed-up; divide by 2"),
            otherwise="speed-up / number of ranks",
        ),
    )
    share = next((one.share for one in time_by(events) if one.label == "communicate"), 0.0)
    total_s = sum(one.duration_s for one in events if one.what == "communicate")
    mark.require(
        abs(got["communicate"] - share) < 0.002,
        1,
        "the share of `communicate` in the time of all events of `steps`",
        show(got["communicate"]),
        likely(
            (abs(got["communicate"] - 100 * share) < 0.2, "give a share, not percent"),
            (abs(got["communicate"] - total_s) < 0.01 * total_s, "that is in seconds: the share"),
            otherwise="`time_by(steps)` has a `label` and a `share` for each kind of work",
        ),
    )
