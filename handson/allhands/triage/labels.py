"""Which rank wrote a line, by the label that its launcher put before it?

Formats are data (sources: the launchers' manuals, and runs of Open MPI 5.0, MPICH 5.0, torch 2.14).
Those that nothing else looks like are always labels, also in the middle of a line; `[2] text` and
`2: text` are labels only if the log as a whole is labelled so.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

DATE = r"\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4}"
TAG = re.compile(
    rf"(?:\[?{DATE}\]?)?"
    r"\[(?P<job>\d+,|prterun-[^\]\s]+@\d+,)?(?P<rank>\d{1,5})\]"
    r"(?:\[(?P<node>[\w.-]+):(?P<pid>\d{1,9})\])?<(?P<stream>std(?:out|err|diag))>:"
)
HOROVOD_DATE = re.compile(rf"^{DATE}\[\d+\]<")
MPICH = re.compile(r"\[(?P<rank>\d{1,5})\] ")
SRUN = re.compile(r"^ *(?P<rank>\d{1,5}): ?(?P<text>.*)$", re.S)
ROLE = re.compile(r"^\[(?!rank\d)[A-Za-z_]\w*?(?P<local>\d{1,5})\]:")
NCCL_DEVICE = re.compile(r"\w:\d+:\d+ $")
TORCH = re.compile(r"\[rank(?P<rank>\d{1,5})\]:(?P<space> ?)")
OWN_WORDS = re.compile(r"^\[?[Rr]ank[ =:]{0,2}(?P<rank>\d{1,4})\b")
OWN_NAME = re.compile(r"^\[?[Rr]ank[ =](?P<rank>\d{1,5})\]?: ?")
NAMES_FRAMES = re.compile(r'(?:^|[\]:> ])\[?[Rr]ank[ =]\d{1,5}\]?: ?  File "')
LEAST_SHARE = 0.2  # of a log's lines that `2: text` must begin, to be a label
LEAST_IF_TOLD = 0.03  # if the log names a launcher that labels so
TELLS = {
    "mpich": re.compile(
        r"BAD TERMINATION|\bHYD_|hydra|prepend-rank|\bmpi(?:exec|run)\b.* -l "
        r'|^\[\d+\] (?:  File "|  [|] |Traceback \(most)'
    ),
    "srun": re.compile(
        r"\bsrun\b.* (?:-l|--label) |srun: |slurmstepd: "
        r'|^ *\d+: (?:  File "|  [|] |Traceback \(most)'
    ),
}
STAMP = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?: |$)"
)
STAMPED = 0.95  # of the lines: then a collector (`docker logs -t`, `ts`) put the times there


@dataclass(slots=True)
class Line:
    """One line of one rank: `rank` None when nothing tells it."""

    number: int
    text: str
    rank: int | None = None
    stream: str | None = None
    node: str | None = None
    pid: int | None = None
    file: int = 0
    mixed: bool = False  # from a stream that several processes share


@dataclass
class Labels:
    """The formats that a log uses, chosen from a sample of its lines."""

    tagged: bool = False  # [1,0]<stderr>: or [0]<stderr>:
    tag_space: bool = False  # one space behind the tag belongs to it (Open MPI 5)
    mpich: bool = False
    noise: bool = False  # MPICH labels every write, not every line
    srun: bool = False
    torch: bool = False  # [rank0]:
    nested: bool = False  # srun's label is a node, torchrun's the rank
    words: bool = False  # lines begin with "rank 3 ", written by the program
    named: bool = False  # the program writes "rank 3: " before every line of a traceback
    stamped: bool = False  # a time that somebody put before every line
    ranks: frozenset[int] = frozenset()
    rank_of_local: dict[tuple[int | None, int], int] = field(default_factory=dict)
    pending: dict[int, str] = field(default_factory=lambda: defaultdict(str))

    @property
    def any(self) -> bool:
        return self.tagged or self.mpich or self.srun or self.torch

    def split(self, number: int, text: str, inherit: Line | None = None) -> list[Line]:
        """The lines of ranks in one line of text; none while a rank's line is not at its end."""
        if self.stamped and inherit is None:
            text = STAMP.sub("", text, count=1)
        if self.tagged:
            lines = self._tags(number, text, inherit)
        elif self.mpich:
            lines = self._writes(number, text)
        elif self.srun and (found := SRUN.match(text)):
            lines = [Line(number, found["text"], int(found["rank"]))]
        else:
            lines = [Line(number, text, inherit.rank if inherit else None)]
        parts = [part for line in lines for part in self._inside(line)]
        return [self._without_name(part) for part in parts] if self.named else parts

    def rest(self, number: int) -> list[Line]:
        """What ranks wrote without an end of line, at the end of the log."""
        return [Line(number, text, rank) for rank, text in self.pending.items() if text.strip()]

    def _tags(self, number: int, text: str, inherit: Line | None) -> list[Line]:
        found = list(TAG.finditer(text)) if "<std" in text else []
        if not found:
            rank = inherit.rank if inherit else None
            return [Line(number, text, rank)]
        lines: list[Line] = []
        if found[0].start():
            lines.append(Line(number, text[: found[0].start()]))
        ends = [tag.start() for tag in found[1:]] + [len(text)]
        for tag, end in zip(found, ends, strict=True):
            said = text[tag.end() : end]
            if self.tag_space and said.startswith(" "):
                said = said[1:]
            rank = int(tag["rank"])
            if lines and lines[-1].rank == rank:
                lines[-1].text += said
                continue
            pid = int(tag["pid"]) if tag["pid"] else None
            lines.append(Line(number, said, rank, tag["stream"], tag["node"], pid))
        return lines

    def _writes(self, number: int, text: str) -> list[Line]:
        """MPICH: labels of writes; a rank's line ends where the last write on a line is its own."""
        found = [tag for tag in MPICH.finditer(text + " ") if self._is_write(tag, text)]
        if not found or found[0].start():
            return [Line(number, text)]
        ends = [tag.start() for tag in found[1:]] + [len(text)]
        if not self.noise:
            return [Line(number, text[found[0].end() :], int(found[0]["rank"]))]
        for tag, end in zip(found, ends, strict=True):
            rank = int(tag["rank"])
            self.pending[rank] += text[tag.end() : end]
        return [Line(number, self.pending.pop(rank), rank)]

    def _is_write(self, tag: re.Match, text: str) -> bool:
        if tag.start() == 0:
            return True
        if NCCL_DEVICE.search(text, 0, tag.start()):
            return False
        return self.noise and int(tag["rank"]) in self.ranks

    def _without_name(self, line: Line) -> Line:
        """Take off the program's own "rank 3: "; a launcher's label before it knows better."""
        if found := OWN_NAME.match(line.text):
            line.text = line.text[found.end() :]
            line.rank = int(found["rank"]) if line.rank is None else line.rank
        return line

    def _inside(self, line: Line) -> list[Line]:
        """Labels that torchrun puts inside a launcher's: [default1]:[rank1]: text."""
        outer, local = line.rank, None
        if line.text.startswith("[") and (role := ROLE.match(line.text)):
            local = int(role["local"])
            line.text = line.text[role.end() :]
            plain = outer if outer is not None and not self.nested else local
            line.rank = self.rank_of_local.get((outer, local), plain)
        elif self.nested:
            line.rank = None
        if "[rank" not in line.text:
            return [line]
        found = [tag for tag in TORCH.finditer(line.text) if _begins(tag, line.text)]
        if not found:
            return [line]
        lines = []
        if found[0].start():
            lines.append(Line(line.number, line.text[: found[0].start()], line.rank))
        ends = [tag.start() for tag in found[1:]] + [len(line.text)]
        for tag, end in zip(found, ends, strict=True):
            rank = int(tag["rank"])
            if local is not None:
                self.rank_of_local[outer, local] = rank
            lines.append(Line(line.number, line.text[tag.end() : end], rank, line.stream))
        return lines


def _begins(tag: re.Match, text: str) -> bool:
    """At a line's start, or glued to what came before: not quoted in a sentence."""
    before = text[: tag.start()]
    return TORCH.sub("", before).strip() == "" or before[-1] in "])}%s" or not before[-1].isspace()


def choose(sample: Iterable[str]) -> Labels:
    """The labels of a log, from some thousands of its lines (colours removed).

    What a progress bar wrote over its own line begins with its carriage return.
    """
    lines = [line for line in sample if line.strip()]
    stamped = sum(STAMP.match(line) is not None for line in lines)
    bars = sum(line.startswith("\r") for line in lines)
    if stamped >= max(3, STAMPED * (len(lines) - bars)):
        return _behind_stamps(lines)
    return _choose([line.lstrip("\r") for line in lines])


def _choose(lines: list[str]) -> Labels:
    tags = [tag for line in lines if "<std" in line for tag in TAG.finditer(line)]
    labels = Labels(tagged=len(tags) >= 2)
    if labels.tagged:
        labels.tag_space = _one_space(lines)
        labels.ranks = frozenset(int(tag["rank"]) for tag in tags)
    else:
        _unsure(labels, lines)
    inner = [_inner(labels, line) for line in lines if "[rank" in line]
    labels.torch = any(rank is not None for _, rank in inner)
    labels.nested = any(o is not None and r is not None and o != r for o, r in inner)
    labels.named = any(NAMES_FRAMES.search(line) for line in lines)
    own = [found for line in lines if (found := OWN_WORDS.match(line))]
    labels.words = len({found["rank"] for found in own}) > 1 and len(own) > 2
    return labels


def _behind_stamps(lines: list[str]) -> Labels:
    """The labels behind the times that somebody put before every line."""
    labels = _choose([STAMP.sub("", line, count=1).lstrip("\r") for line in lines])
    labels.stamped = True
    return labels


def _inner(labels: Labels, line: str) -> tuple[int | None, int | None]:
    found = TORCH.search(line)
    srun = SRUN.match(line) if labels.srun else None
    outer = int(srun["rank"]) if srun else None
    return outer, int(found["rank"]) if found else None


def _one_space(lines: list[str]) -> bool:
    behind = [line[tag.end() :] for line in lines if (tag := TAG.match(line))]
    behind = [text for text in behind if text.strip()]
    return bool(behind) and all(text.startswith(" ") for text in behind)


def _unsure(labels: Labels, lines: list[str]) -> None:
    counts = Counter(_shape(line) for line in lines)
    for shape in ("mpich", "srun"):
        found = [line for line in lines if _shape(line) == shape]
        told = any(TELLS[shape].search(line) for line in lines)
        least = max(2, (LEAST_IF_TOLD if told else LEAST_SHARE) * len(lines))
        ranks = {int(re.search(r"\d+", line).group()) for line in found}
        dense = max(ranks, default=0) < 4 * len(ranks) + 4
        alone = len(ranks) < 2 and counts[shape] < len(lines) and not told
        if counts[shape] < least or not dense or alone:
            continue
        labels.mpich, labels.srun = shape == "mpich", shape == "srun"
        labels.ranks = frozenset(ranks)
        labels.noise = shape == "mpich" and any(re.fullmatch(r"\[\d+\] ?", x) for x in lines)
        return


def _shape(line: str) -> str:
    if re.match(r"\[\d{1,5}\](?: |$)", line):
        return "mpich"
    return "srun" if re.match(r" *\d{1,5}:(?: |$)", line) else ""
