"""A deck's source: slides and notes are told apart, listings are cut out, faults get a sentence."""

import pytest

from allhands.kit import deck, slides, slides_check

HEAD = "---\nmarp: true\ntitle: A deck\n---\n\n"
NOTES = "<!--\nTime: 1.5 min\nAsk: Why?\nThey ask: Who?\nAnswer: We.\n-->\n"
SLIDE = f"# One thing is shown\n\n![a](figures/a.svg)\n\n<!-- drawn: by hand -->\n\n{NOTES}"


def read(tmp_path, text: str) -> deck.Deck:
    (tmp_path / "a.md").write_text(HEAD + text, encoding="utf-8")
    return deck.read("a", tmp_path)


def said(tmp_path, text: str) -> str:
    """What the rules for one slide say."""
    (tmp_path / "figures").mkdir(exist_ok=True)
    (tmp_path / "figures" / "a.svg").touch()
    (slide,) = read(tmp_path, text).slides
    return "\n".join(slides_check._slide(slide, tmp_path))


def test_slides_are_parted_by_a_line_but_not_inside_code_or_notes(tmp_path):
    code = "```\n---\n```"
    found = read(tmp_path, f"# One\n\n{code}\n\n<!--\nTime: 2 min\n---\n-->\n\n---\n\n# Two\n")
    assert [slide.titles for slide in found.slides] == [["One"], ["Two"]]
    assert [slide.minutes for slide in found.slides] == [2.0, None]


def test_notes_are_neither_directives_nor_marker_lines(tmp_path):
    (slide,) = read(tmp_path, f"<!-- _class: lead -->\n{SLIDE}").slides
    assert slide.is_class("lead")
    assert slide.markers == [("drawn", "by hand")]
    assert slide.notes.split("\n")[1:3] == ["Time: 1.5 min", "Ask: Why?"]


def test_a_good_slide_gets_no_sentence(tmp_path):
    assert said(tmp_path, SLIDE) == ""


FAULTS = {
    "two titles": (SLIDE.replace("![a]", "# Another one\n![a]"), "has 2 titles"),
    "no title": (SLIDE.replace("# One thing is shown", "words"), "has 0 titles"),
    "a colon": (SLIDE.replace("shown\n", "shown:\n"), "ends with ':'"),
    "a label": (SLIDE.replace("One thing is shown", "Results"), "is a label"),
    "no time": (SLIDE.replace("Time: 1.5 min", "Slowly"), "no line `Time: 2 min`"),
    "too long": (SLIDE.replace("1.5 min", "9 min"), "takes 9 min"),
    "no question": (SLIDE.replace("Ask: Why?\n", ""), "no line `Ask: ...`"),
    "no answer": (SLIDE.replace("Answer: We.\n", ""), "1 lines `They ask:` and 0"),
    "two things": (SLIDE.replace("<!-- d", "$$\na = b\n$$\n\n<!-- d"), "figure and equation"),
    "table and figure": (SLIDE.replace("<!-- d", "|a|\n|---|\n|b|\n\n<!-- d"), "figure and table"),
    "no caption": (SLIDE.replace("<!-- drawn: by hand -->", ""), "without one of the captions"),
    "a full stop": (SLIDE.replace("by hand", "by hand."), "no full stop at their end"),
    "no marker": (
        SLIDE.replace("drawn:", "drwan:"),
        "comment 'drwan: by hand', which is",
    ),
    "elsewhere": (SLIDE.replace("figures/a.svg", "a.svg"), "not in slides/figures"),
    "no figure": (SLIDE.replace("a.svg", "b.svg"), "does slides/figures.py draw it?"),
    "dead link": (SLIDE.replace("by hand", "[there](../nowhere.md)"), "links to ../nowhere.md"),
    "long code": (SLIDE.replace("![a](figures/a.svg)", "```\n" + "x\n" * 13 + "```"), "12 lines"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_gets_its_sentence(tmp_path, name):
    text, wanted = FAULTS[name]
    assert wanted in said(tmp_path, text)


def test_a_deck_without_head_or_with_an_unknown_key_is_refused(tmp_path):
    (tmp_path / "a.md").write_text("# Words\n")
    with pytest.raises(deck.DeckError, match="must begin with"):
        deck.read("a", tmp_path)
    with pytest.raises(deck.DeckError, match="There is no deck"):
        deck.read("b", tmp_path)
    (tmp_path / "a.md").write_text("---\nmarp: true\ntitle: A\ntheme: gaia\n---\n")
    with pytest.raises(deck.DeckError, match="key theme"):
        deck.read("a", tmp_path)


MODULE = '''"""A module."""

RATES = (1, 2)


@cache
def double(x: int) -> int:
    """Twice x.

    Long words.
    """
    # a comment
    return 2 * x


class Box:
    """A box."""

    def open(self):
        return True
'''


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "handson" / "allhands" / "part"
    folder.mkdir(parents=True)
    (folder / "shown.py").write_text(MODULE)
    (folder / "long.py").write_text("def long():\n" + "    x = 1\n" * 12)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("allhands.part.shown:RATES", "RATES = (1, 2)"),
        (
            "allhands.part.shown:double",
            "@cache\ndef double(x: int) -> int:\n    # a comment\n    return 2 * x",
        ),
        ('allhands.part.shown:double from="#" to="return"', "# a comment\nreturn 2 * x"),
        ("allhands.part.shown:Box.open", "def open(self):\n    return True"),
        ("allhands.part.shown:Box", "class Box:\n    def open(self):\n        return True"),
        ('handson/allhands/part/shown.py from="RATES" to="RATES"', "RATES = (1, 2)"),
    ],
)
def test_a_listing_is_the_files_own_text_without_docstring_and_dedented(root, words, wanted):
    assert deck.listing(words, root).text == wanted


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("allhands.part.shown:triple", "names 'triple', which is not in that file"),
        ("allhands.part.gone:double", "which is not there"),
        ('allhands.part.shown:double from="yield"', "has 'yield' in it"),
        ("allhands.part.long:long", "has 13 lines; a slide shows 12"),
        ("allhands.part.shown:double until=return", "is not `module:name`"),
    ],
)
def test_a_listing_that_cannot_be_made_says_why(root, words, sentence):
    with pytest.raises(deck.DeckError, match=sentence):
        deck.listing(words, root)


def test_the_build_names_the_slide_whose_marker_line_is_wrong(tmp_path):
    faulty = read(tmp_path, "# One\n\n---\n\n# Two\n\n<!-- table: nothing -->\n")
    with pytest.raises(deck.DeckError, match=r"a\.md, slide 2: There is no table 'nothing'"):
        slides.markdown(faulty)


def test_links_lead_from_the_built_deck_to_the_same_file(tmp_path):
    text = (
        "# A b c\n\n[x](../notebooks/x.ipynb) [y](README.md) [z](https://z) ![f](figures/f.svg)\n"
    )
    built = slides.markdown(read(tmp_path, text))
    for wanted in ("(../../notebooks/x.ipynb)", "(../../slides/README.md)", "(https://z)"):
        assert wanted in built
    assert "(figures/f.svg)" in built
