"""What happened when, on which rank: the one format that runs write and everything else reads.

A trainer records events; the simulator of lab 4 invents them; `draw.gantt` draws either. So
predicted against measured is two calls of one function.

Conventions: times are seconds on the run's own clock, which starts at 0. A span has start_s <=
end_s; a point in time has both equal. Files are JSON lines, one event a line, one file a rank.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True, order=True)
class Event:
    """One span of one rank's time.

    `what` is the kind of work (`batch`, `forward`, `backward`, `wait`, `communicate`, `update`,
    `evaluate`, `snapshot`, ...); `name` says which layer or which group of gradients, or is empty.
    """

    start_s: float
    end_s: float
    rank: int
    what: str
    name: str = ""
    step: int = 0

    def __post_init__(self) -> None:
        if not self.end_s >= self.start_s:
            raise ValueError(
                f"An event must not end before it starts: {self.what!r} starts at {self.start_s} s "
                f"and ends at {self.end_s} s. Give start_s <= end_s."
            )

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


class Recorder:
    """Collects events of one rank; the clock is an argument, so that tests can turn it by hand.

    With `path`, events are appended to that file by `flush` (JSON lines) and leave the memory. A
    resumed run gives `start_s`, the time at which the run was left, so that its clock goes on from
    there.
    """

    def __init__(
        self,
        rank: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        path: Path | None = None,
        start_s: float = 0.0,
    ) -> None:
        self.rank = rank
        self.path = path
        self.step = 0
        self.events: list[Event] = []
        self._clock = clock
        self._zero_s = clock() - start_s

    def now_s(self) -> float:
        return self._clock() - self._zero_s

    @contextmanager
    def span(self, what: str, name: str = "") -> Iterator[None]:
        """Record the time that the `with` block takes, also when it raises."""
        start_s = self.now_s()
        try:
            yield
        finally:
            self.add(what, name, start_s, self.now_s())

    def add(self, what: str, name: str, start_s: float, end_s: float) -> None:
        self.events.append(Event(start_s, end_s, self.rank, what, name, self.step))

    def flush(self) -> None:
        """Append what was recorded since the last flush to the file."""
        if self.path is not None and self.events:
            write_events(self.path, self.events, append=True)
            self.events.clear()


def write_events(path: Path, events: Iterable[Event], *, append: bool = False) -> None:
    """Write events to `path` as JSON lines."""
    with open(path, "a" if append else "w", encoding="utf-8") as file:
        for event in events:
            file.write(json.dumps(asdict(event)) + "\n")


def read_events(path: Path) -> list[Event]:
    """Read the events of one rank. A last line cut short by a killed run is left out.

    Raises ValueError, with file and line, for any other line that is not an event.
    """
    names = {field.name for field in fields(Event)}
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
            if not isinstance(values, dict) or not set(values) <= names:
                raise ValueError(f"it has not the keys {sorted(names)}")
            if not isinstance(values.get("step", 0), int):
                raise ValueError(f"its step is {values['step']!r}, not a whole number")
            events.append(Event(**values))
        except (ValueError, TypeError) as error:
            if number == len(lines) and not line.endswith("\n"):
                break
            raise ValueError(f"{path}:{number} is not an event: {error}.") from error
    return events
