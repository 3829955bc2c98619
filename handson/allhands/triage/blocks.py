"""Which lines of a rank are one failure, and what was raised first?

Builds events from the lines of one rank, or of a stream that several processes share: Python
tracebacks (chained exceptions are one event, exception groups too; IPython, rich and DataLoader
forms; cut ones), and C++ `terminate called`. An event's root is the first exception of its chain.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from allhands.triage.labels import Line

MOST_LINES = 80  # kept of an event, for the report
MOST_TAIL = 12  # lines of a message behind its first
PATIENCE = 60  # strange lines inside a traceback, until it counts as cut

HEADER = re.compile(r"Traceback \(most recent call last\)(?::? ?\(RANK (?P<rank>\d{1,5})\))?")
IPYTHON = re.compile(r"^(?P<cls>[A-Za-z_][\w.]*) {2,}Traceback \(most recent call last\)")
CHILD = re.compile(r"^\s*-- Process (?P<rank>\d{1,5}) terminated with the following error:")
CHAIN = re.compile(
    r"During handling of the above exception|The above exception was the direct cause"
    r"|^Original Traceback"
)
FRAME = re.compile(
    r'^\s*(?:[|│] *)?File "(?P<file>[^"]+)", line (?P<line>\d{1,9})(?:, in (?P<name>.+))?'
)
RICH = re.compile(r"^│ +(?P<file>/?\S+):(?P<line>\d{1,9}) in (?P<name>\S+)")
IPYTHON_FRAME = re.compile(r"^File (?P<file>\S+?):(?P<line>\d{1,9}), in (?P<name>\w[\w.]*)")
CELL = re.compile(r"^(?:Cell )?In ?\[\d+\], line (?P<line>\d{1,9})")
FINAL = re.compile(r"^(?P<cls>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: ?(?P<text>.*))?$", re.S)
NAMED = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Stop(?:Async)?Iteration|Group|Timeout|Warning|Expired"
    r"|NotFound|Failure|Fault|Abort|Closed|Empty|Full|Mismatch|Cancelled)\d*$"
)
BARE = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): \S")
MPI_ERROR = re.compile(
    r"\*\*\* (?P<cls>MPI_ERR_\w+): (?P<text>.*)"
    r"|Fatal error in \w+: (?P<mpich>[^,]*), error stack"
    r"|Abort\(-?\d+\) on node \d+ \(rank (?P<rank>\d{1,5}) in comm \S+\): "
    r"(?P<abort>Fatal error in .*)"
)
REPORTED = re.compile(r"\*\*\* reported by process \[\d+,(?P<rank>\d{1,5})\]")
TERMINATE = re.compile(r"terminate called after throwing an instance of '(?P<cls>[^']+)'")
OWN_RANK = re.compile(r"\bRank (?P<rank>\d{1,5})\]")
WHAT = re.compile(r"^\s*what\(\): *(?P<text>.*)")
BOX = re.compile(r"^[╭╰│]")
GROUP_MARGIN = re.compile(r"^[ ]*(?:\| )*(?:\+-[+-].*|\| ?|\+ )")
GOES_ON = re.compile(r"\bretry\b|\bok$|\b(?:epoch|step|iter)[ :=]*\d", re.IGNORECASE)
LOG_LINE = re.compile(
    r"^(?:[WEIF]\d{4} \d\d:|\[[WEIF]\d{3,4} \d\d:|\[?\d{4}-\d\d-\d\d"
    r"|(?:srun|slurmstepd|mpiexec|mpirun|prterun): |=>> PBS|\+ |Abort\(-?\d+\) on node "
    r"|Rank \d+ of \d+ raised )"
)


@dataclass(slots=True)
class Raised:
    """One exception of a chain: class without its module, and its message's first line."""

    error_class: str
    message: str
    full_class: str = ""
    depth: int = 0  # inside exception groups


@dataclass(slots=True, eq=False)
class Event:
    """One failure as one process printed it."""

    kind: str  # python | c++ | mpi | bare (a last line without its traceback)
    rank: int | None
    file: int
    first: int
    last: int
    complete: bool = False
    chain: list[Raised] = field(default_factory=list)
    frames: list[tuple[str, int, str]] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    lines: list[tuple[int, str]] = field(default_factory=list)
    about: list[int] = field(default_factory=list)  # ranks named as (RANK n)
    node: str | None = None
    stream: str | None = None
    parent: bool = False  # a parent process prints its child's failure
    strange: int = 0
    after: list[tuple[int, str]] = field(default_factory=list)  # the rank goes on
    after_apart: int = 0  # the same, in the other stream
    header_class: str = ""
    group: bool = False  # an exception group: its parts have a margin

    @property
    def text(self) -> str:
        """All that was raised and said, for rules."""
        said = [f"{r.full_class or r.error_class}: {r.message}" for r in self.chain]
        return "\n".join(said + self.tail)

    def note(self, line: Line) -> None:
        """Keep a line as part of the event."""
        self.last = max(self.last, line.number)
        if len(self.lines) < MOST_LINES:
            self.lines.append((line.number, line.text[:2000]))


class Blocks:
    """The events of one rank's lines, or of a shared stream (`shared`: several may be open)."""

    def __init__(self, shared: bool = False):
        self.shared = shared
        self.open: list[Event] = []
        self.closed: Event | None = None  # the last one, while its message may go on
        self.chained = False
        self.child: int | None = None
        self.talking = False
        self.reported: int | None = None
        self.unsaid: list[Event] = []  # C++ exceptions whose what() is still to come

    @property
    def busy(self) -> bool:
        """Does the next line depend on what came before?"""
        return bool(self.open) or self.talking

    def feed(self, line: Line) -> Iterator[Event]:
        """Take a line; yields events as they begin."""
        text = line.text
        if "Traceback (most recent" in text and (found := HEADER.search(text)):
            yield from self._begin(line, found)
            return
        if found := CHILD.match(text):
            self.child = int(found["rank"])
            self.talking = False
            return
        if "terminate called" in text and (found := TERMINATE.search(text)):
            cls = found["cls"]
            event = Event("c++", line.rank, line.file, line.number, line.number, node=line.node)
            event.chain.append(Raised(cls.split("::")[-1], "", cls.replace("::", ".")))
            event.complete = True
            event.note(line)
            self._close(event)
            self.unsaid.append(event)
            yield event
            return
        if self.unsaid and "what():" in text and (found := WHAT.match(text)):
            event = self.unsaid.pop(0)
            event.chain[-1].message = found["text"]
            if event.rank is None and (own := OWN_RANK.search(text)):
                event.rank = int(own["rank"])
            event.note(line)
            self.talking = True
            return
        if "MPI_ERR_" in text or "Fatal error in" in text or "*** reported by" in text:
            yield from self._mpi_error(line)
        if self.open:
            self._inside(line)
        elif self.talking and self.closed is not None:
            self._after(line)
        elif CHAIN.search(text):
            self.chained = self.closed is not None
        elif ": " in text and BARE.match(text):
            event = Event("bare", line.rank, line.file, line.number, line.number, node=line.node)
            event.chain.append(_raised(text, 0))
            event.complete = True
            event.note(line)
            yield event

    def _mpi_error(self, line: Line) -> Iterator[Event]:
        """An error that MPI itself reports before it ends the job."""
        if found := REPORTED.search(line.text):
            self.reported = int(found["rank"])
        elif found := MPI_ERROR.search(line.text):
            rank = int(found["rank"]) if found["rank"] else self.reported
            rank = line.rank if rank is None else rank
            event = Event("mpi", rank, line.file, line.number, line.number, node=line.node)
            said = found["text"] or found["mpich"] or found["abort"] or ""
            event.chain.append(Raised(found["cls"] or "MPIError", said))
            event.complete = True
            event.note(line)
            self.reported = None
            yield event

    def _begin(self, line: Line, found: re.Match) -> Iterator[Event]:
        about = int(found["rank"]) if found["rank"] else None
        if self.open and self.open[-1].group and GROUP_MARGIN.match(line.text):
            self.open[-1].note(line)
            return
        same = self.closed is not None and (self.chained or about is not None)
        same = same and (line.number - self.closed.last < 400 or not self.shared)
        if same and not self.child:
            event = self.closed
            event.complete = False
        else:
            if not self.shared:
                self._cut()
            event = Event("python", line.rank, line.file, line.number, line.number)
            event.node, event.stream = line.node, line.stream
            if self.child is not None:
                event.rank, event.parent = self.child, True
            yield event
        if about is not None and about not in event.about:
            event.about.append(about)
        named = IPYTHON.match(line.text)
        event.header_class = named["cls"].split(".")[-1] if named else ""
        event.group = "Exception Group" in line.text
        event.note(line)
        self.chained, self.talking, self.child = False, False, None
        if event not in self.open:
            self.open.append(event)

    def _cut(self) -> None:
        self.open.clear()

    def _inside(self, line: Line) -> None:
        event = self.open[-1]
        text = line.text
        if event.stream and line.stream and line.stream != event.stream:
            return
        margin = GROUP_MARGIN.match(text)
        bare = text[margin.end() :] if margin else text
        frame = (
            FRAME.match(bare) or RICH.match(text) or IPYTHON_FRAME.match(bare) or CELL.match(bare)
        )
        if frame is not None:
            parts = frame.groupdict()
            place = (parts.get("file") or "cell", int(parts["line"]), parts.get("name") or "")
            event.frames.append(place)
            event.note(line)
            return
        if margin and "Traceback" not in text and _final(bare, event, True):
            event.chain.append(_raised(bare, text[: margin.end()].count("|")))
            event.note(line)
            if not text.startswith("    "):
                event.strange = 0
            event.complete = True
            return
        if margin or BOX.match(text) or text[:1].isspace() or text.startswith(("-->", "---")):
            event.note(line)
            if margin and re.match(r"^\s*\+-{10,}$", text):
                self._close(event)
            return
        if not text or text[0].isdigit():
            return
        if _final(text, event, self.shared):
            event = self.open[0] if self.shared else event
            event.chain.append(_raised(text, 0))
            event.complete = True
            event.note(line)
            self._close(event)
            return
        event.strange += 1
        if event.strange > PATIENCE or (CHAIN.search(text) and event.complete):
            self.chained = bool(CHAIN.search(text))
            self._close(event)

    def _close(self, event: Event) -> None:
        if event in self.open:
            self.open.remove(event)
        self.closed, self.talking, self.chained = event, True, False

    def _after(self, line: Line) -> None:
        """The rest of a message, or what says that the chain goes on."""
        event, text = self.closed, line.text
        if CHAIN.search(text):
            self.chained, self.talking = True, False
            event.note(line)
            return
        stop = (
            not text.strip()
            or GOES_ON.search(text)
            or LOG_LINE.match(text)
            or text.startswith(("*****", "-----", "====="))
        )
        if stop or len(event.tail) >= MOST_TAIL:
            self.talking = not text.strip() and len(event.tail) == 0
            return
        event.tail.append(text[:2000])
        event.note(line)


def _final(text: str, event: Event, strict: bool) -> bool:
    """Is this the line that names the exception?"""
    found = FINAL.match(text)
    if found is None:
        return False
    name = found["cls"].split(".")[-1]
    if event.header_class:
        return name == event.header_class
    if NAMED.search(name) and (name[:1].isupper() or "." in found["cls"]):
        return True
    if strict or found["text"] is None:
        return not strict and "." in found["cls"] and name[:1].isupper()
    return bool(event.frames) and (name[:1].isupper() or "." in found["cls"])


def _raised(text: str, depth: int) -> Raised:
    found = FINAL.match(text)
    cls = found["cls"]
    return Raised(cls.split(".")[-1], (found["text"] or "").strip()[:4000], cls, depth)
