"""What can one ask of a box? How many nodes and GPUs, which link, which name.

Rates are in bit/s and delays in seconds; as text they carry a unit, as in `tc`: 1gbit, 250us.
"""

import json
import math
import re
from dataclasses import asdict, dataclass

NODES_MAX = 64
GPUS_MAX = 16
RATE_MIN_BIT_S, RATE_MAX_BIT_S = 1e5, 1e10
DELAY_MAX_S = 1.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,23}")  # it is part of the paths of Unix sockets
NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)\s*([a-z]*)", re.IGNORECASE)
RATE_UNITS = {"": 1.0, "bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
DELAY_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
KEEP = b"keep\n"  # what `up` says to the box's keeper once the box is up: do not end with me


class BoxError(ValueError):
    """What was asked of a box cannot be done; the text says why, and what to do."""


@dataclass(frozen=True)
class Asked:
    """A box as it was asked for. rate_bit_s, delay_s: of the link net0; both None: no such link."""

    name: str
    nodes: int
    gpus: int
    rate_bit_s: float | None = None
    delay_s: float | None = None

    @property
    def shaped(self) -> bool:
        return self.rate_bit_s is not None or self.delay_s is not None

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "Asked":
        return Asked(**json.loads(text))


def check_name(name: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BoxError(
            f"A box's name is up to 24 letters, digits, '-' and '_', and begins with a letter or "
            f"a digit; saw {name!r}. Try --name my-box."
        )
    return name


def ask(
    name: str,
    nodes: int,
    gpus: int,
    rate: str | float | None = None,
    delay: str | float | None = None,
) -> Asked:
    """Check what is asked for. Raises BoxError."""
    check_name(name)
    _whole("nodes", nodes, 1, NODES_MAX)
    _whole("GPUs a node", gpus, 0, GPUS_MAX)
    rate_bit_s = None if rate is None else _number("rate", rate, RATE_UNITS, "100mbit or 1gbit")
    delay_s = None if delay is None else _number("delay", delay, DELAY_UNITS, "250us or 0.5ms")
    if rate_bit_s is not None and not RATE_MIN_BIT_S <= rate_bit_s <= RATE_MAX_BIT_S:
        raise BoxError(
            f"The link's rate was asked to be {rate} ({rate_bit_s:g} bit/s). This switch is a "
            f"program: it can do 100kbit to 10gbit, and keeps to the rate up to about 1gbit."
        )
    if delay_s is not None and delay_s > DELAY_MAX_S:
        raise BoxError(
            f"The link's delay was asked to be {delay} ({delay_s:g} s). Give at most "
            f"{DELAY_MAX_S:g} s, such as --delay 250us."
        )
    return Asked(name, nodes, gpus, rate_bit_s, delay_s)


def _whole(what: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BoxError(
            f"A box was asked to have {value!r} {what}. Give a whole number from {low} to {high}."
        )


def _number(what: str, value: str | float, units: dict[str, float], like: str) -> float:
    found = NUMBER.fullmatch(str(value).strip()) if isinstance(value, str) else None
    if found and found[2].lower() in units:
        return float(found[1]) * units[found[2].lower()]
    if isinstance(value, int | float) and math.isfinite(value) and value >= 0:
        return float(value)
    raise BoxError(
        f"The link's {what} {value!r} was not understood. Write a number and a unit "
        f"({', '.join(filter(None, units))}), such as {like}."
    )
