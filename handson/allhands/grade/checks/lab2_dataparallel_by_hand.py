"""The checks of lab 2's all-reduces by hand; lab2_dataparallel.py has the others.

An all-reduce is rehearsed first, without MPI: a rehearsal counts messages and says who waits for
whom. Then real ranks run it beside MPI's own.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from allhands import launch
from allhands.grade.check import Marker, likely, show
from allhands.grade.checks import lab2_dataparallel_ranks as programs
from allhands.mgwfbp.fit import fit
from allhands.train.all_reduce_times import Measured
from allhands.train.on_ranks import on_ranks
from allhands.train.rehearsal import Deadlock, Rehearsal, rehearse

WINDOW_BYTES = (4, 1.1e6)
START_S = 120.0


def arrays(n_ranks: int, shape: tuple[int, ...] = (2, 10)) -> list[np.ndarray]:
    """One array a rank; the sum of each element says which ranks are in it: powers of two."""
    ones = np.ones(shape, np.float32)
    return [2.0**rank * ones for rank in range(n_ranks)]


def rehearsed(mark: Marker, all_reduce: Callable, inputs: Sequence[np.ndarray]) -> Rehearsal:
    """Rehearse; a deadlock, a missing answer and a changed input end the check."""
    before = [array.copy() for array in inputs]
    try:
        done = rehearse(all_reduce, inputs)
    except Deadlock as error:
        mark.need(False, f"an all-reduce that ends, on {len(inputs)} ranks", str(error))
    mark.run(lambda: next((one for one in done.results if one is None), True))
    wrong = next((one for one in done.results if not isinstance(one, np.ndarray)), None)
    mark.need(wrong is None, "a NumPy array on every rank", type(wrong).__name__)
    shapes = {one.shape for one in done.results}
    mark.need(
        shapes == {inputs[0].shape},
        f"for arrays of shape {inputs[0].shape}, a sum of this shape",
        ", ".join(map(show, sorted(shapes))),
        "return total.reshape(array.shape)",
    )
    mark.need(
        all(np.array_equal(a, b) for a, b in zip(before, inputs, strict=True)),
        "the array that was given stays as it was",
        "it has changed",
        "work on a copy: array.flatten() makes one, array.ravel() and reshape do not",
    )
    return done


def seen_sums(done: Rehearsal, right: np.ndarray) -> tuple[bool, str]:
    """Whether all ranks have the sum, and else what the first that has not has."""
    for rank, got in enumerate(done.results):
        if not np.array_equal(got, right):
            return False, f"rank {rank} of {len(done.results)} has {show(got.ravel())}"
    return True, ""


def ring(mark: Marker, ring: Callable) -> None:
    right = True
    for n_ranks in (4, 1, 2, 3, 5):
        inputs = arrays(n_ranks)
        total = np.sum(inputs, axis=0)
        done = rehearsed(mark, ring, inputs)
        right, seen = seen_sums(done, total)
        if not right:
            break
    chunk_right = [
        np.array_equal(
            np.array_split(got.ravel(), n_ranks)[(rank + 1) % n_ranks],
            np.array_split(total.ravel(), n_ranks)[(rank + 1) % n_ranks],
        )
        for rank, got in enumerate(done.results)
    ]
    largest = max(float(got.max()) for got in done.results)
    mark.require(
        right,
        1,
        "the sum of all ranks' arrays on every rank, for 1 to 5 ranks",
        seen,
        likely(
            (largest > total.max(), "add only in the first loop; in the second, replace your own"),
            (
                all(chunk_right),
                "the first loop is right: chunk rank + 1 is complete. Now the second, in which "
                "the complete chunks go around",
            ),
            otherwise="print the chunk numbers that a rank sends and receives in each step, and "
            "compare with the docstring; all are modulo N",
        ),
    )
    done = rehearsed(mark, ring, arrays(4, (4000,)))
    calls, sent = (max(getattr(t, n) for t in done.traffic) for n in ("calls", "sent_bytes"))
    lean = mark.require(
        right and calls == 6 and sent == 24_000,
        1,
        "on 4 ranks 6 steps, in each of which a rank sends a quarter of the array: of an array of "
        "16,000 bytes 24,000 in all",
        f"a rank with {calls} calls, and one that sends {sent:,} bytes",
        likely(
            (calls < 6, "N-1 steps for reduce-scatter, and N-1 steps for all-gather"),
            (sent > 24_000, "send one chunk in a step, not the whole array"),
            (calls > 6, "sending and receiving is one call: Sendrecv"),
            otherwise="N-1 steps for reduce-scatter, and N-1 steps for all-gather",
        ),
        after=right,
    )
    real_ranks(mark, ring, after=right and lean)


def doubling(mark: Marker, doubling: Callable) -> None:
    for n_ranks in (8, 1, 2, 4):
        inputs = arrays(n_ranks)
        done = rehearsed(mark, doubling, inputs)
        right, seen = seen_sums(done, np.sum(inputs, axis=0))
        if not right or n_ranks == 8:
            calls = max(traffic.calls for traffic in done.traffic)
        if not right:
            break
    fast = mark.require(
        right and calls == 3,
        1,
        "the sum on 1, 2, 4 and 8 ranks, on 8 in 3 steps",
        seen or f"{calls} calls of a rank on 8 ranks",
        likely(
            (right and calls > 3, "distances 1, 2, 4: double the distance in each step"),
            (calls < 3, "go on while the distance is below P"),
            otherwise="add what you received before the next exchange, and send the sum then",
        ),
    )
    if not fast:
        mark.require(False, 1, "", after=False)
        real_ranks(mark, doubling, after=False)
        return
    for n_ranks in (3, 5, 6, 7):
        inputs = arrays(n_ranks)
        try:
            done = rehearse(doubling, inputs)
            right, seen = seen_sums(done, np.sum(inputs, axis=0))
        except (Deadlock, ValueError) as error:
            right, seen = False, str(error)
        if not right:
            break
    odd = mark.require(
        right,
        1,
        "the sum on 3, 5, 6 and 7 ranks",
        seen,
        "a rank r >= P sends to r - P at first, and receives from it in the end; only the ranks "
        "below P exchange, at distances below P",
    )
    real_ranks(mark, doubling, after=odd)


def real_ranks(mark: Marker, all_reduce: Callable, *, after: bool) -> None:
    """One point: MPI's own all-reduce gives the same on 2, 3 and 4 real ranks."""
    asked = "on 2, 3 and 4 real ranks the same as MPI's own all-reduce"
    if not after:
        mark.require(False, 1, asked, after=False)
        return
    wrong, seen = [], ""
    try:
        found = on_ranks(programs.sums_right, all_reduce, ranks=4, time_limit_s=START_S)
        wrong = [case for of_rank in found for case, right in of_rank.items() if not right]
        seen = f"another sum for {wrong[0]}" if wrong else ""
    except launch.LaunchError as error:
        wrong, seen = ["all"], str(error)
    mark.require(
        not wrong,
        1,
        asked,
        seen,
        "on the ranks your function has NumPy as np, and what it imports itself: other names of "
        "the notebook are not there",
    )


def link(mark: Marker, link: Mapping, measured: Measured) -> None:
    keys = ("ring us", "doubling us", "theory us")
    mark.need(
        isinstance(link, Mapping) and set(keys) <= set(link),
        f"a dict with the keys {', '.join(keys)}",
        show(link),
    )
    right = {"theory us": 1e6 * measured.predicted("ring").startup_s}
    everything = {}
    for key, name in (("ring us", "ring"), ("doubling us", "recursive doubling")):
        table = (measured.sizes_bytes, measured.times_s[name])
        right[key] = 1e6 * fit(*table, window_bytes=WINDOW_BYTES).cost.startup_s
        with contextlib.suppress(ValueError):
            everything[key] = 1e6 * fit(*table).cost.startup_s
    got = {key: float(link[key]) for key in keys}

    def near(key: str, value: float) -> bool:
        return abs(got[key] - value) <= 0.02 * abs(value)

    def advice(key: str, other: str) -> str:
        return likely(
            (near(key, 1e-6 * right[key]), "that is in seconds; give microseconds"),
            (near(key, 1e-3 * right[key]), "that is in milliseconds; give microseconds"),
            (key in everything and near(key, everything[key]), "that is the fit of all sizes"),
            (near(key, right[other]), f"that is the figure of {other!r}"),
            otherwise="1e6 * fit(sizes, times, window_bytes=WINDOW).cost.startup_s",
        )

    fits = [key for key in keys[:2] if not near(key, right[key])]
    mark.require(
        not fits,
        1,
        "the start-ups of the ring and of doubling, in microseconds, from 4 bytes to 1.1 MB",
        ", ".join(f"{key}: {show(got[key])}" for key in fits),
        advice(fits[0], keys[1] if fits[0] == keys[0] else keys[0]) if fits else "",
    )
    mark.require(
        near("theory us", right["theory us"]),
        1,
        "the start-up that theory gives the ring, in microseconds",
        show(got["theory us"]),
        likely(
            (
                near("theory us", 1e6 * measured.wire.latency_s),
                "that is one message; a ring of N ranks sends 2(N-1)",
            ),
            otherwise=advice("theory us", "ring us"),
        ),
    )
