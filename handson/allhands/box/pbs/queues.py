"""What do `qstat -Q` and `qstat -Q -f` of the PBS stand-in say of the queues?"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from allhands.box.pbs.spool import Spool, fields
from allhands.box.pbs.words import UNKNOWN_QUEUE, PbsError, clock

QUEUE_COLUMNS = {  # and their widths
    **{"Max": 5, "Tot": 5, "Ena": 3, "Str": 3, "Que": 5},
    **{"Run": 5, "Hld": 5, "Wat": 5, "Trn": 5, "Ext": 5},
}


def show(spool: Spool, names: Sequence[str], *, full: bool) -> int:
    """qstat -Q: a line a queue, or with -f its attributes."""
    known = partitions(spool)
    names = [name.partition("@")[0] for name in names]
    for name in names:
        if name not in known:
            raise PbsError(f"qstat: Unknown queue {name}", UNKNOWN_QUEUE)
    jobs = spool.slurm("squeue", "--noheader", "--format=%P %T").stdout.splitlines()
    if not full:
        print(queue_line("Queue", QUEUE_COLUMNS, "Type"))
        print(queue_line("-" * 16, ["-" * width for width in QUEUE_COLUMNS.values()], "----"))
    for name in names or known:
        total = sum(line.split()[0] == name for line in jobs)
        runs = jobs.count(f"{name} RUNNING")
        if full:
            print("\n".join(queue_attributes(name, known[name], total)) + "\n")
        else:
            counts = (0, total, "yes", "yes", total - runs, runs, 0, 0, 0, 0)
            print(queue_line(name, counts, "Exec"))
    return 0


def partitions(spool: Spool) -> dict[str, dict[str, str]]:
    """Slurm's attributes of each queue."""
    lines = spool.slurm("scontrol", "--oneliner", "show", "partition").stdout.splitlines()
    return {queue["PartitionName"]: queue for queue in map(fields, lines)}


def queue_line(name: str, cells: Iterable[object], kind: str) -> str:
    widths = QUEUE_COLUMNS.values()
    row = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
    return f"{name[:16]:<16} {' '.join(row)} {kind}"


def queue_attributes(name: str, queue: Mapping[str, str], total: int) -> Iterator[str]:
    yield f"Queue: {name}"
    yield "    queue_type = Execution"
    yield f"    total_jobs = {total}"
    if limit := re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", queue.get("MaxTime", "")):
        days, hours, minutes, seconds = (int(part or 0) for part in limit.groups())
        longest_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        yield f"    resources_max.walltime = {clock(longest_s)}"
    yield f"    resources_max.nodect = {queue['TotalNodes']}"
    yield "    enabled = True"
    yield "    started = True"
