"""How do millions of pairs fit in memory? As flat rows of int32, not as Python objects.

`ids` is one long row of all sentences of a side; sentence i is `ids[offsets[i] : offsets[i + 1]]`.
A pair costs 4 bytes a token, and two offsets of 8 bytes. With a folder the rows are files that the
operating system maps into memory page by page, so that a corpus may be larger than the memory.
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from allhands.data.corpus import CorpusError, Pair
from allhands.data.tokens import fits, split
from allhands.data.vocab import Vocab

_ROWS = ("source_ids", "source_offsets", "target_ids", "target_offsets")
_DONE = "store.json"  # written last: a folder without it holds half a store
_WAITING = 1 << 16  # numbers that wait in memory for the next write


@dataclass(frozen=True, eq=False)
class PairStore:
    """Encoded pairs. Make one with `encode`; `open` finds again what `encode` left in a folder.

    `dropped` counts the pairs that the length filter (`tokens.fits`) left out.
    """

    source_ids: np.ndarray  # (source tokens of all pairs,) int32
    source_offsets: np.ndarray  # (pairs + 1,) int64
    target_ids: np.ndarray  # (target tokens of all pairs,) int32
    target_offsets: np.ndarray  # (pairs + 1,) int64
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    def source(self, i: int) -> np.ndarray:
        """Source ids of pair i: int32, without BOS and EOS; a view that cannot be written to."""
        return self._sentence(self.source_ids, self.source_offsets, i)

    def target(self, i: int) -> np.ndarray:
        """Target ids of pair i, in the same form."""
        return self._sentence(self.target_ids, self.target_offsets, i)

    def _sentence(self, ids: np.ndarray, offsets: np.ndarray, i: int) -> np.ndarray:
        if not 0 <= i < len(self):
            raise IndexError(f"The store has the pairs 0 to {len(self) - 1}; asked for pair {i}.")
        return ids[offsets[i] : offsets[i + 1]]

    @cached_property
    def source_lengths(self) -> np.ndarray:
        """(pairs,) int32: how many tokens each source sentence has, without BOS and EOS."""
        return np.diff(self.source_offsets).astype(np.int32)

    @cached_property
    def target_lengths(self) -> np.ndarray:
        """(pairs,) int32: how many tokens each target sentence has, without BOS and EOS."""
        return np.diff(self.target_offsets).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Bytes of the four rows, in memory or in the folder."""
        return sum(getattr(self, name).nbytes for name in _ROWS)

    @classmethod
    def encode(
        cls,
        pairs: Iterable[Pair],
        source_vocab: Vocab,
        target_vocab: Vocab,
        source_tokens: str,
        target_tokens: str,
        *,
        max_length: int | None = None,
        folder: Path | None = None,
    ) -> "PairStore":
        """Cut, filter and number `pairs` in one streaming pass.

        Pairs with a blank side, or with more than `max_length` tokens on a side, are dropped and
        counted; if none is left, that is a CorpusError. With `folder`, the rows are written there
        and mapped, and one process at a time may write; without it they live in memory.
        """
        if max_length is not None and max_length < 1:
            raise ValueError(f"max_length must be 1 token or more; it is {max_length}.")
        dropped = _Dropped()
        n_kept = 0
        with ExitStack() as cleaning:
            rows = {name: _Row(name, folder, cleaning) for name in _ROWS}
            for pair in pairs:
                source = split(pair.source, source_tokens)
                target = split(pair.target, target_tokens)
                if not fits(source, target, max_length):
                    dropped.add(pair, source, target)
                    continue
                n_kept += 1
                rows["source_ids"].extend(source_vocab.encode(source))
                rows["source_offsets"].extend([rows["source_ids"].length])
                rows["target_ids"].extend(target_vocab.encode(target))
                rows["target_offsets"].extend([rows["target_ids"].length])
            if n_kept == 0:
                raise CorpusError(dropped.sentence(max_length))
            arrays = {name: row.finish() for name, row in rows.items()}
        if folder is None:
            return cls(**arrays, dropped=dropped.count)
        (Path(folder) / _DONE).write_text(json.dumps({"dropped": dropped.count}) + "\n")
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> "PairStore":
        """Map the rows that `encode(..., folder=folder)` wrote; nothing is read yet."""
        folder = Path(folder)
        if not (folder / _DONE).is_file():
            raise CorpusError(
                f"{folder} holds no finished store ({_DONE} is missing): "
                f"encode a corpus into it first."
            )
        done = json.loads((folder / _DONE).read_text())
        rows = {name: np.memmap(folder / name, _dtype(name), mode="r") for name in _ROWS}
        return cls(**rows, dropped=done["dropped"])


def _dtype(name: str) -> type:
    return np.int64 if name.endswith("offsets") else np.int32


class _Row:
    """A row of numbers that grows: in memory, or in a file that only `finish` gives its name."""

    def __init__(self, name: str, folder: Path | None, cleaning: ExitStack) -> None:
        self.dtype = _dtype(name)
        self.numbers = array("q" if self.dtype is np.int64 else "i")
        self.length = 0
        self.file = None
        if folder is not None:
            folder = Path(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _DONE).unlink(missing_ok=True)
            self.path, self.draft = folder / name, folder / f"{name}.part"
            cleaning.callback(self.draft.unlink, missing_ok=True)
            self.file = cleaning.enter_context(self.draft.open("wb"))
        if name.endswith("offsets"):
            self.extend([0])

    def extend(self, numbers: Sequence[int]) -> None:
        self.numbers.extend(numbers)
        self.length += len(numbers)
        if self.file is not None and len(self.numbers) >= _WAITING:
            self.numbers.tofile(self.file)
            del self.numbers[:]

    def finish(self) -> np.ndarray | None:
        if self.file is not None:
            self.numbers.tofile(self.file)
            self.file.close()
            self.draft.replace(self.path)
            return None
        row = np.frombuffer(self.numbers, dtype=self.dtype)
        row.flags.writeable = False
        return row


@dataclass
class _Dropped:
    """What the length filter left out, and the sentence for when it left out everything."""

    count: int = 0
    blank: int = 0
    shortest: int | None = (
        None  # tokens of the longer side of the shortest pair without a blank side
    )
    first: str = ""

    def add(self, pair: Pair, source: Sequence[str], target: Sequence[str]) -> None:
        self.first = self.first or pair.where
        self.count += 1
        if not source or not target:
            self.blank += 1
            return
        longer = max(len(source), len(target))
        self.shortest = longer if self.shortest is None else min(self.shortest, longer)

    def sentence(self, max_length: int | None) -> str:
        if self.count == 0:
            return "There is nothing to encode: the corpus gave no sentence pair."
        if self.shortest is None:
            return (
                f"No pair is left: all {self.count} have a blank side, from {self.first} on. "
                f"Check that both sides hold sentences."
            )
        return (
            f"No pair is left of {self.count}, from {self.first} on: "
            f"{self.blank} have a blank side and the others more than max_length={max_length} "
            f"tokens. The shortest of them needs max_length={self.shortest}."
        )
