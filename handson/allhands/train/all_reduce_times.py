"""Does an all-reduce take the time that theory says?

Theory knows a wire: what one message between two ranks costs (latency and time a byte), and what
adding costs (mgwfbp/theory.py). `measure_wire` measures that with ranks 0 and 1 alone. `Measured`
holds it beside the times of whole all-reduces on all ranks, fits T(s) = a + b s to each, and says
what theory makes of the wire.

Theory knows nothing of cores: it lets all ranks work at once. Four ranks on two cores take turns,
and a message waits until its receiver has its turn. So the comparison is fair only where each rank
has a core; `Measured.n_cores` says so.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from allhands.mgwfbp import theory
from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.table import read_table, write_table
from allhands.trace import draw
from allhands.train.waiting import nap_until_all_are_here

WARM_UP = 3
IDLE_S = 1e-3


def gather_broadcast_cost(n_ranks: int, wire: theory.Wire) -> AffineCost:
    """Everything through rank 0, one message after the other: 2(N-1) steps of all bytes; any N."""
    steps = n_ranks - 1
    per_byte = steps * (2 * wire.s_per_byte + wire.reduce_s_per_byte)
    return AffineCost(2 * steps * wire.latency_s, per_byte)


THEORY: dict[str, theory.Algorithm] = {
    "gather-broadcast": gather_broadcast_cost,
    "ring": theory.ring,
    "recursive doubling": theory.recursive_doubling,
}


@dataclass(frozen=True)
class Measured:
    """Times of all-reduces on `n_ranks` ranks; times_s: {name: (n_sizes,)}, in seconds."""

    n_ranks: int
    n_cores: int
    sizes_bytes: tuple[int, ...]
    times_s: dict[str, tuple[float, ...]]
    message_s: tuple[float, ...]  # one message between two ranks, by size
    reduce_s_per_byte: float
    machine: str = ""
    finished_at: str = ""

    @property
    def wire(self) -> theory.Wire:
        """The wire between two ranks, as theory wants it."""
        cost = fit(self.sizes_bytes, self.message_s).cost
        return theory.Wire(cost.startup_s, cost.s_per_byte, self.reduce_s_per_byte)

    def predicted(self, name: str) -> AffineCost:
        """What theory says for the algorithm `name` of THEORY, from the wire."""
        return THEORY[name](self.n_ranks, self.wire)

    def save(self, folder: Path) -> None:
        """Write a CSV for each algorithm, message.csv for the wire, and world.json for the rest."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, times_s in {**self.times_s, "message": self.message_s}.items():
            write_table(folder / f"{_slug(name)}.csv", self.sizes_bytes, times_s)
        tables = ("sizes_bytes", "times_s", "message_s")
        rest = {key: value for key, value in asdict(self).items() if key not in tables}
        rest["algorithms"] = list(self.times_s)
        (folder / "world.json").write_text(json.dumps(rest, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Measured":
        """Read what `save` wrote. Raises ValueError if nothing was measured there."""
        if not (folder / "world.json").exists():
            raise ValueError(
                f"There is no world.json in {folder}: measure first, with "
                f"mpiexec -n 2 python -m allhands.train.all_reduce --out {folder}"
            )
        rest = json.loads((folder / "world.json").read_text(encoding="utf-8"))
        tables = {
            name: read_table(folder / f"{_slug(name)}.csv")
            for name in ("message", *rest.pop("algorithms"))
        }
        sizes, message_s = tables.pop("message")
        times_s = {name: tuple(times.tolist()) for name, (_, times) in tables.items()}
        return cls(
            sizes_bytes=tuple(map(int, sizes)),
            times_s=times_s,
            message_s=tuple(message_s.tolist()),
            **rest,
        )

    def figure(self) -> draw.Picture:
        """Time against size, both logarithmic: a line an algorithm, dashed what theory says."""
        lines = {name: [1e3 * t for t in times_s] for name, times_s in self.times_s.items()}
        title = f"all-reduce on {self.n_ranks} ranks, {self.n_cores} cores"
        picture = draw.curves(
            self.sizes_bytes, lines, title, x="size (bytes)", y="time (ms)", markers=True
        )
        (axes,) = picture.axes
        axes.set_yscale("log")
        axes.autoscale(axis="y")  # again: the limits were those of a linear axis
        axes.legend(frameon=False, loc="upper left")
        wire_fits = _cost(self.sizes_bytes, self.message_s) is not None
        for line, name in zip(list(axes.lines), lines, strict=True):
            if name in THEORY and wire_fits:
                theirs_ms = 1e3 * self.predicted(name)(np.array(self.sizes_bytes))
                axes.plot(self.sizes_bytes, theirs_ms, "--", color=line.get_color(), lw=1)
        axes.text(
            0.99, 0.03, "dashed: theory, from the wire between two ranks",
            ha="right", transform=axes.transAxes, size=8, color="0.35",
        )  # fmt: skip
        return picture

    def __str__(self) -> str:
        try:
            wire = self.wire
            head = (
                f"wire, measured with 2 ranks: {1e6 * wire.latency_s:.2f} us a message, "
                f"{1e9 * wire.s_per_byte:.3f} ns a byte; adding {1e9 * wire.reduce_s_per_byte:.3f} "
                "ns a byte"
            )
        except ValueError as error:  # a busy machine: the tables are kept, and the reader is told
            wire, head = None, f"no straight line fits the wire. {error}"
        rows = [
            f"{self.n_ranks} ranks on {self.n_cores} cores; {head}",
            f"{'':20}{'start-up (us)':>22}{'ns a byte':>22}",
            f"{'':20}{'measured':>12}{'theory':>10}{'measured':>12}{'theory':>10}",
        ]
        for name, times_s in self.times_s.items():
            theirs = self.predicted(name) if wire and name in THEORY else None
            rows.append(_row(name, _cost(self.sizes_bytes, times_s), theirs))
        if self.n_ranks > self.n_cores:
            rows.append("More ranks than cores: they take turns, which theory knows nothing of.")
        return "\n".join(rows)


def _cost(sizes_bytes: Sequence[int], times_s: Sequence[float]) -> AffineCost | None:
    try:
        return fit(sizes_bytes, times_s).cost
    except ValueError:
        return None


def _row(name: str, ours: AffineCost | None, theirs: AffineCost | None) -> str:
    """A line of the table; "-" where no straight line fits, or theory has nothing to say."""
    startups = [f"{1e6 * cost.startup_s:.1f}" if cost else "-" for cost in (ours, theirs)]
    slopes = [f"{1e9 * cost.s_per_byte:.3f}" if cost else "-" for cost in (ours, theirs)]
    return "{:20}{:>12}{:>10}{:>12}{:>10}".format(name, *startups, *slopes)


def measure_wire(comm, sizes_bytes: Sequence[int], repeats: int = 15) -> tuple[list[float], float]:
    """Return the median time of one message at each size, and the time to add one byte (FP32).

    All ranks of the mpi4py communicator `comm` (2 or more) call it, and get the same answer. Ranks
    0 and 1 play ping-pong; a message is half of a round trip. The others sleep, and leave the cores
    to them.
    """
    if comm.size < 2:
        raise ValueError("One rank has nobody to send to: start 2 or more (mpiexec -n 2).")
    times_s = np.zeros((len(sizes_bytes), repeats))
    if comm.rank < 2:
        for s, size in enumerate(sizes_bytes):
            ball = np.ones(size // 4, np.float32)
            for i in range(-WARM_UP, repeats):
                start_s = time.perf_counter()
                if comm.rank == 0:
                    comm.Send(ball, dest=1)
                    comm.Recv(ball, source=1)
                else:
                    comm.Recv(ball, source=0)
                    comm.Send(ball, dest=0)
                times_s[s, max(i, 0)] = (time.perf_counter() - start_s) / 2
    medians_s = np.median(times_s, axis=1)
    reduce_s_per_byte = np.array(_time_of_adding(max(sizes_bytes)))
    nap_until_all_are_here(comm, IDLE_S)
    comm.Bcast(medians_s, root=0)
    comm.Bcast(reduce_s_per_byte, root=0)
    return medians_s.tolist(), float(reduce_s_per_byte)


def _time_of_adding(n_bytes: int, repeats: int = 9) -> float:
    a, b = np.ones((2, n_bytes // 4), np.float32)
    times_s = []
    for _ in range(repeats):
        start_s = time.perf_counter()
        a + b
        times_s.append(time.perf_counter() - start_s)
    return float(np.median(times_s)) / n_bytes


def n_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _slug(name: str) -> str:
    return name.replace("'", "").replace(" ", "_").replace("-", "_").lower()
