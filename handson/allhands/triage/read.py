"""How does a log become lines, whatever its size and encoding, in flat memory?

A line here is what a terminal would show as one write: physical lines are split at carriage
returns too, so that a progress bar's last write and a label behind it stand alone. `number` counts
newlines, from 1, as an editor does. Compressed files (gzip, xz, bzip2) are known by their first
bytes, UTF-16 by its byte order mark or its zeros.
"""

import bz2
import codecs
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 1 << 22
LONGEST_BYTES = 1 << 16  # of one line; the middle of a longer one is left out
CONTROLS = bytes((*range(1, 8), *range(14, 27), 28, 29, 30, 31))  # which no text holds
SHARE_OF_ZEROS = 0.05  # more zero bytes than this, and a file is no text
OPENERS = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ": lzma.open, b"BZh": bz2.open}
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]{2,}")


class UnreadableLog(ValueError):
    """A file that is no log; its text is a sentence for the user."""


def open_log(path: Path) -> tuple[BinaryIO, str]:
    """A binary stream of the unpacked file, and its encoding ("utf-8" when nothing says more).

    Raises UnreadableLog for what is missing, no file, empty, not permitted or not text.
    """
    if path.is_dir():
        raise UnreadableLog(f"{path} is a folder, and a log is a file: name the files in it.")
    try:
        with path.open("rb") as file:
            start = file.read(6)
        opener = next((o for magic, o in OPENERS.items() if start.startswith(magic)), open)
        stream = opener(path, "rb")
        head = stream.read(BLOCK_BYTES)
        stream.seek(0)
    except FileNotFoundError as error:
        raise UnreadableLog(f"There is no file {path}: look at the name of the log.") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UnreadableLog(_why(path, error)) from error
    if not head.strip(b"\0\r\n\t "):
        stream.close()
        raise UnreadableLog(f"{path} holds no text: the job wrote nothing, or it is another file.")
    encoding = next((e for mark, e in BYTE_ORDER_MARKS.items() if head.startswith(mark)), None)
    if encoding is None:
        encoding = _without_mark(head)
    if encoding is None:
        stream.close()
        raise UnreadableLog(f"{path} is not text (it holds binary data): give the job's log.")
    return stream, encoding


def _without_mark(head: bytes) -> str | None:
    zeros = head.count(0) / len(head)
    if zeros > 0.3 and len(head) > 3:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        if odd > 10 * even:
            return "utf-16-le"
        if even > 10 * odd:
            return "utf-16-be"
    controls = len(head) - len(head.translate(None, CONTROLS))
    if zeros > SHARE_OF_ZEROS or controls > SHARE_OF_ZEROS * len(head):
        return None
    return "utf-8"


def _why(path: Path, error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f"{path} may not be read: ask its owner, or copy it."
    if isinstance(error, (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)):
        return f"{path} is compressed and broken or cut short ({error}): copy or pack it again."
    return f"{path} cannot be read: {error.strerror or error}."


def blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines as (number of the first line, text in UTF-8 or as it was).

    Raises UnreadableLog, also in the middle of a broken compressed file.
    """
    stream, encoding = open_log(path)
    with stream:
        number = 1
        for data, ended in _whole_lines(_utf8(path, stream, encoding)):
            yield number, data
            number += data.count(b"\n") + ended


def _utf8(path: Path, stream: BinaryIO, encoding: str) -> Iterator[bytes]:
    decoder = None
    if encoding != "utf-8":
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    while True:
        try:
            data = stream.read(BLOCK_BYTES)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            raise UnreadableLog(_why(path, error)) from error
        if not data:
            return
        yield data if decoder is None else decoder.decode(data).encode("utf-8", "replace")


def _whole_lines(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Cut the stream after newlines (True), or in a long line after a carriage return (False).

    A line without either that grows too long keeps its start and its end.
    """
    rest = b""
    for piece in pieces:
        data = rest + piece if rest else piece
        end = data.rfind(b"\n")
        ended = end >= 0
        if not ended and len(data) > BLOCK_BYTES:
            end = data.rfind(b"\r")
        if end < 0:
            rest = data if len(data) <= 2 * BLOCK_BYTES else shortened(data)
            continue
        yield data[:end], ended
        rest = data[end + 1 :]
    if rest:
        yield rest, False


def shortened(data: bytes) -> bytes:
    """A line of at most LONGEST_BYTES: its start and its end."""
    if len(data) <= LONGEST_BYTES:
        return data
    half = LONGEST_BYTES // 2
    return data[:half] + b" ... " + data[-half:]


def decoded(data: bytes) -> str:
    """One line as text: UTF-8, else a Japanese code page if that gives Japanese, else Latin-1.

    Colours and other terminal sequences, and zero bytes, are removed.
    """
    data = shortened(data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = _other_encoding(data)
    if "\x1b" in text:
        text = ANSI.sub("", text)
    return text.replace("\0", "") if "\0" in text else text


def _other_encoding(data: bytes) -> str:
    for encoding in ("euc_jp", "cp932"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if 2 * sum(map(len, JAPANESE.findall(text))) > sum(letter > "\x7f" for letter in text):
            return text
    text = data.decode("utf-8", "replace")
    strange = sum(letter > "\x7f" and letter != "\ufffd" for letter in text)
    return text if strange > text.count("\ufffd") else data.decode("latin-1")


RANK_IN_NAME = re.compile(
    r"rank[._-]?(\d+)|(?:^|/)(\d+)/(?:std(?:out|err)|error)[\w.]*$"
    r"|(?:^|/)(?:out|err|log|stdout|stderr)[._-](\d+)$|slurm-\d+[._-](\d+)\.\w+$"
    r"|(?:^|/)[\w-]*?[._](\d+)\.(?:out|err|log|txt)$"
)


def rank_of_file(path: Path) -> int | None:
    """The rank that a file's name or folder tells, as in rank.3/stderr, 0/stdout.log, out.2."""
    found = list(RANK_IN_NAME.finditer(path.as_posix()))
    return int(next(g for g in found[-1].groups() if g)) if found else None
