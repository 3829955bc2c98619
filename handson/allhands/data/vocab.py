"""Which number does a word have? The vocabulary, and the only place that defines the special ids.

Ids 0 to 3 are the specials. The tokens of the corpus follow by falling count; where counts are
equal, by the order of the tokens' code points. So a vocabulary is a pure function of the sentences.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from allhands.data.tokens import fits, split

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")


class SentencePair(Protocol):
    """Anything with a source and a target text, such as `corpus.Pair`."""

    @property
    def source(self) -> str: ...
    @property
    def target(self) -> str: ...


@dataclass(frozen=True)
class Vocab:
    """Tokens and their ids: `tokens[id]` is the token, and the first four are the specials.

    A special's name that stands in a text (a corpus may hold the word "<eos>") is not the special:
    it encodes to UNK, so that no text can end a sentence early.
    """

    tokens: tuple[str, ...]
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.tokens[:4] != SPECIALS:
            raise ValueError(
                f"A vocabulary begins with {', '.join(SPECIALS)}; this one begins with "
                f"{self.tokens[:4]}. Make it with Vocab.build or Vocab.load."
            )
        ids: dict[str, int] = {}
        for i, token in enumerate(self.tokens):
            if not token or "\n" in token:
                raise ValueError(
                    f"A token must be one line that is not empty; token {i} is {token!r}. "
                    f"Cut the text with tokens.split."
                )
            if ids.setdefault(token, i) != i:
                raise ValueError(
                    f"Every token has one id; {token!r} stands at {ids[token]} and at {i}. "
                    f"Remove one of them."
                )
        for special in SPECIALS:
            del ids[special]
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def build(cls, sentences: Iterable[Sequence[str]], max_size: int | None = None) -> "Vocab":
        """Count the tokens of `sentences` (one pass, streaming) and number them.

        `max_size` limits `len(vocab)`, the four specials included; the rarest tokens are left out.
        """
        counts: Counter[str] = Counter()
        for sentence in sentences:
            counts.update(sentence)
        return cls.from_counts(counts, max_size)

    @classmethod
    def from_counts(cls, counts: Counter[str], max_size: int | None = None) -> "Vocab":
        """Number the tokens that were counted; `max_size` as in `build`."""
        if max_size is not None and max_size <= len(SPECIALS):
            raise ValueError(
                f"A vocabulary needs room for its {len(SPECIALS)} specials and a token; "
                f"max_size is {max_size}. Give {len(SPECIALS) + 1} or more."
            )
        words = [token for token in counts if token not in SPECIALS]
        words.sort(key=lambda token: (-counts[token], token))
        room = None if max_size is None else max_size - len(SPECIALS)
        return cls(SPECIALS + tuple(words[:room]))

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of `tokens`; an unknown token gives UNK. BOS and EOS are not added."""
        ids = self._ids
        return [ids.get(token, UNK) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Tokens of `ids`, up to the first EOS; PAD and BOS are dropped, UNK gives "<unk>"."""
        tokens = []
        for i in ids:
            if i == EOS:
                break
            if not 0 <= i < len(self.tokens):
                raise ValueError(
                    f"Ids go from 0 to {len(self.tokens) - 1}; asked for the token of {i}. "
                    f"Is this the vocabulary that the model was trained with?"
                )
            if i not in (PAD, BOS):
                tokens.append(self.tokens[i])
        return tokens

    def save(self, path: str | Path) -> None:
        """Write one token a line (UTF-8): beside `path`, then renamed: never half a file."""
        path = Path(path)
        draft = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            draft.write_bytes(("\n".join(self.tokens) + "\n").encode("utf-8"))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> "Vocab":
        """Read what `save` wrote; a ValueError names a file that is something else."""
        try:
            text = Path(path).read_bytes().decode("utf-8")
            return cls(tuple(text.removesuffix("\n").split("\n")))
        except ValueError as error:  # UnicodeDecodeError is one of them
            raise ValueError(
                f"{path} is not a vocabulary that Vocab.save wrote: {error}"
            ) from error


def build_pair(
    pairs: Iterable[SentencePair],
    source_tokens: str,
    target_tokens: str,
    *,
    max_size: int | None = None,
    max_length: int | None = None,
) -> tuple[Vocab, Vocab]:
    """Both vocabularies, source and target, in one streaming pass over `pairs`.

    `source_tokens` and `target_tokens` say how to cut (see `tokens.split`); `max_size` limits each
    vocabulary; pairs that the length filter drops (see `tokens.fits`) are not counted. In memory
    live the counts only.
    """
    source_counts: Counter[str] = Counter()
    target_counts: Counter[str] = Counter()
    for pair in pairs:
        source, target = split(pair.source, source_tokens), split(pair.target, target_tokens)
        if fits(source, target, max_length):
            source_counts.update(source)
            target_counts.update(target)
    return Vocab.from_counts(source_counts, max_size), Vocab.from_counts(target_counts, max_size)
