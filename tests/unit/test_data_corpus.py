"""Are pairs read from every form of corpus? (For bad input see test_data_bad_input.py.)"""

import bz2
import gzip
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allhands.data.corpus import Pair, embedded, read_pairs

TSV = b"Hello.\tHallo.\nGo on.\tWeiter.\n"
PAIRS = [("Hello.", "Hallo."), ("Go on.", "Weiter.")]


def texts(spec):
    return [(pair.source, pair.target) for pair in read_pairs(spec)]


# --- good input


def test_two_columns(write):
    write(a_tsv=TSV)
    assert list(read_pairs("a.tsv")) == [
        Pair("Hello.", "Hallo.", "a.tsv:1"),
        Pair("Go on.", "Weiter.", "a.tsv:2"),
    ]


def test_three_columns_hold_a_credit(write):
    write(a_tsv=b"Hello.\tHallo.\tCC-BY 2.0 #1 & #2\nGo on.\tWeiter.\n")
    assert texts("a.tsv") == PAIRS


def test_tatoeba_s_export_of_pairs(write):
    write(a_tsv=b"1276\tHello.\t34\tHallo.\n1277\tGo on.\t35\tWeiter.\n")
    assert texts("a.tsv") == PAIRS


def test_numbers_as_text_are_no_ids(write):
    write(a_tsv=b"1\tone\n2\ttwo\tcredit\n")
    assert texts("a.tsv") == [("1", "one"), ("2", "two")]


def test_aligned_files(write):
    write(x_en=b"Hello.\nGo on.\n", x_de=b"Hallo.\nWeiter.\n")
    assert list(read_pairs("x.en:x.de")) == [
        Pair("Hello.", "Hallo.", "x.en:1"),
        Pair("Go on.", "Weiter.", "x.en:2"),
    ]


def test_blank_lines_are_skipped_in_a_tsv_and_kept_in_aligned_files(write):
    write(
        a_tsv=b"\nHello.\tHallo.\n \t\n", x_en=b"Hello.\n\nGo on.\n", x_de=b"Hallo.\n \nWeiter.\n"
    )
    assert [pair.where for pair in read_pairs("a.tsv")] == ["a.tsv:2"]
    assert texts("x.en:x.de") == [PAIRS[0], ("", " "), PAIRS[1]]


def test_the_last_line_needs_no_end(write):
    write(a_tsv=TSV.rstrip(b"\n"), x_en=b"Hello.\nGo on.", x_de=b"Hallo.\nWeiter.\n")
    assert texts("a.tsv") == texts("x.en:x.de") == PAIRS


def test_windows_line_ends_and_byte_order_marks_are_tolerated(write):
    write(
        a_tsv=b"\xef\xbb\xbf" + TSV.replace(b"\n", b"\r\n"),
        x_en=b"\xef\xbb\xbfHello.\r\nGo on.\r\n",
        x_de=b"Hallo.\nWeiter.\n",
    )
    assert texts("a.tsv") == texts("x.en:x.de") == PAIRS


@pytest.mark.parametrize(
    ("ending", "pack"), [("gz", gzip), ("bz2", bz2), ("xz", lzma), ("GZ", gzip)]
)
def test_compressed_files(write, ending, pack):
    write(
        **{
            f"a_tsv_{ending}": pack.compress(TSV),
            f"x_en_{ending}": pack.compress(b"Hello.\nGo on.\n"),
            "x_de": b"Hallo.\nWeiter.\n",
        }
    )
    assert texts(f"a.tsv.{ending}") == texts(f"x.en.{ending}:x.de") == PAIRS


def test_two_gzip_files_in_one(write):
    write(a_tsv_gz=gzip.compress(TSV[:15]) + gzip.compress(TSV[15:]))
    assert texts("a.tsv.gz") == PAIRS


def test_a_colon_in_a_name_is_part_of_the_name_where_such_files_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("C:a.tsv", "C:x.en", "C:x.de"):
        (tmp_path / name).write_bytes(TSV)
    assert texts("C:a.tsv") == PAIRS
    assert [pair.where for pair in read_pairs("C:x.en:C:x.de")] == ["C:x.en:1", "C:x.en:2"]


def test_the_home_folder_is_found_on_both_sides(write, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(x_en=b"Hello.\nGo on.\n", x_de=b"Hallo.\nWeiter.\n")
    assert texts("~/x.en:~/x.de") == PAIRS


def test_a_file_wins_over_an_embedded_corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers_dates").mkdir()
    assert len(texts("numbers_dates/test")) == 500  # a folder of that name is no corpus
    (tmp_path / "numbers_dates" / "test").write_bytes(TSV)
    assert texts("numbers_dates/test") == PAIRS


def test_pairs_are_streamed(write, monkeypatch):
    """The first pair is there before the end of the file is read."""
    write(a_tsv=TSV + b"broken")
    pairs = read_pairs("a.tsv")
    assert next(pairs).source == "Hello."


sentence = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])).map(
    lambda text: text.replace("\ufeff", "")
)


@given(
    st.lists(st.tuples(sentence, sentence), min_size=1), st.sampled_from(["", ".gz", ".bz2", ".xz"])
)
def test_what_was_written_is_read(tmp_path_factory, pairs, ending):
    folder = tmp_path_factory.mktemp("corpus")
    pack = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[ending]
    for side, name in enumerate(("x", "y")):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"{name}{ending}").write_bytes(pack(text.encode()))
    assert texts(f"{folder}/x{ending}:{folder}/y{ending}") == pairs


def test_the_embedded_corpora_are_listed():
    assert embedded() == [
        f"{corpus}/{split}"
        for corpus in ("numbers_dates", "tatoeba_short")
        for split in ("train", "valid", "test")
    ]
