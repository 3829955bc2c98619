"""What is in a deck of slides? Reads slides/<name>.md, the authors' source, and its marker lines.

A deck is Markdown for Marp that begins with `marp: true` and `title:` between two lines `---`.
Slides are parted by a line `---`. HTML comments are Marp's directives (`<!-- _class: lead -->`),
marker lines, or the notes of the slide (the comment with the line `Time: 2 min`). Marker lines:

    <!-- listing: allhands.data.batch:pad from="longest" to="return" -->
    <!-- listing: cluster_jobs/lab1_seq2seq.slurm from="#SBATCH" to="run" -->
    <!-- table: labs -->                          <!-- table: two days, day 1 -->
    <!-- simulated: ... -->   <!-- measured: ... -->   <!-- drawn: ... -->   <!-- source: ... -->

A listing is cut out of the file by the build (docstring left out, dedented, at most 12 lines);
`from` and `to` are parts of its first and its last line. The last row are captions.
"""

import ast
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from allhands.labs import COURSE

ROOT = COURSE.labs_file.parents[1]
SLIDES = ROOT / "slides"
LISTING_LINES = 12
CAPTIONS = ("simulated", "measured", "drawn", "source")
MARKER = re.compile(rf"<!-- *(listing|table|{'|'.join(CAPTIONS)}): *(.*?) *-->", re.DOTALL)
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
FENCE = re.compile(r"^```.*?^```[^\S\n]*$", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"^\|.*\n\|[ :|-]+\|\n(?:\|.*(?:\n|\Z))*", re.MULTILINE)
LIST = re.compile(r"^(?:-|\d+\.) .*(?:\n(?:-|\d+\.| ) *\S.*)*$", re.MULTILINE)
HEAD_KEYS = ("marp", "title")


class DeckError(ValueError):
    """A deck that cannot be built; one sentence."""


@dataclass(frozen=True)
class Slide:
    """One slide of a deck. `number` counts from 1; `text` is its Markdown, with the notes."""

    number: int
    text: str

    @property
    def shown(self) -> str:
        """The Markdown without comments, marker lines and code."""
        return COMMENT.sub("", FENCE.sub("", self.text))

    @property
    def titles(self) -> list[str]:
        return re.findall(r"^# *(.*?) *$", self.shown, re.MULTILINE)

    def is_class(self, name: str) -> bool:
        """Has it the line `<!-- _class: NAME -->`? A title slide has `lead`."""
        return re.search(rf"<!-- *_class: *{name} *-->", self.text) is not None

    @property
    def markers(self) -> list[tuple[str, str]]:
        """(kind, words) of each marker line."""
        return MARKER.findall(self.text)

    @property
    def notes(self) -> str:
        found = [text for text in COMMENT.findall(MARKER.sub("", self.text)) if "\n" in text]
        return "\n".join(found)

    @property
    def minutes(self) -> float | None:
        """What `Time: 2 min` in the notes says."""
        found = re.search(r"^Time: *(\d+(?:\.\d+)?) *min\b", self.notes, re.MULTILINE)
        return float(found[1]) if found else None

    @property
    def images(self) -> list[str]:
        return re.findall(r"!\[[^\]]*\]\(([^)\s]+)[^)]*\)", self.shown)

    @property
    def links(self) -> list[str]:
        return re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)", MARKER.sub(r" \2 ", self.text))


@dataclass(frozen=True)
class Deck:
    """One deck; `name` is its file's stem, and a lab's deck has the lab's."""

    path: Path
    title: str
    slides: tuple[Slide, ...]

    @property
    def name(self) -> str:
        return self.path.stem


def names(folder: Path = SLIDES) -> list[str]:
    """The decks in a folder: the Markdown files that begin with `marp: true`."""
    head = re.compile(r"\A---\nmarp: true\n")
    return sorted(p.stem for p in folder.glob("*.md") if head.match(p.read_text(encoding="utf-8")))


def read(name: str, folder: Path = SLIDES) -> Deck:
    """Read a deck. Raises DeckError: no such deck, no head, an unknown key, no title."""
    path = folder / f"{name}.md"
    if not path.exists():
        raise DeckError(f"There is no deck {path}. There are: {', '.join(names(folder))}.")
    found = re.match(r"\A---\n(.*?)\n---\n(.*)\Z", path.read_text(encoding="utf-8"), re.DOTALL)
    if found is None:
        raise DeckError(f"{path} must begin with `---`, `marp: true`, `title: ...` and `---`.")
    head = dict(re.findall(r"^(\w+): *(.*?) *$", found[1], re.MULTILINE))
    if unknown := sorted(set(head) - set(HEAD_KEYS)):
        raise DeckError(
            f"{path} has the key {', '.join(unknown)} in its head. Its keys are "
            f"{', '.join(HEAD_KEYS)}; the build adds the others."
        )
    if not head.get("title"):
        raise DeckError(f"{path} has no title: write `title: ...` into its head.")
    parts = _parted(found[2])
    slides = tuple(Slide(number, text.strip("\n")) for number, text in enumerate(parts, 1))
    return Deck(path, head["title"], slides)


def _parted(body: str) -> list[str]:
    """Cut at lines `---`, but not inside code or comments."""
    kept = [m.span() for pattern in (FENCE, COMMENT) for m in pattern.finditer(body)]
    cuts = [
        m.span()
        for m in re.finditer(r"^---[^\S\n]*\n", body, re.MULTILINE)
        if not any(start <= m.start() < end for start, end in kept)
    ]
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(body)]
    return [body[start:end] for start, end in zip(starts, ends, strict=True)]


@dataclass(frozen=True)
class Listing:
    """A piece of a file of this repository. `source` says where it stands."""

    text: str
    language: str
    source: str

    @property
    def n_lines(self) -> int:
        return len(self.text.splitlines())


def listing(words: str, root: Path = ROOT) -> Listing:
    """What the marker line `<!-- listing: WORDS -->` shows.

    WORDS is `package.module:name`, `package.module:Class.method`, or a file's path in the
    repository (`path` or `path:name`); then `from="..."` and `to="..."`. Raises DeckError: no such
    file or name, a part that is not there, more than 12 lines.
    """
    found = re.fullmatch(r'(\S+?)(?::([\w.]+))?((?: +(?:from|to)="[^"]*")*)', words)
    if found is None:
        raise DeckError(f'The listing {words!r} is not `module:name` with from="..." to="...".')
    where, name, ends = found[1], found[2], dict(re.findall(r'(from|to)="([^"]*)"', found[3]))
    path = root / where if "/" in where else _module(where, root)
    if not path.is_file():
        raise DeckError(f"The listing {words!r} names the file {path}, which is not there.")
    text = path.read_text(encoding="utf-8")
    lines = _without_docstring(text, name, words) if name else text.splitlines()
    lines = _between(lines, ends.get("from"), ends.get("to"), words)
    shown = textwrap.dedent("\n".join(lines)).strip("\n")
    languages = {".py": "python", ".toml": "toml", ".slurm": "bash", ".pbs": "bash", ".sh": "bash"}
    source = str(path.relative_to(root)).removeprefix("handson/")
    is_head = all(line.startswith("#") for line in shown.splitlines())  # of a job: all comments
    piece = Listing(
        shown,
        "text" if is_head else languages.get(path.suffix, "text"),
        f"{source}: {name}" if name else source,
    )
    if piece.n_lines > LISTING_LINES:
        raise DeckError(
            f"The listing {words!r} has {piece.n_lines} lines; a slide shows {LISTING_LINES} at "
            'most. Choose some with from="..." and to="...".'
        )
    return piece


def _module(dotted: str, root: Path) -> Path:
    path = root.joinpath("handson", *dotted.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")


def _without_docstring(text: str, name: str, words: str) -> list[str]:
    lines, body = text.splitlines(), ast.parse(text).body
    for part in name.split("."):
        node = next((node for node in body if part in _names(node)), None)
        if node is None:
            raise DeckError(f"The listing {words!r} names {part!r}, which is not in that file.")
        body = getattr(node, "body", [])
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    numbers = range(first, node.end_lineno + 1)
    is_code = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    if is_code and ast.get_docstring(node, clean=False) is not None and len(node.body) > 1:
        numbers = [n for n in numbers if not body[0].lineno <= n <= body[0].end_lineno]
        if not lines[body[0].end_lineno].strip():  # a class has an empty line after it
            numbers.remove(body[0].end_lineno + 1)
    return [lines[n - 1] for n in numbers]


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    return [node.name] if hasattr(node, "name") else []


def _between(lines: list[str], first: str | None, last: str | None, words: str) -> list[str]:
    start, end = 0, len(lines)
    if first is not None:
        start = _find(lines, first, 0, words)
    if last is not None:
        end = _find(lines, last, start, words) + 1
    return lines[start:end]


def _find(lines: list[str], part: str, start: int, words: str) -> int:
    for number in range(start, len(lines)):
        if part in lines[number]:
            return number
    raise DeckError(f"The listing {words!r}: no line from there on has {part!r} in it.")
