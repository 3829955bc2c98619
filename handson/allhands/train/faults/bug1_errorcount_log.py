"""Where do the logs of the lab come from? From real ranks of this machine, or recorded ones.

    log = run("type", "hook")     # four ranks, a fault, an ending
    print(log.text)               # lines "[2] Traceback (most recent call last):", 2 is the rank
    log.output                    # {rank: its lines}
    recorded("device")            # a log from a machine that this one is not

The launcher keeps the ranks' lines apart and does not know in which order they came. In `Log.text`
the ranks take turns, a line each, as on a terminal when all ranks fail at once.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import allhands
from allhands import launch

JOB = "allhands.train.faults.bug1_errorcount_job"
RECORDED = Path(__file__).parent / "bug1_errorcount_logs"
PACKAGE = Path(allhands.__file__).parents[1]
NO_CARETS = {"PYTHONNODEBUGRANGES": "1"}  # tracebacks without lines of ^^^^
LAUNCHER = r"\[(\d+)\] (.*)"  # the label of the launcher, and the line behind it
OWN_NAME = r"\[\d+\] rank (\d+): (.*)"  # the name that the program gives itself counts
NOT_OWN_NAME = r"\[(\d+)\] rank \d+: (.*)"  # the label of the launcher counts


@dataclass(frozen=True)
class Log:
    """What the ranks of one job wrote.

    had_time: False if ranks were ended at the first failure; True if each ended by itself, or had
    until a delayed abort or the time limit to print an error of its own.
    """

    name: str
    ranks: int
    text: str
    had_time: bool
    wall_s: float = 0.0

    @property
    def output(self) -> dict[int, str]:
        """{rank: its lines}; a rank without a line has an empty text."""
        return dict.fromkeys(range(self.ranks), "") | by_label(self.text)


def by_label(text: str, label: str = LAUNCHER) -> dict[int, str]:
    """{rank: its lines} by a label: a pattern with two groups, the rank and the rest of the line.

    Lines without the label are left out.
    """
    found: dict[int, list[str]] = {}
    for line in text.splitlines():
        if match := re.fullmatch(label, line):
            found.setdefault(int(match[1]), []).append(match[2])
    return {rank: "\n".join(found[rank]) for rank in sorted(found)}


def labelled(output: Mapping[int, str]) -> str:
    """One text with "[rank] " before each line; the ranks take turns."""
    columns = [[f"[{rank}] {line}" for line in output[rank].splitlines()] for rank in output]
    return "\n".join(line for row in zip_longest(*columns) for line in row if line is not None)


def run(
    fault: str,
    ending: str = "plain",
    *,
    ranks: int = 4,
    spread_s: float = 0.0,
    write_s: float = 0.0,
    wait_s: float = 1.0,
    time_limit_s: float = 30.0,
) -> Log:
    """Start the job on real ranks, and return its log.

    fault: "type", "index", "ids" or "none". ending: "plain", "mpi4py", "hook" or "delayed", with
    `wait_s` before the abort. spread_s: rank r comes to its fault r times as late. write_s: each
    write to stderr takes so long. (`bug1_errorcount_job` says more.) Paths are cut short.
    """
    target, before, how = (
        ("mpi4py", ["-m", JOB], "plain") if ending == "mpi4py" else (JOB, [], ending)
    )
    arguments = [*before, "--fault", fault, "--ending", how, "--spread-s", spread_s]
    arguments += ["--write-s", write_s, "--wait-s", wait_s]
    ended = True  # did each rank end by itself?
    try:
        done = launch.mpirun(
            target, *arguments, ranks=ranks, time_limit_s=time_limit_s, env=NO_CARETS
        )
    except launch.RanksFailed as error:
        done = error.finished
        ended = all(code is not None and 0 <= code < 128 for code in done.returncodes)
        ended = ended or isinstance(error, launch.TimeUp)
    streams = ("out", "err")
    output = {r: "\n".join(filter(None, (done.text(r, s) for s in streams))) for r in range(ranks)}
    had_time = ended or ending == "delayed"
    text = labelled(output).replace(f"{PACKAGE}/", "")
    return Log(f"{fault}, {ending}", ranks, text, had_time, done.wall_s)


def recorded(name: str) -> Log:
    """One of the short logs of four ranks in bug1_errorcount_logs; its README tells the origin."""
    path = RECORDED / f"{name}.log"
    if not path.exists():
        known = ", ".join(sorted(each.stem for each in RECORDED.glob("*.log")))
        raise ValueError(f"There is no recorded log {name!r}. There are: {known}.")
    return Log(name, 4, path.read_text(encoding="utf-8").rstrip("\n"), had_time=True)


def tabulate(
    logs: Iterable[Log], count: Callable, normalise: Callable, verdict: Callable | None = None
) -> str:
    """A row for each log: how many ranks printed the error whole, cut, or not at all; the verdict.

    The three functions are the lab's (`bug1_errorcount`). Of several errors the most frequent one
    counts; a log without any has no verdict.
    """
    rows = ["log              whole  cut  silent" + ("  verdict" if verdict else "")]
    for log in logs:
        found = count(log.output, normalise)
        whole = max(map(len, found["complete"].values()), default=0)
        row = f"{log.name:16} {whole:5} {len(found['cut']):4} {len(found['silent']):7}"
        said = verdict(log.ranks, whole, log.had_time) if verdict and whole else ""
        rows.append(f"{row}  {said}".rstrip())
    return "\n".join(rows)
