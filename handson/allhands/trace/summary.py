"""Numbers from what a run wrote: where its time went, and how its loss fell.

Conventions: seconds; a share is between 0 and 1; a metrics file has a line for each update (`loss`)
and one for each evaluation (`valid_...`).
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from allhands.trace.events import Event

STEP_PARTS = ("batch", "forward", "backward", "update")


@dataclass(frozen=True)
class Spent:
    """Time spent on one kind of work: `label` is `what`, or `what` and `name`."""

    label: str
    total_s: float
    share: float
    count: int


def time_by(events: Iterable[Event], *, named: bool = False) -> list[Spent]:
    """Add up the events' durations by kind of work, the longest first.

    With `named`, kinds are told apart by name too (`forward LinearFunction`). Events that lie
    inside others count twice: give events of one level. Shares are of the sum over all given
    events.
    """
    durations_s: dict[str, list[float]] = defaultdict(list)
    for event in events:
        label = f"{event.what} {event.name}".strip() if named else event.what
        durations_s[label].append(event.duration_s)
    whole_s = sum(map(sum, durations_s.values())) or 1.0
    spent = [
        Spent(label, sum(times_s), sum(times_s) / whole_s, len(times_s))
        for label, times_s in durations_s.items()
    ]
    return sorted(spent, key=lambda one: (-one.total_s, one.label))


def step_times_s(events: Iterable[Event]) -> list[float]:
    """Return the duration of each training step, in order: the sum of its parts in `STEP_PARTS`."""
    steps_s: dict[int, float] = defaultdict(float)
    for event in events:
        if event.what in STEP_PARTS:
            steps_s[event.step] += event.duration_s
    return [steps_s[step] for step in sorted(steps_s)]


def median_step_s(events: Iterable[Event], *, warm_up: int = 3) -> float:
    """Return the median duration of a training step, the first `warm_up` steps left out.

    Raises ValueError if no step is left.
    """
    times_s = step_times_s(events)[warm_up:]
    if not times_s:
        raise ValueError(f"Expected more than {warm_up} training steps in the events.")
    return statistics.median(times_s)


@dataclass(frozen=True)
class Metrics:
    """The lines of a metrics file: `updates` and `evaluations`, each in order."""

    updates: list[dict]
    evaluations: list[dict]

    @property
    def losses(self) -> list[float]:
        return [line["loss"] for line in self.updates]


def read_metrics(folder: Path) -> Metrics:
    """Read `metrics.jsonl` of a run folder; errors as of `read_metrics_lines`."""
    lines = read_metrics_lines(Path(folder) / "metrics.jsonl")
    return Metrics(
        updates=[line for line in lines if "loss" in line],
        evaluations=[line for line in lines if "valid_loss" in line],
    )


def read_metrics_lines(path: Path) -> list[dict]:
    """Read every line of a metrics file: numbers by name, `update` among them.

    A last line cut short by a killed run is left out. Raises ValueError, with file and line, for
    any other line that is not such a dict, and for a file that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read: {error.strerror}. Give the folder of a run, as `allhands "
            f"train` names it in its first line."
        ) from error
    found = []
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        if not _is_metrics(values):
            raise ValueError(
                f"{path}:{number} is not a line of metrics: {line.strip()[:40]!r}. Expected "
                f"numbers by name, `update` among them. Remove or mend that line."
            )
        found.append(values)
    return found


def _is_metrics(values: object) -> bool:
    return (
        isinstance(values, dict)
        and isinstance(values.get("update"), int)
        and all(isinstance(value, int | float) for value in values.values())
    )
