"""Which lines does a text file hold, and where exactly is it broken?

Text is UTF-8, plain or compressed (.gz, .bz2, .xz), and is read as a stream. A byte order mark and
Windows line ends are tolerated. Everything else that is not clean text is a CorpusError: one
sentence that names the file, the line (counted from 1) and the cure.
"""

import bz2
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Iterator
from typing import IO

MAX_LINE_BYTES = (
    1_000_000  # a longer "line" is no sentence: the file is no text or has no line ends
)
_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_MAGIC = {
    ".gz": re.compile(rb"\x1f\x8b\x08"),
    ".bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    ".xz": re.compile(rb"\xfd7zXZ\x00"),
}
_ARCHIVE = re.compile(r"\.(zip|7z|rar|tar|tgz|tbz2|txz|tar\.\w+)$", re.IGNORECASE)
_OTHER_PACKING = re.compile(r"\.(zst|lz4|lzma|br|Z)$", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")  # all but the tab


class CorpusError(ValueError):
    """The corpus cannot be read; the message is one sentence that names the file and the line."""


def read_lines(path: str) -> Iterator[tuple[int, str]]:
    """Stream (line number from 1, text without its line end) of a text file.

    A file that cannot be right is refused at once; a bad line when its turn comes.
    """
    return _stream(path, _check_file(path))


def _stream(path: str, ending: str) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with _OPENERS.get(ending, open)(path, "rb") as stream:
            while raw := _read_line(stream, path, number + 1):
                number += 1
                yield number, _clean(raw, path, number)
    except EOFError as error:
        raise CorpusError(
            f"{path} breaks off after line {number}: the compressed data is not complete; "
            f"fetch the file again."
        ) from error
    except (zlib.error, lzma.LZMAError, OSError) as error:
        if ending not in _OPENERS:
            raise CorpusError(_unreadable(path, error)) from error
        raise CorpusError(
            f"{path} is damaged after line {number}: the compressed data cannot be unpacked "
            f"({error}); fetch the file again."
        ) from error


def _check_file(path: str) -> str:
    """The ending that says how to unpack; CorpusError where name and content cannot be right."""
    if os.path.isdir(path):
        raise CorpusError(f"{path} is a folder: give one file, or two as X.en:X.ja.")
    if not os.path.exists(path):
        raise CorpusError(f"There is no file {path}: check the name and the folder.")
    if not os.path.isfile(path):
        raise CorpusError(
            f"{path} is no ordinary file, and a corpus is read twice: save it as a file."
        )
    if _ARCHIVE.search(path):
        raise CorpusError(f"{path} is an archive: unpack it and give the text file inside.")
    if _OTHER_PACKING.search(path):
        raise CorpusError(f"{path} is packed in a way that is not read here: use .gz, .bz2 or .xz.")
    try:
        with open(path, "rb") as stream:
            begin = stream.read(10)
    except OSError as error:
        raise CorpusError(_unreadable(path, error)) from error
    ending = os.path.splitext(path)[1].lower()
    if not begin:
        raise CorpusError(f"{path} is empty (0 bytes): a corpus needs at least one line.")
    if ending in _MAGIC:
        if not _MAGIC[ending].match(begin):
            raise CorpusError(
                f"{path} does not begin like a {ending} file, in spite of its name: "
                f"is it plain text, or a web page that says why the download failed?"
            )
        return ending
    for packing, magic in _MAGIC.items():
        if magic.match(begin):
            raise CorpusError(f"{path} holds compressed data: name it {path}{packing}.")
    if begin.startswith(b"PK\x03\x04"):
        raise CorpusError(f"{path} is a zip archive: unpack it and give the text file inside.")
    if begin.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CorpusError(
            f"{path}, line 1: the text is UTF-16, not UTF-8; convert it with "
            f"`iconv -f UTF-16 -t UTF-8 FILE`."
        )
    return ending


def _unreadable(path: str, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or error
    return f"{path} cannot be read ({reason}): check its permissions and its disk."


def _read_line(stream: IO[bytes], path: str, number: int) -> bytes:
    raw = stream.readline(MAX_LINE_BYTES + 1)
    if len(raw) > MAX_LINE_BYTES:
        raise CorpusError(
            f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes, which is no sentence; "
            f"is it a text file with line ends?"
        )
    return raw


def _clean(raw: bytes, path: str, number: int) -> str:
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{path}, line {number}: byte {error.start + 1} is 0x{raw[error.start]:02X}, which "
            f"is not UTF-8 there; convert the file with `iconv -f OLD -t UTF-8 FILE`, where OLD "
            f"may be SHIFT_JIS, EUC-JP or LATIN1."
        ) from error
    if found := _CONTROL.search(text):
        raise CorpusError(
            f"{path}, line {number}: character {found.start() + 1} is the control character "
            f"U+{ord(found[0]):04X}, which has no place in a sentence; remove it."
        )
    return text
