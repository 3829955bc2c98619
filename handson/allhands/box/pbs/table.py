"""The tables of qstat: its own short one, and the alternate one of -a, -u, -n, -s, -i, -r and -H.

Columns and widths are those of OpenPBS 23. What Slurm does not know (a session's number, the memory
that was asked for) is `--`, as in a job of PBS that has none.
"""

import re
from collections.abc import Iterator, Sequence

from allhands.box.pbs.spool import SERVER
from allhands.box.pbs.words import clock

SHORT_HEAD = f"""\
{"Job id":<17} {"Name":<16} {"User":<16}  {"Time Use":>8} S Queue
{"-" * 16}  {"-" * 16} {"-" * 16}  {"-" * 8} - -----"""
# Widths: job, user, queue, name, session, chunks, cores; wide ones with -w.
NARROW, WIDE = (15, 8, 8, 10, 6, 3, 3), (30, 15, 15, 15, 8, 4, 5)
TITLES = ("Job ID", "Username", "Queue", "Jobname", "SessID", "NDS", "TSK")


def short_line(seen) -> str:
    used = seen.slurm.get("RunTime", "0") if seen.state in "REF" else "0"
    return (
        f"{seen.job!s:<17} {seen.note['name'][:16]:<16} {user(seen)[:16]:<16}  {used:>8} "
        f"{seen.state} {seen.note['queue']}"
    )


def alternate_head(wide: bool) -> str:
    widths = WIDE if wide else NARROW
    left = " ".join(f"{title:<{width}}" for title, width in zip(TITLES, widths, strict=True))
    rule = " ".join("-" * width for width in widths)
    return (
        f"\n{SERVER}: \n{'':<{len(left)}} Req'd  Req'd   Elap\n"
        f"{left} Memory Time  S Time\n{rule} ------ ----- - -----"
    )


def alternate_lines(seen, *, wide: bool, hosts: bool, why: bool, one_line: bool) -> Iterator[str]:
    """hosts: -n; why: -s; one_line: -1."""
    parts = seen.note["parts"]
    limit_s, used = seen.note["walltime_s"], seen.slurm.get("RunTime", "")
    cells = (
        str(seen.job),
        user(seen),
        seen.note["queue"],
        seen.note["name"],
        "--",
        str(sum(part["count"] for part in parts)),
        str(sum(part["count"] * part["ncpus"] for part in parts)),
    )
    row = []
    for number, (cell, width) in enumerate(zip(cells, WIDE if wide else NARROW, strict=True)):
        cell = cell if len(cell) <= width else cell[: width - 1] + "*"
        row.append(f"{cell:<{width}}" if number < 4 else f"{cell:>{width}}")
    limit = "--" if limit_s is None else clock(limit_s)[:-3]
    elapsed = hours_minutes(used) if seen.state in "REF" and used else "--"
    line = f"{' '.join(row)} {'--':>6} {limit:>5} {seen.state} {elapsed:>5}"
    more = [exec_host(seen) or "--"] if hosts else []
    more += [seen.comment] if why and seen.comment else []
    if one_line:
        yield "   ".join([line, *more])
    else:
        yield line
        yield from (f"   {each}" for each in more)


def hours_minutes(slurm_time: str) -> str:
    """Slurm's "1-02:03:04" as "26:03"."""
    days, _, rest = slurm_time.rpartition("-")
    hours, minutes, _ = rest.split(":")
    return f"{int(days or 0) * 24 + int(hours):02}:{minutes}"


def user(seen) -> str:
    return seen.note["owner"].partition("@")[0]


def exec_host(seen) -> str:
    """Chunk by chunk: "n1/0*4+n2/0*4". "" while the job has no hosts."""
    hosts = host_names(seen.slurm.get("NodeList", ""))
    cores = [part["ncpus"] for part in seen.note["parts"] for _ in range(part["count"])]
    on_a_host = -(-len(cores) // len(hosts)) if hosts else 1
    found = []
    for number, n in enumerate(cores if hosts else ()):
        times = f"*{n}" if n > 1 else ""
        found.append(f"{hosts[number // on_a_host]}/{number % on_a_host}{times}")
    return "+".join(found)


def host_names(text: str) -> Sequence[str]:
    """Slurm's "n[1-3,7],ctl" as ["n1", "n2", "n3", "n7", "ctl"]; [] of "(null)"."""
    found = []
    for name, numbers in re.findall(r"([\w.\-]+)(?:\[([\d,\-]+)\])?", text.replace("(null)", "")):
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            if not first:
                found.append(name)
            else:
                width = len(first)
                found += [f"{name}{n:0{width}}" for n in range(int(first), int(last or first) + 1)]
    return found
