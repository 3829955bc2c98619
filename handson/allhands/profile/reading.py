"""Which profiler wrote this file? It is told by the content; the file's name does not matter.

Every fault is one sentence: what the file is, and what to give instead.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allhands.profile import nsight, nvprof, torch_trace
from allhands.profile.launches import Trace

HEAD_BYTES = 1 << 16
SQLITE = b"SQLite format 3\0"
GZIP = b"\x1f\x8b"
OTHERS = (  # files that people give by mistake, by their first bytes
    (b"PK\x03\x04", "a zip archive", "Unpack it first."),
    (b"NVIDIA\x00", "a report of Nsight", "Export it: nsys export --type sqlite FILE.nsys-rep."),
    (b"\xfd7zXZ\x00", "an xz archive", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "Unpack it first."),
    (b"\x80", "a pickle or another binary file", "Give the trace that the profiler exported."),
)
EXPECTED = (
    "Expected a torch.profiler trace (JSON, may be .gz), an Nsight Systems export (sqlite, or csv "
    "of `nsys stats`), or nvprof's csv."
)
ORIGIN = "# origin: "


def read(path: Path | str) -> Trace:
    """Read a profile. Raises ValueError with one sentence, OSError if it cannot be opened."""
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: give one of the traces in it.")
    if not path.exists():
        raise ValueError(f"There is no file {path}.")
    if not path.is_file():  # a pipe can be read only once, and a reader waits for its writer
        raise ValueError(
            f"{path} is not a regular file: a trace is read more than once. Write it into a file "
            f"first, and give that file."
        )
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE))
        if start == SQLITE:
            return nsight.read_sqlite(path)
        with _opened(path, start) as file:
            head = file.read(HEAD_BYTES)
        return _read_text(path, start, head)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path} is a gzip file that is damaged or cut off ({error}). Copy it again."
        ) from error


@contextmanager
def _opened(path: Path, start: bytes) -> Iterator[io.BufferedIOBase]:
    opener = gzip.open if start.startswith(GZIP) else open
    with opener(path, "rb") as file:
        yield file


def _read_text(path: Path, start: bytes, head: bytes) -> Trace:
    if start.startswith(GZIP) and head.startswith((SQLITE, GZIP)):
        what = "an sqlite file" if head.startswith(SQLITE) else "a gzip file once more"
        raise ValueError(f"{path} is {what}, packed by gzip. Unpack it first: gunzip {path.name}.")
    if not head.strip():
        raise ValueError(f"{path} is empty. {EXPECTED}")
    for first, what, advice in OTHERS:
        if head.startswith(first):
            raise ValueError(f"{path} is {what}. {advice}")
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if b"\0" in head and encoding != "utf-16":
        raise ValueError(f"{path} is a binary file. {EXPECTED}")
    text = head.decode(encoding, errors="replace")
    with _opened(path, start) as binary:
        file = io.TextIOWrapper(binary, encoding, errors="replace", newline="")
        if text.lstrip()[:1] in ("{", "["):
            return torch_trace.read(file, path)
        origin = next(
            (line[len(ORIGIN) :].strip() for line in text.splitlines() if line.startswith(ORIGIN)),
            "",
        )
        squeezed = text.replace('"', "").lower()
        if "==nvprof" in squeezed.replace(" ", "") or "time(%),time,calls" in squeezed:
            return nvprof.read(file, path, origin)
        if "start,duration,grid x" in squeezed:
            return nvprof.read(file, path, origin)
        if ",name" in squeezed and ("instances" in squeezed or "duration" in squeezed):
            return nsight.read_csv(file, path, origin)
    raise ValueError(f"{path} is no profile that is known here. {EXPECTED}")
