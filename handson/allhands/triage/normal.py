"""When do two ranks say the same? What differs between ranks in one message, removed.

Replaced: addresses, process IDs, ports, hosts, times, ranks, devices, sizes, temporary names, line
numbers inside site-packages; an errno's localised text. Not replaced: line numbers of the user's
own code, and names.
"""

import re

STEPS = (
    (re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), ""),
    (re.compile(r"\[Errno (\d+)\] [^:'\"]*"), r"[errno\1] "),
    (re.compile(r"\(errno: (\d+) - [^)]*\)"), r"(errno\1)"),
    (re.compile(r"0x[0-9a-fA-F]+"), "<HEX>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<ID>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?:<\d+>)?"), "<HOST>"),
    (re.compile(r"/(?:tmp|dev/shm|var/tmp)/[^\s'\":,)]+"), "<TMP>"),
    (re.compile(r"\btmp[\w]{4,12}\b"), "<TMP>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d(?:[.,]\d+)?"), "<TIME>"),
    (re.compile(r"(?<=site-packages/)(\S+:)\d+"), r"\1<N>"),
    (re.compile(r"\b\w[\w-]*\d+(?=:\d+)"), "<HOST>"),
    (re.compile(r"\[\s*\d+(?:,\s*\d+)*\s*\]"), "[<N>]"),
    (re.compile(r"(?<![\w'\"])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=\b)"), "<N>"),
    (re.compile(r"(?<=['\"])-?\d+(?:\.\d+)?(?=['\"])"), "<N>"),
    (re.compile(r"(?<=[:=_( ])\d+"), "<N>"),
    (re.compile(r"(?:(?<=rank)|(?<=Rank)|(?<=GPU)|(?<=gpu))\d+"), "<N>"),
    (re.compile(r"\s+"), " "),
)


def normalised(text: str) -> str:
    """`text` as every rank would have said it."""
    for pattern, put in STEPS:
        text = pattern.sub(put, text)
    return text.strip()


def own_frame(frames: list[tuple[str, int, str]]) -> tuple[str, int, str] | None:
    """The deepest frame of the user's own code: outside site-packages and Python's library."""
    mine = [f for f in frames if not re.search(r"site-packages|/lib/python\d|^<|\.pyx$", f[0])]
    return mine[-1] if mine else None
