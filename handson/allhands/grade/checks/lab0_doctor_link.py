"""The checks of lab 0 about the link of two ranks: a ping-pong that is played, and its two numbers.

The played link has a known time, so the right answer is known. A measured one is compared with the
fit of the participant's own table.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real

from allhands.grade.check import Marker, likely, show
from allhands.grade.checks.lab0_doctor_played import play
from allhands.mgwfbp.fit import fit


def numbers(mark: Marker, answer: object, names: Sequence[str]) -> dict[str, float]:
    """The numbers of these names; else the check ends here."""
    form = f"a dict with {', '.join(names)}, each a number"
    mark.need(isinstance(answer, Mapping) and set(names) <= set(answer), form, show(answer))
    try:
        return {name: float(answer[name]) for name in names}
    except (TypeError, ValueError):
        mark.need(False, form, show(answer), "write the numbers alone, without units and quotes")
        raise


def message(mark: Marker, message_s: Callable) -> None:
    def time_s(n_bytes: int) -> float:
        return 3e-6 + 2e-9 * n_bytes

    n_bytes, factors = 6000, (9.0, 1.5, 1.0, 4.0, 1.25)
    got, first, second = play(
        lambda *given: mark.run(message_s, *given, none_passes=True), n_bytes, factors, time_s
    )
    names = [[name for name, _ in end.calls] for end in (first, second)]
    partners = {partner for _, partner in first.calls}, {partner for _, partner in second.calls}
    trips = len(factors)
    good = mark.require(
        names == [["Send", "Recv"] * trips, ["Recv", "Send"] * trips]
        and partners == ({1}, {0})
        and set(first.n_bytes + second.n_bytes) == {n_bytes},
        1,
        f"{trips} round trips of {n_bytes} bytes: rank 0 sends and receives, rank 1 receives and "
        "sends",
        f"rank 0: {show(names[0][:4])} ..., {len(names[0])} calls; rank 1: {show(names[1][:4])} "
        f"..., {len(names[1])} calls; sizes {show(sorted(set(first.n_bytes + second.n_bytes)))}",
        likely(
            (
                {"send", "recv"} & {*names[0], *names[1]},
                "comm.send and comm.recv pack Python objects; comm.Send and comm.Recv, with "
                "capitals, move the bytes of an array",
            ),
            (not first.calls, "rank 0 sends nothing yet: comm.Send(ball, dest=1)"),
            (not second.calls, "rank 1 must answer: if it makes no call, rank 0 waits for ever"),
            (
                names[1][:1] == names[0][:1],
                "both ranks make the same call first: with large messages each waits for the "
                "other; rank 1 receives first",
            ),
            (
                partners != ({1}, {0}),
                "rank 0 sends to rank 1 and receives from rank 1, and rank 1 with rank 0 likewise",
            ),
            (
                set(first.n_bytes + second.n_bytes) != {n_bytes},
                "an array of floats has 4 or 8 bytes a number: np.zeros(n_bytes, np.uint8)",
            ),
            otherwise="one round trip in each of the `repeats` rounds, on both ranks",
        ),
    )
    right = time_s(n_bytes)
    mark.need(isinstance(got, Real), "a number of seconds on rank 0", show(got))
    mean = right * sum(factors) / trips
    mark.require(
        math.isclose(got, right, rel_tol=1e-6),
        1,
        "half of the shortest round trip",
        f"{1e6 * got:.4g} us, where {1e6 * right:.4g} us is right",
        likely(
            (math.isclose(got, 2 * right, rel_tol=1e-6), "a round trip is two messages: halve it"),
            (
                any(math.isclose(got, factor * mean, rel_tol=1e-6) for factor in (1, 2)),
                "a mean tells of all that ran beside it: the first of these round trips took 9 "
                "times as long as the shortest; take `min`",
            ),
            (
                any(math.isclose(got, f * factors[0] * right, rel_tol=1e-6) for f in (1, 2)),
                "that is the longest: `min`, not `max`",
            ),
            (
                any(math.isclose(got, f * 1.25 * right, rel_tol=1e-6) for f in (1, 2)),
                "that is the last one; keep the times in a list",
            ),
            (
                got < right / 10,
                "no time has passed on the clock that your function is given: call `clock()`, "
                "before and after the round trip",
            ),
            otherwise="clock() before each round trip and after it; min(times_s) / 2",
        ),
        after=good,
    )


def link(mark: Marker, link: Mapping, sizes: Sequence[float], times_s: Sequence[float]) -> None:
    said = numbers(mark, link, ("startup_us", "mb_per_s", "half_bytes"))
    try:
        cost = fit(sizes, times_s).cost
    except ValueError as error:
        mark.need(False, "a table that a straight line fits", str(error), "measure once more")
        raise
    a_s, b_s = cost.startup_s, cost.s_per_byte

    def near(name: str, right: float) -> bool:
        return math.isclose(said[name], right, rel_tol=0.02)

    mark.require(
        near("startup_us", 1e6 * a_s) and near("mb_per_s", 1e-6 / b_s),
        1,
        "the fitted start-up in microseconds, and the bandwidth in megabytes a second",
        f"{said['startup_us']:.4g} us and {said['mb_per_s']:.4g} MB/s",
        likely(
            (near("startup_us", a_s), "these are seconds: times 1,000,000 they are microseconds"),
            (near("startup_us", 1e3 * a_s), "these are milliseconds: a second is 1,000,000 us"),
            (
                not near("startup_us", 1e6 * a_s),
                "1e6 * found.cost.startup_s, with the fit of all sizes of your table",
            ),
            (
                any(near("mb_per_s", f * b_s) for f in (1, 1e6, 1e9)),
                "b is the time of a byte; the bandwidth is 1 / b",
            ),
            (near("mb_per_s", 1 / b_s), "these are bytes a second: an MB is 1,000,000 bytes"),
            (near("mb_per_s", 1 / (2**20 * b_s)), "an MB is 1,000,000 bytes; 2**20 are a MiB"),
            (near("mb_per_s", 8e-6 / b_s), "these are megabits: a byte has 8 bits"),
            otherwise="1e-6 / found.cost.s_per_byte",
        ),
    )
    mark.require(
        near("half_bytes", a_s / b_s),
        1,
        "the size whose bytes take as long as the start-up",
        f"{said['half_bytes']:.4g} bytes",
        likely(
            (near("half_bytes", b_s / a_s), "the other way round: a / b"),
            (
                near("half_bytes", said["startup_us"] / said["mb_per_s"]),
                "mind the units: divide seconds by seconds a byte",
            ),
            (
                near("half_bytes", said["startup_us"] * said["mb_per_s"]),
                "that is right but for rounding; take found.cost.startup_s / found.cost.s_per_byte",
            ),
            otherwise="solve a = b s for s",
        ),
    )
