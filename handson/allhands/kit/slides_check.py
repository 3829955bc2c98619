"""Is a deck as the house wants it? Rules on the Markdown, and on the pages as Chromium shows them.

Each rule returns sentences that begin with deck and slide; an empty list is a good deck.
"""

import re
from pathlib import Path

from allhands.kit import deck, marp, timetable
from allhands.kit.deck import CAPTIONS, MARKER, Deck, Slide
from allhands.labs import COURSE

LAB_SLIDES = (10, 20)
OTHER_SLIDES = (4, 20)  # decks that belong to no lab
MINUTES = (0.5, 4.0)  # of one slide
FIGURE_TYPE_PX = 11.0  # the smallest type in a figure, on a page of 1280 x 720


def written(names: list[str] | None = None, folder: Path = deck.SLIDES) -> list[str]:
    """What is wrong in the Markdown of these decks."""
    talk_min = timetable.load().talk_min
    labs = COURSE.labs()
    found = []
    for name in names or deck.names(folder):
        source = deck.read(name, folder)
        low, high = LAB_SLIDES if name in labs else OTHER_SLIDES
        n_slides = len(source.slides)
        if not low <= n_slides <= high:
            found.append(f"{name}: has {n_slides} slides; {low} to {high} are wanted.")
        found += _minutes(source, talk_min)
        for slide in source.slides:
            found += [f"{name}, slide {slide.number}: {each}" for each in _slide(slide, folder)]
    return found


def decks_missing(folder: Path = deck.SLIDES) -> list[str]:
    """Labs and talks that have no deck."""
    wanted = {*COURSE.labs(), *timetable.load().talk_min} - set(deck.names(folder))
    return [f"slides/{name}.md is not there." for name in sorted(wanted)]


def _minutes(source: Deck, talk_min: dict[str, int]) -> list[str]:
    if source.name not in talk_min:
        return [f"{source.name}: has no minutes under [talk] in timetable.toml."]
    total = sum(slide.minutes or 0 for slide in source.slides)
    if total != talk_min[source.name]:
        return [
            f"{source.name}: the notes' times add up to {total:g} min, and timetable.toml gives "
            f"this talk {talk_min[source.name]} min."
        ]
    return []


def _slide(slide: Slide, folder: Path) -> list[str]:
    return (
        _title(slide) + _notes(slide) + _comments(slide) + _one_thing(slide) + _files(slide, folder)
    )


def _title(slide: Slide) -> list[str]:
    titles = slide.titles
    if len(titles) != 1:
        return [f"has {len(titles)} titles; one line that begins with `# ` is wanted."]
    if titles[0].endswith((":", ".")):
        return [f"the title {titles[0]!r} ends with {titles[0][-1]!r}: a claim has no such sign."]
    if not slide.is_class("lead") and len(titles[0].split()) < 3:
        return [f"the title {titles[0]!r} is a label; a claim (a sentence with a verb) is wanted."]
    return []


def _notes(slide: Slide) -> list[str]:
    found = []
    low, high = MINUTES
    if slide.minutes is None:
        found.append("its notes have no line `Time: 2 min`.")
    elif not low <= slide.minutes <= high:
        found.append(f"takes {slide.minutes:g} min; {low:g} to {high:g} are wanted.")
    if not slide.is_class("lead") and not re.search(r"^Ask: *\S", slide.notes, re.MULTILINE):
        found.append("its notes have no line `Ask: ...`, the question before the slide turns.")
    asked = len(re.findall(r"^They ask:", slide.notes, re.MULTILINE))
    answers = len(re.findall(r"^Answer:", slide.notes, re.MULTILINE))
    if asked != answers:
        found.append(f"its notes have {asked} lines `They ask:` and {answers} lines `Answer:`.")
    return found


def _comments(slide: Slide) -> list[str]:
    """A comment of one line that says nothing to anybody: a marker line with a wrong word."""
    comments = deck.COMMENT.findall(deck.FENCE.sub("", MARKER.sub("", slide.text)))
    return [
        f"has the comment {comment.strip()!r}, which is no marker line: they begin with listing, "
        f"table, {', '.join(CAPTIONS)} or _class."
        for comment in comments
        if "\n" not in comment.strip() and not re.match(r" *_class: *\w+ *$", comment)
    ]


def things(slide: Slide) -> list[str]:
    """What a slide shows under its title: figures, listings, tables, equations."""
    kinds = ["figure" for _ in slide.images]
    kinds += [kind for kind, _ in slide.markers if kind in ("listing", "table")]
    kinds += ["code" for _ in deck.FENCE.finditer(slide.text)]
    kinds += ["table" for _ in re.finditer(r"^\|[ :|-]+\|$", slide.shown, re.MULTILINE)]
    kinds += ["equation"] * (slide.shown.count("$$") // 2)
    return kinds


def _one_thing(slide: Slide) -> list[str]:
    kinds, found = things(slide), []
    if len(kinds) > 1:
        found.append(f"shows {' and '.join(kinds)}; one of them is wanted.")
    for code in deck.FENCE.finditer(slide.text):
        if len(code[0].splitlines()) - 2 > deck.LISTING_LINES:
            found.append(f"has code of more than {deck.LISTING_LINES} lines.")
    for kind, words in slide.markers:
        if kind in CAPTIONS and words.endswith("."):
            found.append(f"has the caption {words!r}: captions have no full stop at their end.")
    if slide.images and not any(kind in CAPTIONS for kind, _ in slide.markers):
        found.append(f"has a figure without one of the captions {', '.join(CAPTIONS)}.")
    return found


def _files(slide: Slide, folder: Path) -> list[str]:
    found = []
    for image in slide.images:
        if not image.startswith("figures/"):
            found.append(f"shows {image}, which is not in slides/figures.")
        elif not (folder / image).is_file():
            found.append(f"shows {image}, which is not there: does slides/figures.py draw it?")
    for link in slide.links:
        if not re.match(r"[a-z]+:|#", link) and not (folder / link.split("#")[0]).exists():
            found.append(f"links to {link}, which is not there.")
    return found


def seen(names: list[str], built: Path) -> list[str]:
    """What is wrong on the pages of <name>.html in `built`, as Chromium shows them."""
    found = []
    for name, page in marp.measure(built, names).items():
        found += [f"{name}: asks the network for {url}." for url in page["asked"]]
        found += [f"{name}: lacks the file {url}." for url in page["lacking"]]
        if not page["slides"]:
            found.append(f"{name}: its HTML shows no slides.")
        for number, slide in enumerate(page["slides"], 1):
            sentences = slide["found"] + [
                sentence
                for figure in slide["figures"]
                if (
                    sentence := _figure_type(
                        built / "figures" / figure["name"], figure["px_per_pt"]
                    )
                )
            ]
            found += [f"{name}, slide {number}: {each}" for each in sentences]
    return found


def _figure_type(path: Path, px_per_pt: float) -> str:
    """A sentence if a figure's smallest type is too small on the page.

    matplotlib draws a text of n points as outlines with the scale n / 100.
    """
    if not path.is_file():
        return ""
    scales = re.findall(r"\) scale\(([\d.]+) -", path.read_text(encoding="utf-8"))
    smallest_px = min((100 * float(scale) * px_per_pt for scale in scales), default=FIGURE_TYPE_PX)
    if smallest_px > FIGURE_TYPE_PX - 0.05:
        return ""
    return (
        f"the figure {path.name} has type of {smallest_px:.1f} px; {FIGURE_TYPE_PX:g} at least: "
        "draw it with fewer inches or larger type, or show a part of it."
    )
