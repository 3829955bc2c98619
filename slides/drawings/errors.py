"""The figures of the talk on reading the errors of N ranks."""

from pathlib import Path

from allhands import triage
from allhands.trace import draw
from allhands.trace.talks import failures
from allhands.triage import labels

LOGS = Path(__file__).resolve().parents[2] / "tests/unit/triage_logs"
FIRST, LOST, LAUNCHER, WORK = "the rank that failed", "ranks that lost it", "the launcher", "work"


def errors_log_map() -> draw.Picture:
    """What torchrun and three ranks printed when rank 1 raised: who wrote each line."""
    path = LOGS / "real_torchrun_one.log"
    roots = triage.triage([path]).as_dict()["root_ranks"]
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        if label := labels.TORCH.match(text):
            kind = FIRST if int(label["rank"]) in roots else LOST
        else:
            kind = WORK if labels.OWN_WORDS.match(text) else LAUNCHER
        lines.append((kind, text))
    others = {LOST: draw.COLOURS["evaluate"], LAUNCHER: "0.7", WORK: draw.COLOURS["forward"]}
    return failures.log_map(lines, {FIRST: draw.OTHERS[1], **others}, rows=23)


def errors_one_rank_raises() -> draw.Picture:
    """One rank raises: the others wait, or complain."""
    return failures.one_rank_raises()


def errors_who_says_it() -> draw.Picture:
    """Which ranks print the error, and what that says."""
    return failures.who_says_it(
        (
            (range(8), "All ranks", "the code that all run: debug it with one process"),
            ((5,), "One rank", "its share of the data"),
            (range(1, 8), "All but rank 0", "what only rank 0 has: often GPU 0"),
            (range(4, 8), "The ranks of one node", "that node, or its network"),
        )
    )


FIGURES = (errors_log_map, errors_one_rank_raises, errors_who_says_it)
