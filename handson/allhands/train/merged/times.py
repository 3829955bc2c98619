"""What did a merged step do when? Its times, and the events that are made of them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from allhands.trace.events import Recorder


@dataclass(frozen=True)
class StepTimes:
    """The times of one step, in seconds of `time.perf_counter`; L gradients, G groups.

    begin_s: start of the backward pass, or the first arrival if it is not known. arrival_s (L,): of
    each gradient, in the order of the plan; an unused one arrives at `finish`. ready_s (G,): the
    group is complete on this rank. start_s, end_s (G,): it is on the link. A rank that is early
    waits for the others on the link: only the shortest time of all ranks is the link's own.
    n_bytes (G,): of each group.
    """

    begin_s: float
    arrival_s: tuple[float, ...]
    ready_s: tuple[float, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    n_bytes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        begin_s: float,
        arrival_s: Sequence[float],
        groups: Sequence[tuple[int, int]],
        spans_s: Sequence[tuple[float, float]],
        n_bytes: Sequence[int],
    ) -> "StepTimes":
        """Make times from what was stamped; spans_s: (G, 2), from the launch of a group to its end.

        On one link a group starts when it is launched and the group before is through.
        """
        starts_s, free_s = [], begin_s
        for launched_s, end_s in spans_s:
            starts_s.append(min(max(launched_s, free_s), end_s))
            free_s = max(free_s, end_s)
        return cls(
            begin_s,
            tuple(arrival_s),
            tuple(max(arrival_s[first : last + 1]) for first, last in groups),
            tuple(starts_s),
            tuple(end_s for _, end_s in spans_s),
            tuple(n_bytes),
        )


def record(times: StepTimes, groups: Sequence[tuple[int, int]], recorder: Recorder) -> None:
    """Write the `backward`, `wait` and `communicate` events of a step, as `Schedule.events` does.

    Times move from `time.perf_counter` to the recorder's clock.
    """
    shift_s = recorder.now_s() - time.perf_counter()
    done_s = times.begin_s
    for (first, last), ready_s, start_s, end_s in zip(
        groups, times.ready_s, times.start_s, times.end_s, strict=True
    ):
        spans = [("backward", done_s, max(done_s, ready_s)), ("communicate", start_s, end_s)]
        if start_s > ready_s:
            spans.insert(1, ("wait", ready_s, start_s))
        for what, from_s, to_s in spans:
            recorder.add(what, f"{first}-{last}", from_s + shift_s, to_s + shift_s)
        done_s = max(done_s, ready_s)
