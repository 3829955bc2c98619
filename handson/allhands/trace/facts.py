"""What does a rank know that its events do not say? Threads, cores, and its share of the samples.

A run writes a file a rank, `facts.rank0.json`, `facts.rank1.json`, ..., beside its events. The
doctor reads them (`allhands doctor --run`).
"""

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Facts:
    """One rank of a run. None: not known.

    host: the name of its machine; cores: those that the rank may use there; threads: how many it
    computes with. batch_size: samples of this rank in a step. n_samples: of the whole training set;
    n_mine: those that this rank trains on in an epoch. n_held_out: of the whole evaluation;
    n_held_out_mine: those that this rank evaluates. n_read: samples that this rank has read in the
    run. n_switches: how often the system took the core away from it. cpus: the numbers of the cores
    that the rank may use; on one host, other ranks may be bound to others.
    """

    rank: int
    ranks: int
    host: str
    cores: int
    threads: int
    batch_size: int
    n_samples: int
    n_mine: int
    n_held_out: int
    n_held_out_mine: int
    n_read: int | None = None
    n_switches: int | None = None
    cpus: tuple[int, ...] | None = None


def threads_of(environ: Mapping[str, str], cores: int) -> int:
    """How many threads NumPy, PyTorch and their like take: what `environ` says, else all cores."""
    said = [environ[name].strip() for name in THREADS if environ.get(name, "").strip().isdigit()]
    return max(1, int(said[0])) if said else cores


def write(folder: Path, facts: Facts) -> Path:
    """Write a rank's facts into the folder of its run; return the file."""
    path = Path(folder) / f"facts.rank{facts.rank}.json"
    path.write_text(json.dumps(asdict(facts), indent=2) + "\n", encoding="utf-8")
    return path


def here(cores: int, environ: Mapping[str, str] = os.environ) -> dict[str, object]:
    """Return `host`, `cores`, `threads` and `cpus` of this process, as fields of `Facts`.

    cores: those that it may use (`allhands.doctor.machine.Machine().cores()`).
    """
    cpus = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else None
    threads = threads_of(environ, cores)
    return {"host": platform.node(), "cores": cores, "threads": threads, "cpus": cpus}


def read(folder: Path) -> Sequence[Facts]:
    """Return the facts of all ranks, rank 0 first; empty if the run wrote none.

    Raises ValueError, with the file's name, for a file that holds something else.
    """
    paths = [
        p for p in Path(folder).glob("facts.rank*.json") if re.search(r"rank\d+\.json$", p.name)
    ]
    found = []
    for path in paths:
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            known = {field.name for field in fields(Facts)}
            found.append(_of_a_rank({name: values[name] for name in known & set(values)}))
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{path} does not hold the facts of a rank: {error}.") from error
    return sorted(found, key=lambda one: one.rank)


def _of_a_rank(values: Mapping[str, object]) -> Facts:
    """The facts, if each is of its kind: numbers of things are whole, and not negative."""
    one = Facts(**values)
    if not (isinstance(one.host, str) and one.host.isprintable()):
        raise ValueError(f"host is {one.host!r}, not the name of a machine")
    if one.cpus is not None:
        if not (isinstance(one.cpus, list) and all(map(_is_count, one.cpus))):
            raise ValueError(f"cpus is {one.cpus!r}, not a list of whole numbers")
        one = replace(one, cpus=tuple(one.cpus))
    for field in fields(Facts):
        value = getattr(one, field.name)
        if field.name in ("host", "cpus") or (value is None and field.default is None):
            continue
        if not _is_count(value):
            raise ValueError(f"{field.name} is {value!r}, not a whole number from 0 on")
    return one


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
