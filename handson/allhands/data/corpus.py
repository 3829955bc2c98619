"""Where do the sentence pairs come from? One name, `spec`, stands for any corpus.

| spec                   | is                                                                    |
|------------------------|-----------------------------------------------------------------------|
| `numbers_dates/train`  | an embedded corpus and its split (see the README in `corpora/`)       |
| `my.tsv`               | columns source TAB target [TAB credit]: ManyThings, JESC              |
| `pairs.tsv`            | columns id TAB text TAB id TAB text: Tatoeba's export of pairs        |
| `X.en:X.ja`            | two files, line by line: WMT, Europarl, KFTT, small_parallel_enja     |

Any file may end in .gz, .bz2 or .xz. Pairs are streamed: no list of them is ever made. Lines are
counted from 1. Bad input is a CorpusError (see `lines.py`).
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from allhands.data.lines import CorpusError, read_lines

__all__ = ["CorpusError", "Pair", "embedded", "read_pairs"]

_CORPORA = Path(__file__).parent / "corpora"


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence, its translation, and where they stand ("file:line")."""

    source: str
    target: str
    where: str


def embedded() -> list[str]:
    """The names of the embedded corpora with their splits, such as "numbers_dates/train"."""
    order = ("train", "valid", "test")
    files = sorted(_CORPORA.glob("*/*.tsv"), key=lambda f: (f.parent.name, order.index(f.stem)))
    return [f"{file.parent.name}/{file.stem}" for file in files]


def read_pairs(spec: str | os.PathLike) -> Iterator[Pair]:
    """Stream the pairs of a corpus; the module's docstring lists what `spec` may be.

    A file that exists wins over the other readings of its name. Blank lines of a TSV are skipped. A
    blank side is given as it is, so that aligned files stay aligned: the length filter drops such
    pairs. CorpusError at once for a name that means nothing, and while reading for what is wrong in
    a file.
    """
    spec = os.path.expanduser(os.fspath(spec))
    if not spec.strip() or "\0" in spec:
        raise CorpusError(f"A corpus needs a name; got {spec!r}. Try numbers_dates/train.")
    if os.path.isfile(spec):
        return _table(spec, read_lines(spec))
    if spec in embedded():
        path = str(_CORPORA / f"{spec}.tsv")
        return _table(path, read_lines(path))
    if (sides := _two_files(spec)) is not None:
        _refuse_one_file_twice(*sides)
        return _aligned(*sides, *map(read_lines, sides))
    _refuse_unknown_name(spec)
    return _table(spec, read_lines(spec))  # which says what is wrong with it


def _two_files(spec: str) -> tuple[str, str] | None:
    """Cut "X.en:X.ja" in two; a path may hold a colon, so the cut that finds two files wins."""
    cuts = [
        (spec[: colon.start()], os.path.expanduser(spec[colon.end() :]))
        for colon in re.finditer(":", spec)
    ]
    for source, target in cuts:
        if os.path.isfile(source) and os.path.isfile(target):
            return source, target
    # No cut finds two files. Find the likely cut, so that a sentence can say which file is missing:
    # not at the colon of a drive (C:\) and not in an address.
    cuts = [cut for cut in cuts if not re.search(r"(^|:)[A-Za-z]$", cut[0])]
    if not cuts or "://" in spec:
        return None
    if not any(source and target for source, target in cuts):
        raise CorpusError(f"A colon needs two files, as in X.en:X.ja; found {spec!r}.")
    return max(cuts, key=lambda cut: os.path.exists(cut[0]) + os.path.exists(cut[1]))


def _refuse_unknown_name(spec: str) -> None:
    """CorpusError for what looks like an embedded corpus or an address, and is neither."""
    names = embedded()
    corpora = {name.partition("/")[0] for name in names}
    if "://" in spec:
        raise CorpusError(f"{spec} is an address: fetch the file first, then give its name here.")
    looks_embedded = re.fullmatch(r"\w+(/\w+)?", spec) and not os.path.exists(spec)
    if looks_embedded or spec.partition("/")[0] in corpora:
        raise CorpusError(
            f"There is no file and no embedded corpus {spec}: embedded are {', '.join(names)}."
        )


def _table(path: str, lines: Iterator[tuple[int, str]]) -> Iterator[Pair]:
    is_export = None
    for number, line in lines:
        if not line.strip():
            continue
        columns = line.split("\t")
        if is_export is None:
            is_export = _is_export(columns)
        if is_export and not _is_export(columns):
            raise CorpusError(
                f"{path}, line {number}: expected the four columns id, text, id, text as in the "
                f"lines before; found {_say(columns)}."
            )
        if not is_export and not 2 <= len(columns) <= 3:
            raise CorpusError(
                f"{path}, line {number}: expected source TAB target, and perhaps TAB credit; "
                f"found {_say(columns)}."
            )
        source, target = (columns[1], columns[3]) if is_export else columns[:2]
        yield Pair(source, target, f"{path}:{number}")
    if is_export is None:
        raise CorpusError(f"{path} holds blank lines only: a corpus needs at least one pair.")


def _is_export(columns: list[str]) -> bool:
    """Tatoeba's export of pairs: id, text, id, text."""
    return len(columns) == 4 and columns[0].isdecimal() and columns[2].isdecimal()


def _say(columns: list[str]) -> str:
    begin = "\t".join(columns)[:30]
    return f"{len(columns)} column{'s' * (len(columns) > 1)} in {begin!r}"


def _refuse_one_file_twice(source_path: str, target_path: str) -> None:
    both = os.path.exists(source_path) and os.path.exists(target_path)
    if both and os.path.samefile(source_path, target_path):
        raise CorpusError(
            f"{source_path} and {target_path} are one and the same file: "
            f"give one for each language."
        )


def _lines(n: int) -> str:
    return f"{n} line{'s' * (n != 1)}"


def _aligned(
    source_path: str,
    target_path: str,
    sources: Iterator[tuple[int, str]],
    targets: Iterator[tuple[int, str]],
) -> Iterator[Pair]:
    n_pairs = 0
    for source, target in zip_longest(sources, targets):
        if source is None or target is None:
            n_sources = n_pairs + (source is not None) + sum(1 for _ in sources)
            n_targets = n_pairs + (target is not None) + sum(1 for _ in targets)
            raise CorpusError(
                f"{source_path} has {_lines(n_sources)} and {target_path} has {_lines(n_targets)}: "
                f"after line {n_pairs} they cannot belong together; find the line that is missing."
            )
        n_pairs += 1
        yield Pair(source[1], target[1], f"{source_path}:{source[0]}")
    if n_pairs == 0:
        raise CorpusError(f"{source_path} and {target_path} hold no line: a corpus needs a pair.")
