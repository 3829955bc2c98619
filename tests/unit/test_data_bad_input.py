"""Does every bad input get one sentence that names the file, the line and what is wrong?"""

import bz2
import contextlib
import gzip
import io
import lzma
import os
import random
import re
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.data import lines
from allhands.data.corpus import CorpusError, read_pairs

TSV = b"Hello.\tHallo.\nGo on.\tWeiter.\n"


def tar(content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.tsv")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.tsv", content)
    return buffer.getvalue()


# Lines of random letters: they pack badly, so a cut leaves a good part of them.
LONG = b"".join(
    b"%x\t%x\n" % (number.getrandbits(400), number.getrandbits(400))
    for number in [random.Random(0)]
    for _ in range(2000)
)
# {file: content}, spec, what the sentence says. In the name of a file `_` stands for a dot; a
# sentence that begins with ~ is a regular expression.
BAD = {
    # names
    "no name": ({}, "", "A corpus needs a name; got ''"),
    "NUL in the name": ({}, "a\0b", "A corpus needs a name; got 'a\\x00b'"),
    "missing file": ({}, "a.tsv", "There is no file a.tsv"),
    "missing file in a folder": ({}, "no/where/a.tsv.gz", "There is no file no/where/a.tsv.gz"),
    "very long name": ({}, "a" * 5000 + ".tsv", "There is no file aaaa"),
    "drive of another system": ({}, "C:\\data\\a.tsv", "There is no file C:\\data\\a.tsv"),
    "unknown embedded corpus": (
        {},
        "dates/train",
        "no embedded corpus dates/train: embedded are numb",
    ),
    "unknown split": (
        {},
        "numbers_dates/dev",
        "no embedded corpus numbers_dates/dev: embedded are",
    ),
    "no split": ({}, "numbers_dates", "no embedded corpus numbers_dates: embedded are"),
    "up and away": ({}, "numbers_dates/../../corpus", "embedded are numbers_dates/train"),
    "address": ({}, "https://example.org/a.tsv", "is an address: fetch the file first"),
    "folder": ({}, ".", ". is a folder: give one file"),
    "no source side": (
        {"x_de": b"a\n"},
        ":x.de",
        "A colon needs two files, as in X.en:X.ja; found ':x.de'",
    ),
    "no target side": (
        {"x_en": b"a\n"},
        "x.en:",
        "A colon needs two files, as in X.en:X.ja; found 'x.en:'",
    ),
    "missing source": ({"x_de": b"a\n"}, "x.en:x.de", "There is no file x.en:"),
    "missing target": ({"x_en": b"a\n"}, "x.en:x.de", "There is no file x.de:"),
    "folder as a side": ({"x_en": b"a\n"}, "x.en:.", ". is a folder"),
    "one file for both sides": (
        {"x_en": b"a\n"},
        "x.en:./x.en",
        "x.en and ./x.en are one and the same",
    ),
    # columns
    "one column": (
        {"a_tsv": TSV + b"alone\n"},
        "a.tsv",
        "a.tsv, line 3: expected source TAB target",
    ),
    "commas": ({"a_csv": b"a,b\n"}, "a.csv", "a.csv, line 1: expected source TAB target"),
    "four columns": ({"a_tsv": b"a\tb\tc\td\n"}, "a.tsv", "line 1: expected source TAB target"),
    "a line with more": (
        {"a_tsv": TSV + b"a\tb\tc\td\n"},
        "a.tsv",
        "found 4 columns in 'a\\tb\\tc\\td'",
    ),
    "export with a column missing": (
        {"a_tsv": b"1\ta\t2\tb\n3\tc\t4\n"},
        "a.tsv",
        "line 2: expected the four columns id, text, id, text as in the lines before; found 3",
    ),
    "export with a word as id": (
        {"a_tsv": b"1\ta\t2\tb\nx\tc\t4\td\n"},
        "a.tsv",
        "line 2: expected",
    ),
    # lines
    "empty": ({"a_tsv": b""}, "a.tsv", "a.tsv is empty (0 bytes)"),
    "empty sides": ({"x_en": b"", "x_de": b""}, "x.en:x.de", "x.en is empty (0 bytes)"),
    "one empty side": ({"x_en": b"a\n", "x_de": b""}, "x.en:x.de", "x.de is empty (0 bytes)"),
    "only a byte order mark": ({"a_tsv": b"\xef\xbb\xbf"}, "a.tsv", "a.tsv holds blank lines only"),
    "blank lines only": ({"a_tsv": b"\n \n\t\n"}, "a.tsv", "a.tsv holds blank lines only"),
    "shorter source": (
        {"x_en": b"a\n", "x_de": b"a\nb\nc\n"},
        "x.en:x.de",
        "x.en has 1 line and x.de has 3 lines: after line 1 they cannot belong together",
    ),
    "shorter target": (
        {"x_en": b"a\n\n", "x_de": b"a\n"},
        "x.en:x.de",
        "x.en has 2 lines and x.de has 1 line:",
    ),
    "no line ends": (
        {"a_tsv": b"a\t" + b"b" * 1_000_001},
        "a.tsv",
        "line 1: longer than 1,000,000 bytes",
    ),
    # characters
    "Latin-1": (
        {"a_tsv": TSV + b"caf\xe9\tx\n"},
        "a.tsv",
        "a.tsv, line 3: byte 4 is 0xE9, which is not UTF-8",
    ),
    "Shift-JIS": (
        {"x_en": b"a\nb\n", "x_ja": "あ\nい\n".encode("shift-jis")},
        "x.en:x.ja",
        "x.ja, line 1: byte 1 is 0x82, which is not UTF-8",
    ),
    "cut inside a character": ({"a_tsv": "a\tあ".encode()[:-1]}, "a.tsv", "line 1: byte 3 is 0xE3"),
    "overlong UTF-8": ({"a_tsv": b"a\t\xc0\x80\n"}, "a.tsv", "line 1: byte 3 is 0xC0"),
    "half a surrogate pair": ({"a_tsv": b"a\t\xed\xa0\x80\n"}, "a.tsv", "line 1: byte 3 is 0xED"),
    "UTF-16": (
        {"a_tsv": TSV.decode().encode("utf-16")},
        "a.tsv",
        "a.tsv, line 1: the text is UTF-16",
    ),
    "UTF-16 without a mark": (
        {"a_tsv": TSV.decode().encode("utf-16-le")},
        "a.tsv",
        "a.tsv, line 1: character 2 is the control character U+0000",
    ),
    "NUL": (
        {"a_tsv": TSV + b"a\0\tb\n"},
        "a.tsv",
        "a.tsv, line 3: character 2 is the control character U+0000",
    ),
    "escape sequence": (
        {"a_tsv": b"\x1b[31ma\tb\n"},
        "a.tsv",
        "line 1: character 1 is the control character U+001B",
    ),
    "vertical tab": (
        {"x_en": b"a\x0bb\n", "x_de": b"a\n"},
        "x.en:x.de",
        "x.en, line 1: character 2 is the control",
    ),
    "old Mac line ends": (
        {"a_tsv": b"a\tb\rc\td\r"},
        "a.tsv",
        "line 1: character 4 is the control character U+000D",
    ),
    "C1 control": (
        {"a_tsv": "a\t\x85b\n".encode()},
        "a.tsv",
        "line 1: character 3 is the control character U+0085",
    ),
    "line separator": ({"a_tsv": "a\tb\u2028c\n".encode()}, "a.tsv", "control character U+2028"),
    # packing
    "cut gzip": (
        {"a_tsv_gz": gzip.compress(LONG)[:-9000]},
        "a.tsv.gz",
        r"~a\.tsv\.gz breaks off after line \d{3,}:",
    ),
    "cut bz2": (
        {"a_tsv_bz2": bz2.compress(LONG)[:-9000]},
        "a.tsv.bz2",
        "a.tsv.bz2 breaks off after line",
    ),
    "cut xz": (
        {"a_tsv_xz": lzma.compress(LONG)[:-9000]},
        "a.tsv.xz",
        r"~a\.tsv\.xz breaks off after line \d{3,}:",
    ),
    "broken gzip": (
        {"a_tsv_gz": gzip.compress(TSV) + gzip.compress(TSV)[:10] + b"\x07" * 30},  # no such block
        "a.tsv.gz",
        "a.tsv.gz is damaged after line 2:",
    ),
    "broken bz2": (
        {"a_tsv_bz2": bz2.compress(LONG)[:9000] + b"\xff" * 900 + bz2.compress(LONG)[9900:]},
        "a.tsv.bz2",
        "a.tsv.bz2 is damaged after line",
    ),
    "broken xz": (
        {"a_tsv_xz": lzma.compress(LONG)[:9000] + b"\xff" * 900 + lzma.compress(LONG)[9900:]},
        "a.tsv.xz",
        "a.tsv.xz is damaged after line",
    ),
    "wrong checksum": (
        {"a_tsv_gz": gzip.compress(TSV)[:-8] + b"\0" * 8},
        "a.tsv.gz",
        "a.tsv.gz is damaged after line",
    ),
    "rubbish after gzip": (
        {"a_tsv_gz": gzip.compress(TSV) + b"rubbish"},
        "a.tsv.gz",
        "damaged after line 2",
    ),
    "plain text named gz": (
        {"a_tsv_gz": TSV},
        "a.tsv.gz",
        "a.tsv.gz does not begin like a .gz file",
    ),
    "gzip named bz2": (
        {"a_tsv_bz2": gzip.compress(TSV)},
        "a.tsv.bz2",
        "does not begin like a .bz2 file",
    ),
    "gzip without its ending": (
        {"a_tsv": gzip.compress(TSV)},
        "a.tsv",
        "holds compressed data: name it a.tsv.gz",
    ),
    "xz without its ending": (
        {"a_tsv": lzma.compress(TSV)},
        "a.tsv",
        "holds compressed data: name it a.tsv.xz",
    ),
    "bz2 without its ending": (
        {"a_tsv": bz2.compress(TSV)},
        "a.tsv",
        "holds compressed data: name it a.tsv.bz2",
    ),
    "packed twice": (
        {"a_tsv_gz": gzip.compress(gzip.compress(TSV))},
        "a.tsv.gz",
        "a.tsv.gz, line 1: byte 2 is 0x8B",
    ),
    "empty gz": ({"a_tsv_gz": b""}, "a.tsv.gz", "a.tsv.gz is empty (0 bytes)"),
    "gz of nothing": (
        {"a_tsv_gz": gzip.compress(b"")},
        "a.tsv.gz",
        "a.tsv.gz holds blank lines only",
    ),
    "sides of nothing": (
        {"x_gz": gzip.compress(b""), "y_gz": gzip.compress(b"")},
        "x.gz:y.gz",
        "x.gz and y.gz hold no line",
    ),
    "zip": ({"a_zip": zipped(TSV)}, "a.zip", "a.zip is an archive: unpack it"),
    "zip named tsv": ({"a_tsv": zipped(TSV)}, "a.tsv", "a.tsv is a zip archive: unpack it"),
    "tar": ({"a_tar_gz": tar(TSV)}, "a.tar.gz", "a.tar.gz is an archive: unpack it"),
    "tar named gz": (
        {"a_gz": tar(TSV)},
        "a.gz",
        "a.gz, line 1: character 6 is the control character U+0000",
    ),
    "zstd": (
        {"a_tsv_zst": b"\x28\xb5\x2f\xfd"},
        "a.tsv.zst",
        "is packed in a way that is not read here",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_its_sentence(write, case):
    files, spec, said = BAD[case]
    write(**files)
    with pytest.raises(CorpusError) as error:
        list(read_pairs(spec))
    message = str(error.value)
    pattern = said[1:] if said.startswith("~") else re.escape(said)
    assert re.search(pattern, message), message
    assert message.endswith((".", "?"))
    assert "\n" not in message


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_before_it_blocks(write, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorpusError, match="pipe is no ordinary file"):
        list(read_pairs("./pipe"))


def test_a_file_without_permission_is_named(write, monkeypatch):
    write(a_tsv=TSV)

    def refuse(path, mode):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(lines, "open", refuse, raising=False)  # root may read everything
    with pytest.raises(CorpusError, match=r"a\.tsv cannot be read \(Permission denied\)"):
        list(read_pairs("a.tsv"))


def test_a_name_without_meaning_is_refused_before_the_first_pair():
    with pytest.raises(CorpusError):
        read_pairs("no such corpus/at all:nowhere")
    with pytest.raises(CorpusError):
        read_pairs("missing.tsv")


@given(st.binary(max_size=200))
def test_any_bytes_give_pairs_or_a_corpus_error(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("any")
    for name in ("a.tsv", "a.tsv.gz", "a.tsv.bz2", "a.tsv.xz"):
        (folder / name).write_bytes(content)
        with contextlib.suppress(CorpusError):  # and no other error
            assert list(read_pairs(folder / name))


@given(st.text(max_size=20))
def test_any_name_gives_a_corpus_error_or_pairs(name):
    with pytest.raises(CorpusError):
        list(read_pairs(f"no-such-folder/{name}"))
