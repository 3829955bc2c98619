"""What does the folder of a run say about its speed? Figures only; `run_findings.py` judges.

Read are config.json, metrics.jsonl, events.rank*.jsonl and facts.rank*.json, and where there is one
cpu.rank*.jsonl: the events on the clock of each rank's CPU seconds, on which other programs of the
machine do not show. Conventions: seconds; a tuple has an entry a rank, rank 0 first.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from allhands import config as configs
from allhands.config import TrainConfig
from allhands.trace import critical_path, facts
from allhands.trace.events import Event, read_events
from allhands.trace.facts import Facts
from allhands.trace.summary import read_metrics_lines

STEP = ("batch", "forward", "backward", "update")
BESIDE = ("evaluate", "snapshot")  # what is done between steps, and belongs to none


@dataclass(frozen=True)
class RunFigures:
    """One run. `facts` is empty for a run that wrote none; the rest is always there.

    n_steps, n_epochs: done so far. times_s: of each training step, exchange of gradients and all:
    on the slowest rank, without evaluation. on_cpu: these are CPU seconds (and a quiet exchange)
    and not the clock on the wall. core_share: CPU / wall-clock seconds of rank 0 in a finished run;
    None if that is not known. transfer_s: a quiet exchange. spent_s: by kind of work, a tuple.
    config: as it was saved.
    """

    folder: Path
    ranks: int
    batch_size: int
    n_steps: int
    n_epochs: float
    facts: tuple[Facts, ...]
    times_s: tuple[float, ...]
    transfer_s: float
    spent_s: dict[str, tuple[float, ...]]
    on_cpu: bool
    core_share: float | None = None
    config: TrainConfig | None = None

    @property
    def step_s(self) -> float:
        """The median of the steps, the first three left out if there are more."""
        return statistics.median(self.times_s[3:] or self.times_s)

    @property
    def steps_per_epoch(self) -> float:
        return self.n_steps / self.n_epochs

    @property
    def samples_per_step(self) -> int:
        """Of all ranks together."""
        return self.ranks * self.batch_size

    @property
    def epoch_s(self) -> float:
        """Its steps and its share of the evaluations; no first step, no snapshots."""
        return self.steps_per_epoch * (self.step_s + self.evaluate_s / self.n_steps)

    @property
    def evaluate_s(self) -> float:
        """All evaluations, on the rank that takes longest."""
        return max(self.spent_s.get("evaluate", (0.0,)))

    def share(self, what: str) -> float:
        """Of the time of a rank that `what` takes, on the rank where it takes most."""
        own = [kind for kind in self.spent_s if kind != critical_path.COLLECTIVE or not self.on_cpu]
        whole_s = [sum(self.spent_s[kind][rank] for kind in own) for rank in range(self.ranks)]
        parts_s = self.spent_s.get(what, (0.0,) * self.ranks)
        return max(p / w if w else 0.0 for p, w in zip(parts_s, whole_s, strict=True))


def read(folder: Path) -> RunFigures:
    """Read a run's folder. Raises ValueError, in a sentence, if it holds no run that has begun."""
    try:
        return _read(Path(folder))
    except RecursionError as error:
        raise ValueError(
            f"{folder} holds JSON that is nested too deep to be that of a run."
        ) from error


def _read(folder: Path) -> RunFigures:
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} is not the folder of a run: it has no config.json. Give the folder that "
            f"`allhands train` names in its first line."
        )
    config = configs.load(folder / "config.json")
    ranks = max(1, int(config.ranks))
    wall = _events(folder, "events")
    if len({event.rank for event in wall}) < ranks or not any(e.what == "forward" for e in wall):
        raise ValueError(
            f"{folder} has events of {len({event.rank for event in wall})} of {ranks} ranks, or "
            f"no step yet: expected events.rank0.jsonl to events.rank{ranks - 1}.jsonl. They are "
            f"written when a run saves or ends."
        )
    if others := {event.rank for event in wall} - set(range(ranks)):
        raise ValueError(
            f"{folder} has events of rank {max(others)}, but its config.json says ranks={ranks}: "
            f"two runs have left their files there. Start the run again, into a new folder."
        )
    cpu = _events(folder, "cpu")
    known = tuple(facts.read(folder))
    lines = read_metrics_lines(folder / "metrics.jsonl")
    updates = [line for line in lines if line.get("epoch", 0) > 0 and line["update"] > 0]
    if not updates:
        raise ValueError(f"{folder}/metrics.jsonl has no step yet. Let the run make some.")
    transfer_s = critical_path.transfer_s(wall) if ranks > 1 else 0.0
    spent_s: dict[str, list[float]] = defaultdict(lambda: [0.0] * ranks)
    for event in cpu or wall:
        if event.rank < ranks:
            spent_s[event.what][event.rank] += event.duration_s
    figures = RunFigures(
        folder=folder,
        ranks=ranks,
        batch_size=known[0].batch_size if known else config.batch_size,
        n_steps=updates[-1]["update"],
        n_epochs=updates[-1]["epoch"],
        facts=known if len(known) == ranks else (),
        times_s=tuple(_times_s(cpu or wall, bool(cpu), transfer_s)),
        transfer_s=transfer_s,
        spent_s={what: tuple(times_s) for what, times_s in spent_s.items()},
        on_cpu=bool(cpu),
        core_share=_core_share(folder / "result.json"),
        config=config,
    )
    if not figures.step_s > 0:
        raise ValueError(
            f"{folder} has steps that take no time: its events are not those of a run."
        )
    return figures


def _core_share(path: Path) -> float | None:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        return float(result["cpu_s"]) / float(result["wall_s"])
    except (OSError, ValueError, TypeError, KeyError, ZeroDivisionError):
        return None  # not finished, or by another program


def _events(folder: Path, kind: str) -> list[Event]:
    found = []
    for path in sorted(folder.glob(f"{kind}.rank*.jsonl")):
        events = read_events(path)
        for event in events:
            numbers = event.start_s, event.end_s
            if (
                type(event.rank) is not int
                or not isinstance(event.what, str)
                or not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)
            ):
                raise ValueError(f"{path} is not the events of a run: it holds {event}.")
        found += events
    return found


def _times_s(events: Sequence[Event], on_cpu: bool, transfer_s: float) -> list[float]:
    by_step: dict[int, list[Event]] = defaultdict(list)
    steps = {event.step for event in events if event.what == "forward"}
    for event in events:
        if event.step in steps and event.what not in BESIDE:
            by_step[event.step].append(event)
    if on_cpu:
        return [critical_path.critical_path_s(by_step[n], transfer_s) for n in sorted(steps)]
    times_s = []
    for step in sorted(steps):
        spent_s: dict[int, float] = defaultdict(float)
        for event in by_step[step]:
            spent_s[event.rank] += event.duration_s
        times_s.append(max(spent_s.values()))
    return times_s
