"""Which lines did several processes write into one, and where does each begin?

Processes that share a terminal without labels write over each other: two tracebacks begin on one
line, an error follows a progress bar, `ExceptionException: : textText` is two messages in one. The
cuts here need no rank; a line that shows none of the signs comes back as it is.
"""

import re

BAR = re.compile(r"\d+%\|[^|]*\|\s*\S+/\S+ \[[^\]\[]*\]")
BAR_TAIL = re.compile(r"\s*(?:[\w ]+:\s*)?\d+%\|[^|]*\|.*$")
STARTS = re.compile(
    r"(?<=[^\s─|+])(?=Traceback \(most recent call last\))"
    r'|(?<=\S)(?=  File ")'
    r"|(?<=[^\s\]:])(?=[WEIF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ )"
    r"|(?<=[^\s:])(?=\[[WEIF]\d{3,4} \d\d:\d\d:\d\d\.)"
    r"|(?<=\S)(?=(?:slurmstepd|srun): (?:error|\*\*\*))"
    r"|(?<=\S)(?==>> PBS: )"
    r"|(?<=[\])%])(?=[\w.-]+:\d+:\d+ \[\d+\] [\w/.]*:?\d* ?NCCL (?:WARN|INFO))"
)
SIGNS = ("Traceback (most", '  File "', "slurmstepd:", "srun:", "=>> PBS", "[W", "[E", "NCCL ")
LOGGED = re.compile(r"[WEIF]\d{4} \d\d:")
TWICE = re.compile(
    r"^(?P<names>(?P<name>(?:[A-Za-z_][\w.]*?)?(?:Error|Exception))(?:(?:: ?)*(?P=name))+)"
    r"(?:: ?)+(?P<rest>.*)$"
)
MESSAGE_AND_NEXT = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)): (?P<text>.+?)"
    r"(?P<next>(?P=name): .*)$"
)


def unglued(text: str) -> list[str]:
    """The lines that `text` was put together from; `[text]` when it is one."""
    parts = [text]
    if "%|" in text:
        parts = [piece for part in parts for piece in _beside_bars(part)]
    if any(sign in text for sign in SIGNS) or LOGGED.search(text):
        parts = [piece for part in parts for piece in STARTS.split(part) if piece]
    return [piece for part in parts for piece in _messages(part)] or [""]


def _beside_bars(text: str) -> list[str]:
    """A progress bar and what was written behind it; text before a bar stands alone too."""
    found = BAR.search(text)
    if found is None:
        return [text]
    before, after = text[: found.start()], text[found.end() :]
    pieces = [text[: found.end()]]
    if re.search(r"\w*(?:Error|Exception)\b.*[.\w)'\"]\s", before):
        pieces = [before.rstrip(), found.group()]
    return pieces + (_beside_bars(after) if after.strip() else [])


def _messages(text: str) -> list[str]:
    """`XX: : mm` as `X: m` twice; `X: mX: n` as two lines."""
    if "Error" not in text and "Exception" not in text:
        return [text]
    twice = TWICE.match(text)
    if twice is not None:
        name = twice["name"]
        times = twice["names"].count(name)
        return [f"{name}: {message}" for message in _equal_parts(twice["rest"], times)]
    again = MESSAGE_AND_NEXT.match(text)
    if again is not None:
        return [f"{again['name']}: {again['text']}", *_messages(again["next"])]
    return [text]


def _equal_parts(text: str, times: int) -> list[str]:
    """`text` cut into `times` parts of the same length if they are alike, else repeated whole."""
    size, rest = divmod(len(text), times)
    parts = [text[i * size : (i + 1) * size] for i in range(times)]
    digits = re.compile(r"\d+")
    if rest == 0 and len({digits.sub("#", part) for part in parts}) == 1:
        return parts
    return [text] * times
