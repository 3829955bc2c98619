"""Slides: every deck builds, says what a deck must say, fits its pages, and needs no network."""

import os
import re
import shutil
import zipfile
import zlib

import pytest

from allhands.kit import deck, marp, slides, slides_check, timetable

LINK = re.compile(
    r"""(?:src|href|poster|data)=["']?(?:https?:)?//|url\(["']?(?:https?:)?//|@import"""
)
HEAD = "---\nmarp: true\ntitle: A deck with faults\n---\n\n"
NOTES = "\n\n<!--\nTime: 1 min\nAsk: Why?\n-->\n"
FAULTY = {  # what a slide shows under its title, and a part of the sentence that it must get
    "This list does not end\n\n" + "- one more line\n" * 20: "px over the bottom edge",
    "This word is long\n\n" + "W" * 120: "px over the right edge",
    'This text is tiny\n\n<p style="font-size: 9px">who can read this?</p>': "type of 9 px",
    'These lie on each other\n\nbelow\n\n<p style="margin-top: -60px">above</p>': "on each other",
    'This box cuts\n\n<div style="height: 40px; overflow: hidden">a<br>b<br>c</div>': "is cut by",
    'This picture is small\n\n<img src="figures/opening_reached.svg" width="200">': "too small",
    'This picture is lacking\n\n<img src="figures/nowhere.svg">': "cannot be shown",
    "This figure has small type\n\n![six ways](figures/lab2_dataparallel_ways.svg)": "has type of",
    "This title goes on and on, " * 3: "the title takes 2 lines; 1 at most",
    'This asks the network\n\n<img src="http://localhost:9/x.png" width="900">': "cannot be shown",
}


@pytest.fixture(scope="module")
def marp_is_here() -> None:
    try:
        marp.require()
    except deck.DeckError as error:
        say = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        say(str(error))


@pytest.fixture(scope="module")
def built(marp_is_here, tmp_path_factory):
    """All decks as HTML, in a folder of their own."""
    folder = tmp_path_factory.mktemp("slides")
    slides.build(deck.names(), folder, ("html",))
    return folder


@pytest.fixture(scope="module")
def faulty(marp_is_here, tmp_path_factory):
    """What is seen in a deck of faults, slide by slide, and of the whole deck."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("faulty")
    text = HEAD + "\n---\n\n".join(f"# {slide}{NOTES}" for slide in FAULTY)
    (source / "faulty.md").write_text(text, encoding="utf-8")
    slides.prepare([deck.read("faulty", source)], folder)
    marp.convert(folder, ["faulty"], "html")
    return slides_check.seen(["faulty"], folder)


def test_every_lab_and_every_talk_has_a_deck():
    assert slides_check.decks_missing() == []


def test_every_deck_says_what_a_deck_must_say():
    assert slides_check.written() == []


def test_every_deck_builds_and_every_slide_fits_its_page(built):
    assert slides_check.seen(deck.names(), built) == []


def test_the_html_asks_the_network_for_nothing(built):
    pages = list(built.glob("*.html"))
    assert len(pages) == len(deck.names())
    assert [page.name for page in pages if LINK.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("number", range(1, len(FAULTY) + 1))
def test_a_planted_fault_is_seen_on_its_slide(faulty, number):
    said = [each for each in faulty if each.startswith(f"faulty, slide {number}:")]
    wanted = list(FAULTY.values())[number - 1]
    assert any(wanted in sentence for sentence in said), said


def test_what_the_network_is_asked_for_and_what_is_lacking_are_said(faulty):
    whole = "\n".join(each for each in faulty if not each.startswith("faulty, slide"))
    assert "asks the network for http://localhost:9/x.png" in whole
    assert "nowhere.svg" in whole


def test_pdf_and_pptx_hold_all_slides_and_japanese_type(marp_is_here, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    text = "# It speaks 日本語 too\n\n![runs](figures/opening_reached.svg)" + NOTES
    (source / "two.md").write_text(f"{HEAD}{text}\n---\n\n{text}", encoding="utf-8")
    slides.prepare([deck.read("two", source)], tmp_path)
    for format in ("pdf", "pptx"):
        marp.convert(tmp_path, ["two"], format)
    pdf = inflated((tmp_path / "two.pdf").read_bytes())
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 2
    assert b"IPAexGothic" in pdf
    with zipfile.ZipFile(tmp_path / "two.pptx") as pptx:
        pages = [
            name for name in pptx.namelist() if re.fullmatch(r"ppt/slides/slide\d+\.xml", name)
        ]
        notes = b"".join(pptx.read(name) for name in pptx.namelist() if "notesSlide" in name)
    assert len(pages) == 2
    assert b"Ask: Why?" in notes


def inflated(pdf: bytes) -> bytes:
    """A PDF with its compressed streams opened."""
    opened = [pdf]
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        try:
            opened.append(zlib.decompress(stream))
        except zlib.error:  # a picture or a typeface, packed in another way
            continue
    return b"\n".join(opened)


def test_the_timetable_page_is_the_one_that_is_written_again():
    assert timetable.PAGE.read_text(encoding="utf-8") == timetable.page(timetable.load())


def test_what_is_lacking_is_a_sentence_with_its_cure(monkeypatch):
    found = shutil.which
    monkeypatch.delenv("CHROME_PATH", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert [s.split(":")[0] for s in marp.missing()] == [
        "Node.js was not found",
        "Chromium was not found",
    ]
    monkeypatch.setattr(shutil, "which", found)
    monkeypatch.setenv("CHROME_PATH", "/nowhere/chromium")
    assert any("CHROME_PATH is /nowhere/chromium" in sentence for sentence in marp.missing())
    with pytest.raises(deck.DeckError, match="CHROME_PATH"):
        marp.require()
