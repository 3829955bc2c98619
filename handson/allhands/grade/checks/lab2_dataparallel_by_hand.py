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
RING = "around a ring, take the rank modulo the size"
DOUBLING = "only ranks below P exchange, at distances below P"


def arrays(n_ranks: int, shape: tuple[int, ...] = (2, 10)) -> list[np.ndarray]:
    """One array a rank; the sum of each element says which ranks are in it: powers of two."""
    ones = np.ones(shape, np.float32)
    return [2.0**rank * ones for rank in range(n_ranks)]


def rehearsed(
    mark: Marker, all_reduce: Callable, inputs: Sequence[np.ndarray], beyond: str
) -> Rehearsal:
    """Rehearse; a deadlock, a missing answer and a changed input end the check.

    beyond: what to try if a rank speaks to one that is not there.
    """
    before = [array.copy() for array in inputs]
    try:
        done = rehearse(all_reduce, inputs)
    except Deadlock as error:
        mark.need(False, f"an all-reduce that ends, on {len(inputs)} ranks", str(error))
    except ValueError as error:
        if "there are ranks" not in str(error):
            raise
        mark.need(False, "messages between ranks that are there", str(error), beyond)
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
    dtypes = {one.dtype for one in done.results}
    mark.need(
        dtypes == {inputs[0].dtype},
        f"numbers of the type that was given, {inputs[0].dtype}",
        ", ".join(sorted(map(str, dtypes))),
        "np.zeros and np.empty make float64, of twice the bytes: take np.empty_like(...)",
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
            few = f"{show(got.ravel()[:4])} ..., and not {show(right.ravel()[:4])} ..."
            return False, f"rank {rank} of {len(done.results)} has {few}"
    return True, ""


def ring(mark: Marker, ring: Callable) -> None:
    right = True
    for n_ranks in (4, 1, 2, 3, 5):
        inputs = arrays(n_ranks)
        total = np.sum(inputs, axis=0)
        done = rehearsed(mark, ring, inputs, RING)
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
    done = rehearsed(mark, ring, arrays(4, (4000,)), RING)
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
        done = rehearsed(mark, doubling, inputs, DOUBLING)
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
    got = numbers(mark, link, keys)
    right = {"theory us": 1e6 * measured.predicted("ring").startup_s}
    everything, squares = {}, {}
    for key, name in (("ring us", "ring"), ("doubling us", "recursive doubling")):
        sizes, times_s = np.array(measured.sizes_bytes), np.array(measured.times_s[name])
        right[key] = 1e6 * fit(sizes, times_s, window_bytes=WINDOW_BYTES).cost.startup_s
        with contextlib.suppress(ValueError):
            everything[key] = 1e6 * fit(sizes, times_s).cost.startup_s
        inside = (sizes >= WINDOW_BYTES[0]) & (sizes <= WINDOW_BYTES[1])
        squares[key] = 1e6 * np.polyfit(sizes[inside], times_s[inside], 1)[1]

    def near(key: str, value: float) -> bool:
        return abs(got[key] - value) <= 0.02 * abs(value)

    def advice(key: str, other: str) -> str:
        return likely(
            (near(key, 1e-6 * right[key]), "that is in seconds; give microseconds"),
            (near(key, 1e-3 * right[key]), "that is in milliseconds; give microseconds"),
            (key in everything and near(key, everything[key]), "that is the fit of all sizes"),
            (
                key in squares and near(key, squares[key]),
                "that is a fit by least squares, in which the largest messages decide, and the "
                "start-up is noise: `fit` makes the relative errors small",
            ),
            (
                near(key, right[other]) and near(other, right[key]),
                f"{key!r} and {other!r} have changed places",
            ),
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


def numbers(mark: Marker, answer: object, keys: Sequence[str]) -> dict[str, float]:
    """The numbers of an answer by key; one that is missing or no number ends the check."""
    mark.need(
        isinstance(answer, Mapping) and set(keys) <= set(answer),
        f"a dict with the keys {', '.join(keys)}",
        show(answer),
    )
    got = {}
    for key in keys:
        with contextlib.suppress(TypeError, ValueError):
            got[key] = float(answer[key])
    missing = [key for key in keys if key not in got]
    mark.need(
        not missing,
        "a number for each key",
        ", ".join(f"{key!r}: {show(answer[key])}" for key in missing),
        "None and `...` stand for what is not written yet",
    )
    return got
