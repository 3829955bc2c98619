"""What does a log say, rank by rank? One pass over the files, in flat memory.

`gather` fills `Facts`: events, launchers' notes, each rank's last lines and progress, and the lines
that a rule may want as evidence. In a large log, a line that differs only in its digits from one
that meant nothing is passed over; the end of every block is read whole, for the ranks' last lines.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from allhands.triage.blocks import Blocks, Event
from allhands.triage.glue import BAR, unglued
from allhands.triage.labels import OWN_WORDS, Labels, Line, choose
from allhands.triage.marks import GOING_ON, PROGRESS, Note, marks_of, world_sizes
from allhands.triage.read import blocks, decoded, rank_of_file

DIGITS = b"0123456789"
SAMPLE_LINES = 6000
WHOLE_AT_START = 3000  # lines that are read in any case
WHOLE_AT_END = 200  # and of every block
MOST_SHAPES = 100_000
MOST_KEPT = 3000  # lines at the start, and lines of interest
MOST_NOTES = 3000
MOST_EVENTS = 5000
MOST_MISSING = 16  # ranks for each file that is given, so that a date is no rank
LAST_LINES = 12
DENSE = 0.25  # if more of a block's lines than this are new, only those near a key word are read
BEFORE, BEHIND, BEHIND_LONG = 5, 20, 500  # lines beside a key word; behind a traceback's header
LONG = (b"Traceback", b"terminate called", b"ignal")
NO_CAPITALS = bytes(i for i in range(256) if not 65 <= i <= 90)
KEYS = {  # a key word, and its capital letters, which are quickly looked for
    word.encode(): word.encode().translate(None, NO_CAPITALS)
    for word in (
        "Traceback", "rror", "ERROR", "xception", "terminate called", "ignal", "SIG", "bort",
        "ABORT", "Watchdog", "NCCL", "illed", "oom_", "oom-", "OOM", "srun:", "slurmstepd", "PBS:",
        "failed", "missing ranks", "exit", "Fatal", "FATAL", "MPI_", "TERMINATION",
        "mismatch", "Xid",
    )
}  # fmt: skip
SOMETIMES, OFTEN, NEVER = 8, 400, 1 << 60  # times that a line's shape is read, until it is dull
INTEREST = re.compile(
    r"error|warn|fail|fatal|abort|kill|exceed|overflow|no space|shm|memory|conda|module|nccl"
    r"|evaluat|valid|checkpoint|saving|missing|mismatch|timed? ?out|timeout|device|cuda|socket"
    r"|interface|rss|img/s|worker|traceback|denied|hang|wait|nan\b|inf\b",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Progress:
    """How far a rank came, by its own words."""

    epoch: int | None = None
    step: int | None = None
    of: int | None = None
    number: int = 0
    text: str = ""


@dataclass(slots=True)
class Seen:
    """What is known of one rank's own lines."""

    lines: int = 0
    last: deque[tuple[int, int, str]] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    progress: Progress = field(default_factory=Progress)
    node: str | None = None
    finished: bool = False


@dataclass
class Facts:
    """All that rules and counting look at."""

    files: list[Path] = field(default_factory=list)
    labels: list[Labels] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    bare: dict[int | None, Event] = field(default_factory=dict)  # the newest of each rank
    notes: list[Note] = field(default_factory=list)
    ranks: dict[int, Seen] = field(default_factory=dict)
    by_label: set[int] = field(default_factory=set)  # ranks that a label or a file name told
    worlds: Counter = field(default_factory=Counter)
    kept: list[Line] = field(default_factory=list)  # the start, and lines of interest
    end: deque[Line] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    words: set[str] = field(default_factory=set)  # of launchers, anywhere in the log
    node_of: dict[int, str] = field(default_factory=dict)
    lines: int = 0
    raw_starts: list[str] = field(default_factory=list)  # first lines with their labels

    def seen(self, rank: int) -> Seen:
        return self.ranks.setdefault(rank, Seen())

    def all_lines(self) -> list[Line]:
        """Kept lines in order, each once."""
        last = self.kept[-1] if self.kept else None
        after = (last.file, last.number) if last else (-1, -1)
        return self.kept + [line for line in self.end if (line.file, line.number) > after]


LAUNCHER_WORDS = (
    "horovod", "horovodrun", "torchrun", "torch/distributed/run.py", "torch/distributed/elastic",
    "deepspeed", "dist_world_size", "mpiexec", "mpirun", "prterun", "HYD_", "hydra", "prepend-rank",
    "BAD TERMINATION", "srun:", "slurmstepd", "PBS", "MPI_ABORT", "help-mpi", "Open MPI", "mpi4py",
    "notebook_launcher", "ipykernel", "Cell In[", "papermill", "multiprocessing/spawn.py",
    "nbgrader", "AutogradeApp", "NbGraderApp", "CellTimeoutError", "in comm 0)",
)  # fmt: skip


def gather(paths: Sequence[Path]) -> Facts:
    """Read all files. Raises read.UnreadableLog for what is no log."""
    facts = Facts(files=list(paths))
    ranks = [rank_of_file(path) for path in paths] if len(paths) > 1 else [None]
    if max((rank for rank in ranks if rank is not None), default=0) > MOST_MISSING * len(paths):
        ranks = [None] * len(paths)  # numbers of jobs or dates, not ranks
    for index, (path, rank) in enumerate(zip(paths, ranks, strict=True)):
        _File(facts, index, path, rank).read()
    return facts


def lines_near_keys(data: bytes, lines: list[bytes]) -> set[int]:
    """Numbers of the lines of a block in which, or beside which, a key word stands."""
    near: set[int] = set()
    capitals = data.translate(None, NO_CAPITALS)
    for key, of_key in KEYS.items():
        if of_key and of_key not in capitals:
            continue
        behind = BEHIND_LONG if key in LONG else BEHIND
        i, start, at = 0, 0, data.find(key)
        while at >= 0:
            i += data.count(b"\n", start, at)
            near.update(range(max(0, i - BEFORE), min(len(lines), i + behind)))
            start = data.find(b"\n", at)
            at = data.find(key, start) if start >= 0 else -1
    return near


class _File:
    def __init__(self, facts: Facts, index: int, path: Path, rank: int | None):
        self.facts, self.index, self.path, self.own_rank = facts, index, path, rank
        self.blocks: dict[int | None, Blocks] = {}
        self.newest: dict[int | None, Event] = {}
        self.dull: set[bytes] = set()
        self.told: dict[bytes, int] = {}  # shapes of lines of interest, and how often they came
        self.labels = Labels()

    def read(self) -> None:
        """Every block: the first chooses the labels, later ones are passed over where dull."""
        number = 1
        for count, (first, data) in enumerate(blocks(self.path)):
            lines = data.split(b"\n")
            if count == 0:
                sample = _sample(lines)
                self.labels = choose(sample)
                self.facts.raw_starts += sample[:200]
                self.facts.labels.append(self.labels)
            self.facts.lines += len(lines)
            for i in self._wanted(data, lines, whole=0 if count else WHOLE_AT_START):
                self._physical(first + i, lines[i])
            number = first + len(lines)
        for line in self.labels.rest(number):
            self._take(line)

    def _wanted(self, data: bytes, lines: list[bytes], whole: int) -> Iterator[int]:
        """Numbers of the lines to read: the first `whole`, the last ones, and what is not dull."""
        count, late, dull = len(lines), len(lines) - WHOLE_AT_END, self.dull
        yield from range(min(whole, count))
        if whole >= count:
            return
        shapes = data.translate(None, DIGITS).split(b"\n")
        rest = [i for i in range(whole, count) if shapes[i] not in dull or i >= late]
        if len(rest) > DENSE * count:
            near = lines_near_keys(data, lines)
            rest = [i for i in rest if i in near or i >= late]
        for i in rest:
            if i >= late or shapes[i] not in dull:
                yield i

    def _physical(self, number: int, data: bytes) -> None:
        if b"\r" not in data:
            self._segment(number, data, None)
            return
        inherit = None
        segments = data.rstrip(b"\r").split(b"\r")
        for i, segment in enumerate(segments):
            if i < len(segments) - 2 and segment.translate(None, DIGITS) in self.dull:
                continue
            if segment.strip() or len(segments) == 1:
                inherit = self._segment(number, segment, inherit)

    def _segment(self, number: int, data: bytes, inherit: Line | None) -> Line | None:
        text = decoded(data)
        lines = self.labels.split(number, text, inherit)
        dull, often = bool(text) and not text[0].isspace(), 1
        for line in lines:
            for part in unglued(line.text):
                piece = Line(number, part, line.rank, line.stream, line.node, line.pid, self.index)
                often = max(often, self._take(piece))
        if dull and lines and len(data) < 2000 and len(self.dull) < MOST_SHAPES:
            self._repeated(data.translate(None, DIGITS), often)
        return lines[-1] if lines else inherit

    def _repeated(self, shape: bytes, often: int) -> None:
        """Pass over lines of this shape once they came `often` times ."""
        if often > 1:
            often_so_far = self.told[shape] = self.told.get(shape, 0) + 1
            if often_so_far < often:
                return
        self.dull.add(shape)

    def _take(self, line: Line) -> int:
        """Learn from a line; how often one of its shape must be read until it is dull."""
        facts, text = self.facts, line.text
        by_label = line.rank is not None
        if line.rank is None and self.own_rank is not None:
            line.rank, by_label = self.own_rank, True
        if line.rank is None and self.labels.words and (own := OWN_WORDS.match(text)):
            line.rank = int(own["rank"])
        state = self.blocks.get(line.rank)
        if state is None:
            state = self.blocks[line.rank] = Blocks(shared=line.rank is None)
        busy, begun = state.busy, False
        for event in state.feed(line):
            if event.kind == "bare":
                facts.bare[line.rank] = event
            elif len(facts.events) < MOST_EVENTS:
                facts.events.append(event)
            self.newest[event.rank if event.parent else line.rank] = event
            begun = True
        marks = marks_of(text)
        for kind, about in marks:
            if len(facts.notes) < MOST_NOTES:
                rank = line.rank
                facts.notes.append(Note(kind, self.index, line.number, text[:1000], rank, about))
        facts.worlds.update(world_sizes(text))
        self._words(text)
        self._rank(line, by_label, busy or state.busy)
        interesting = INTEREST.search(text) is not None
        if len(facts.kept) < MOST_KEPT or (interesting and len(facts.kept) < 2 * MOST_KEPT):
            facts.kept.append(_short(line))
        facts.end.append(_short(line))
        if busy or begun or state.busy:
            return NEVER
        return OFTEN if marks else SOMETIMES if interesting else 1

    def _words(self, text: str) -> None:
        words = self.facts.words
        for word in LAUNCHER_WORDS:
            if word in text:
                words.add(word)

    def _rank(self, line: Line, by_label: bool, busy: bool) -> None:
        rank, text = line.rank, line.text
        if rank is not None and text.strip():
            if by_label:
                self.facts.by_label.add(rank)
            seen = self.facts.seen(rank)
            seen.lines += 1
            seen.last.append((line.file, line.number, text[:500]))
            if line.node:
                seen.node = line.node
                self.facts.node_of[rank] = line.node
            if not busy:
                _progress(seen.progress, line)
        event = self.newest.get(rank)
        if event is None or busy or len(event.after) > 2 or line.number <= event.last:
            return
        if PROGRESS.search(text) or GOING_ON.search(text) or BAR.search(text):
            if event.stream and line.stream and event.stream != line.stream:
                event.after_apart += 1  # streams are buffered apart: their order proves little
            else:
                event.after.append((line.number, text[:200]))


def _progress(progress: Progress, line: Line) -> None:
    for found in PROGRESS.finditer(line.text):
        if found["epoch"]:
            progress.epoch = int(found["epoch"][:12])
        if found["step"]:
            progress.step = int(found["step"][:12])
            progress.of = int(found["of"][:12]) if found["of"] else progress.of
        progress.number, progress.text = line.number, line.text[:300]


def _short(line: Line) -> Line:
    if len(line.text) <= 1200:
        return line
    return Line(line.number, line.text[:1200], line.rank, line.stream, line.node, None, line.file)


def _sample(lines: list[bytes]) -> list[str]:
    sample = []
    for data in islice(lines, SAMPLE_LINES):
        pieces = data.split(b"\r") if b"\r" in data else [data]
        sample.append(decoded(pieces[0]))
        sample += ["\r" + decoded(piece) for piece in pieces[1:20]]
    return sample
