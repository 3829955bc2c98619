"""Slides: every deck builds, says what a deck must say, fits its pages, and needs no network."""

import re
import shutil
import zipfile
import zlib

import pytest

from allhands.kit import deck, marp, slides, slides_check, timetable

LINK = re.compile(
    r"""<(?!a\b)[^>]+\b(?:src|href|poster|data)=["']?(?:https?:)?//|url\(["']?(?:https?:)?//|@import"""
)
HEAD = "---\nmarp: true\ntitle: A deck with faults\n---\n\n"
NOTES = "\n\n<!--\nTime: 1 min\nAsk: Why?\n-->\n"
TWO = "# It speaks 日本語 too\n\n![runs](figures/opening_reached.svg)" + NOTES
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
def marp_is_here(required) -> None:
    try:
        marp.require()
    except deck.DeckError as error:
        required(False, str(error))


@pytest.fixture(scope="module")
def built(marp_is_here, tmp_path_factory):
    """All decks and one with faults, as HTML; beside them two.md, a deck of two slides."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("slides")
    faulty = "\n---\n\n".join(f"# {slide}{NOTES}" for slide in FAULTY)
    for name, text in {"faulty": faulty, "two": f"{TWO}\n---\n\n{TWO}"}.items():
        (source / f"{name}.md").write_text(HEAD + text, encoding="utf-8")
    decks = [deck.read(name) for name in deck.names()]
    slides.prepare([*decks, deck.read("faulty", source), deck.read("two", source)], folder)
    marp.convert(folder, [*deck.names(), "faulty"], "html")
    return folder


@pytest.fixture(scope="module")
def seen(built) -> list[str]:
    """What is seen on the pages of all decks, and of the one with faults."""
    return slides_check.seen([*deck.names(), "faulty"], built)


def test_every_lab_and_every_talk_has_a_deck():
    assert slides_check.decks_missing() == []


def test_every_deck_says_what_a_deck_must_say():
    assert slides_check.written() == []


def test_every_deck_builds_and_every_slide_fits_its_page(seen):
    assert [sentence for sentence in seen if not sentence.startswith("faulty")] == []


def test_the_html_asks_the_network_for_nothing(built):
    pages = {path.stem for path in built.glob("*.html")}
    asks = {path.stem for path in built.glob("*.html") if LINK.search(path.read_text("utf-8"))}
    assert pages == {*deck.names(), "faulty"}
    assert asks == {"faulty"}


@pytest.mark.parametrize("number", range(1, len(FAULTY) + 1))
def test_a_planted_fault_is_seen_on_its_slide(seen, number):
    said = [each for each in seen if each.startswith(f"faulty, slide {number}:")]
    wanted = list(FAULTY.values())[number - 1]
    assert any(wanted in sentence for sentence in said), said


def test_what_the_network_is_asked_for_and_what_is_lacking_are_said(seen):
    whole = "\n".join(each for each in seen if each.startswith("faulty:"))
    assert "asks the network for http://localhost:9/x.png" in whole
    assert "nowhere.svg" in whole


def test_pdf_and_pptx_hold_all_slides_and_japanese_type(built):
    for format in ("pdf", "pptx"):
        marp.convert(built, ["two"], format)
    pdf = inflated((built / "two.pdf").read_bytes())
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 2
    assert b"IPAexGothic" in pdf
    with zipfile.ZipFile(built / "two.pptx") as pptx:
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
