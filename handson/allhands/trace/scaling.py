"""How much faster are N ranks, and where does the rest go? Pure numbers, made from events.

A step is over when its slowest rank is done, because the next one cannot begin before. So the time
of step k runs from the end of step k-1 to its own end, on whatever rank these are. Early steps are
left out (warm-up), and medians are taken.

A rank that comes early to a collective waits in it for the last one. Nothing is transferred before
the last rank has entered, so this part of a `communicate` event is called the wait, and the rest
the transfer. The events of all ranks must be on one clock.

Conventions: seconds; samples/s of all ranks together; a share is between 0 and 1; the speed-up of n
ranks is against one rank; its efficiency is speed-up / n.
"""

import dataclasses
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands.trace.events import Event

WARM_UP = 3
COLLECTIVE = "communicate"
OWN_CORE = 0.95  # of the time a rank has the core for itself: nobody else is there
NOISE = 0.05  # how far beyond its bounds a fitted serial share may lie, and still be taken as noise


A_ROUND = ("samples_per_s", "step_s", "wait_share", "transfer_share", "core_share")


@dataclass(frozen=True)
class Measured:
    """One world of ranks, measured several times: each tuple has an entry a round.

    `batch_size` is of one rank; `mode` is `weak` (the same batch on each rank, whatever their
    number) or `strong` (the same batch in all). `wait_share` and `transfer_share` are means over
    the ranks. `core_share`: processor time / wall-clock time of the rank that got least; it is
    near 1 where each rank has a core for itself (waiting for MPI keeps the core busy too). Rounds
    of several worlds belong together: entry i of each was measured in round i.
    """

    ranks: int
    mode: str
    batch_size: int
    samples_per_s: tuple[float, ...]
    step_s: tuple[float, ...]
    wait_share: tuple[float, ...]
    transfer_share: tuple[float, ...]
    core_share: tuple[float, ...] = ()

    @property
    def median_samples_per_s(self) -> float:
        return statistics.median(self.samples_per_s)

    @property
    def median_step_s(self) -> float:
        return statistics.median(self.step_s)

    @property
    def median_wait_share(self) -> float:
        return statistics.median(self.wait_share)

    @property
    def median_transfer_share(self) -> float:
        return statistics.median(self.transfer_share)

    @property
    def median_communicate_share(self) -> float:
        """Wait and transfer together: the share of a step that a rank spends in collectives."""
        both = zip(self.wait_share, self.transfer_share, strict=True)
        return statistics.median(wait + transfer for wait, transfer in both)


def write(measured: Sequence[Measured], path: Path) -> None:
    """Write the results as JSON."""
    rows = [dataclasses.asdict(one) for one in measured]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> list[Measured]:
    """Read what `write` wrote; ValueError in a sentence when it is not that."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [Measured(**row | {name: tuple(row[name]) for name in A_ROUND}) for row in rows]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} does not hold measured worlds: {error}.") from error


def quiet_rounds(
    measured: Sequence[Measured], cores: int, least: float = OWN_CORE
) -> list[Measured]:
    """Return the same worlds with only those rounds in which no other program took their cores.

    A round is kept if the core share is at least `least` in each world of not more ranks than
    `cores`. No round may be left: then the tuples are empty.
    """
    worlds = [one.core_share for one in measured if one.ranks <= cores]
    kept = [i for i, shares in enumerate(zip(*worlds, strict=True)) if min(shares) >= least]
    return [
        dataclasses.replace(one, **{n: tuple(getattr(one, n)[i] for i in kept) for n in A_ROUND})
        for one in measured
    ]


@dataclass(frozen=True)
class SpeedUp:
    """The ratio of throughputs, each round by itself: the median, and the range over rounds."""

    ranks: int
    median: float
    lowest: float
    highest: float

    @property
    def efficiency(self) -> float:
        return self.median / self.ranks


@dataclass(frozen=True)
class Shares:
    """How the time of the steps is spent, mean over the ranks; the rest (1 - both) is computing."""

    wait: float
    transfer: float


def step_times_s(events: Iterable[Event], warm_up: int = WARM_UP) -> list[float]:
    """Return the time of each step but the first `warm_up`, from the events of all ranks.

    The time runs from one step's end (of its slowest rank) to the next one's. Raises ValueError if
    no step is left, if a rank lacks a step, or if `warm_up` is less than 1: the first step has no
    step before it.
    """
    return [end_s - start_s for start_s, end_s in _steps(list(events), warm_up).values()]


def samples_per_s(events: Iterable[Event], samples_per_step: int, warm_up: int = WARM_UP) -> float:
    """Return samples a second of all ranks: `samples_per_step` of all ranks / the median step."""
    return samples_per_step / statistics.median(step_times_s(events, warm_up))


def shares(events: Iterable[Event], warm_up: int = WARM_UP) -> Shares:
    """Return which share of the steps' time goes into waiting for ranks, and into transfers.

    Several collectives in a step are matched across ranks by their order. Errors: as of
    `step_times_s`, and ValueError if the ranks of a step have different numbers of collectives.
    """
    events = list(events)
    steps = _steps(events, warm_up)
    ranks = {event.rank for event in events}
    parts = defaultdict(float)
    for event in split_waits(events):
        if event.step in steps and event.what in ("wait", COLLECTIVE):
            parts[event.what] += event.duration_s
    whole_s = len(ranks) * sum(end_s - start_s for start_s, end_s in steps.values())
    return Shares(parts["wait"] / whole_s, parts[COLLECTIVE] / whole_s)


def split_waits(events: Iterable[Event]) -> list[Event]:
    """Cut each `communicate` event where the last rank has entered: into `wait` and `communicate`.

    Other events stay as they are; the result is sorted. The rank that came last has no wait. Where
    a rank has left the collective before the last one came (a broadcast's root may), all of its
    time is wait.
    """
    events = sorted(events)
    ranks = sorted({event.rank for event in events})
    others = [event for event in events if event.what != COLLECTIVE]
    steps: dict[int, dict[int, list[Event]]] = defaultdict(lambda: {rank: [] for rank in ranks})
    for event in events:
        if event.what == COLLECTIVE:
            steps[event.step][event.rank].append(event)
    for step, by_rank in steps.items():
        counts = {rank: len(calls) for rank, calls in by_rank.items()}
        if len(set(counts.values())) > 1:
            raise ValueError(
                f"The ranks must take part in the same collectives: in step {step} their numbers "
                f"of {COLLECTIVE!r} events are {counts}. Give the events of whole steps."
            )
        for call in zip(*by_rank.values(), strict=True):
            entered_s = max(event.start_s for event in call)
            others += [part for event in call for part in _cut(event, entered_s)]
    return sorted(others)


def _cut(event: Event, at_s: float) -> list[Event]:
    at_s = min(at_s, event.end_s)
    if at_s <= event.start_s:
        return [event]
    wait = dataclasses.replace(event, end_s=at_s, what="wait")
    return [wait] if at_s == event.end_s else [wait, dataclasses.replace(event, start_s=at_s)]


def _steps(events: list[Event], warm_up: int) -> dict[int, tuple[float, float]]:
    """{step: (end of the step before, its end)} for all steps but the first `warm_up`."""
    if warm_up < 1:
        raise ValueError(f"At least one step must be left out as warm-up; warm_up is {warm_up}.")
    ends_s: dict[int, dict[int, float]] = defaultdict(dict)
    for event in events:
        by_rank = ends_s[event.step]
        by_rank[event.rank] = max(by_rank.get(event.rank, -math.inf), event.end_s)
    ranks = {event.rank for event in events}
    for step, by_rank in sorted(ends_s.items()):
        if set(by_rank) != ranks:
            raise ValueError(
                f"Step {step} has no events of rank {min(ranks - set(by_rank))}, other steps have. "
                f"Give the events of all ranks, each with the same steps."
            )
    if len(ends_s) <= warm_up:
        raise ValueError(
            f"Expected more than {warm_up} steps (the first {warm_up} are warm-up); the events "
            f"have {len(ends_s)}. Run more steps."
        )
    ordered = [(step, max(by_rank.values())) for step, by_rank in sorted(ends_s.items())]
    pairs = zip(ordered[warm_up - 1 :], ordered[warm_up:], strict=False)
    return {step: (before_s, end_s) for (_, before_s), (step, end_s) in pairs}


def speedups(measured: Sequence[Measured]) -> list[SpeedUp]:
    """Return the speed-up of each world against the world of one rank, round by round.

    Raises ValueError if there is no world of one rank, or if the numbers of rounds differ.
    """
    base = next((one for one in measured if one.ranks == 1), None)
    if base is None:
        raise ValueError(
            f"A speed-up is against one rank; measured were {[one.ranks for one in measured]} "
            f"ranks. Measure one rank in the same run."
        )
    found = []
    for one in measured:
        if len(one.samples_per_s) != len(base.samples_per_s):
            raise ValueError(
                f"One rank was measured in {len(base.samples_per_s)} rounds and {one.ranks} ranks "
                f"in {len(one.samples_per_s)}. Measure all worlds in the same rounds."
            )
        ratios = [n / b for n, b in zip(one.samples_per_s, base.samples_per_s, strict=True)]
        found.append(SpeedUp(one.ranks, statistics.median(ratios), min(ratios), max(ratios)))
    return found


# The two laws. `serial` is s, the share that more ranks do not make faster.


@dataclass(frozen=True)
class Fit:
    """A fitted law: its serial share, and the largest |fitted - given| speed-up of the points."""

    law: str
    serial: float
    largest_error: float

    def speedup(self, ranks: float) -> float:
        return {"amdahl": amdahl, "gustafson": gustafson}[self.law](ranks, self.serial)


def amdahl(ranks: float, serial: float) -> float:
    """Speed-up of the same work on n ranks: 1 / (s + (1 - s) / n). At most 1 / s.

    s is the serial share of the time of one rank. Source: Amdahl, "Validity of the single processor
    approach to achieving large scale computing capabilities", AFIPS 1967.
    """
    return 1 / (serial + (1 - serial) / ranks)


def gustafson(ranks: float, serial: float) -> float:
    """Scaled speed-up of n times the work on n ranks: n - s (n - 1).

    s is the serial share of the time on n ranks. Source: Gustafson, "Reevaluating Amdahl's law",
    CACM 31(5), 1988.
    """
    return ranks - serial * (ranks - 1)


def fit_amdahl(ranks: Sequence[float], speedup: Sequence[float]) -> Fit:
    """Fit Amdahl's law to measured speed-ups, by least squares on 1 / speed-up.

    1/S = 1/n + s (1 - 1/n) is a line through the origin in (1 - 1/n, 1/S - 1/n), with slope s. The
    best s in [0, 1] is the slope, cut off at the bounds. Raises ValueError if there is no point
    with more than one rank, if a number is not positive, or if the slope lies more than `NOISE`
    outside: ranks that slow each other down are not described by this law.
    """
    _check_points(ranks, speedup)
    x = [1 - 1 / n for n in ranks]
    y = [1 / one - 1 / n for n, one in zip(ranks, speedup, strict=True)]
    return _fit("amdahl", x, y, ranks, speedup)


def fit_gustafson(ranks: Sequence[float], speedup: Sequence[float]) -> Fit:
    """Fit Gustafson's law to speed-ups of weak scaling, by least squares: n - S = s (n - 1).

    Bounds and errors: as of `fit_amdahl`.
    """
    _check_points(ranks, speedup)
    x = [n - 1 for n in ranks]
    y = [n - one for n, one in zip(ranks, speedup, strict=True)]
    return _fit("gustafson", x, y, ranks, speedup)


def _check_points(ranks: Sequence[float], speedup: Sequence[float]) -> None:
    points = list(zip(ranks, speedup, strict=True))
    if not all(math.isfinite(n) and math.isfinite(s) and n >= 1 and s > 0 for n, s in points):
        raise ValueError(
            f"Ranks are at least 1 and speed-ups are above 0; saw (ranks, speed-up) {points}."
        )
    if not any(n > 1 for n in ranks):
        raise ValueError(
            f"A serial share cannot be fitted without more than one rank; saw {list(ranks)}. "
            f"Measure two ranks or more."
        )


def _fit(
    law: str, x: list[float], y: list[float], ranks: Sequence[float], speedup: Sequence[float]
) -> Fit:
    slope = sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
    if not -NOISE <= slope <= 1 + NOISE:
        why = "more than one rank's speed each" if slope < 0 else "less than one rank alone"
        pairs = ", ".join(f"{one:.2f} on {n:g}" for n, one in zip(ranks, speedup, strict=True))
        raise ValueError(
            f"No serial share between 0 and 1 fits these speed-ups ({pairs}): they are {why} "
            f"(s = {slope:.2f}). Leave out worlds with more ranks than cores, or measure again."
        )
    fitted = Fit(law, min(1.0, max(0.0, slope)), 0.0)
    errors = [abs(fitted.speedup(n) - one) for n, one in zip(ranks, speedup, strict=True)]
    return dataclasses.replace(fitted, largest_error=max(errors))
