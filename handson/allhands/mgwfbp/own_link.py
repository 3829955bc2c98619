"""What does your own link cost? Lab 0 measures it and keeps it; lab 4 plans with it.

    own_link.save(own_link.of(fit, ranks=2, hosts=("n1", "n2")), "runs/link.json")
    own_link.load("runs/link.json").cost        # T(s) = a + b s: what planners and simulators want

The file is JSON. Its times are those of one all-reduce, in seconds and in seconds a byte.
"""

import json
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path

from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.fit import Fit

KEPT = Path("runs") / "link.json"  # in the folder of the notebooks: lab 0 puts it there for lab 4


@dataclass(frozen=True)
class OwnLink:
    """The fitted cost of one all-reduce on a link, and where and when it was measured."""

    startup_s: float
    s_per_byte: float
    window_bytes: tuple[float, float]  # the smallest and largest size that was fitted
    worst_error: float  # of the fit, relative
    ranks: int
    hosts: tuple[str, ...]  # of each rank
    measured_at: str  # ISO 8601

    @property
    def cost(self) -> AffineCost:
        return AffineCost(self.startup_s, self.s_per_byte)

    @property
    def half_bytes(self) -> float:
        """The size whose bytes take as long as its start-up: a / b. Infinite for b = 0."""
        return self.startup_s / self.s_per_byte if self.s_per_byte else float("inf")

    def __str__(self) -> str:
        hosts = ", ".join(dict.fromkeys(self.hosts))
        return (
            f"one all-reduce of {self.ranks} ranks on {hosts}: start-up "
            f"{1e6 * self.startup_s:.1f} us, {1e9 * self.s_per_byte:.3f} ns a byte "
            f"(measured {self.measured_at}, worst point {self.worst_error:.0%} off)"
        )


def of(found: Fit, *, ranks: int, hosts: tuple[str, ...], measured_at: str = "") -> OwnLink:
    """A link from a fit; measured_at: now, if it is not given."""
    return OwnLink(
        startup_s=found.cost.startup_s,
        s_per_byte=found.cost.s_per_byte,
        window_bytes=found.window_bytes,
        worst_error=found.worst_error,
        ranks=ranks,
        hosts=hosts,
        measured_at=measured_at or datetime.now().isoformat(timespec="seconds"),
    )


def save(link: OwnLink, path: Path | str = KEPT) -> None:
    """Write the link; its folder is made. `load` gives back an equal one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(link), indent=1) + "\n", encoding="utf-8")


def load(path: Path | str = KEPT) -> OwnLink:
    """Read a link. Raises ValueError, in a sentence, if there is none, or the file is another."""
    path = Path(path)
    if not path.exists():
        raise ValueError(
            f"There is no link in {path}. Measure yours first, in lab 0, or with: "
            f"mpiexec -n 2 python -m allhands.train.measure_link --keep {path}"
        )
    names = {field.name for field in fields(OwnLink)}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        link = OwnLink(
            **content | {name: tuple(content[name]) for name in ("window_bytes", "hosts")}
        )
        link.cost  # noqa: B018  (raises for a cost that cannot be)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path} is not a kept link: expected JSON with {', '.join(sorted(names))} ({error}). "
            f"Measure again, and it is written anew."
        ) from error
    return link
