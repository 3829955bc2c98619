"""Build the decks of slides: HTML, PDF and PPTX into build/slides. For authors and speakers.

    python -m allhands.kit.slides                     # all decks, three formats, and the checks
    python -m allhands.kit.slides opening --html      # one deck, HTML only: the quick way
    python -m allhands.kit.slides opening --sheet     # build/slides/opening.sheet.png: all pages

The formats of slides/*.md are in allhands/kit/deck.py and slides/README.md. What is built stands by
itself: figures and typefaces lie beside the HTML, and nothing is fetched.
"""

import argparse
import os
import re
import shutil
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from allhands.kit import deck, marp, slide_type, slides_check, timetable
from allhands.kit.deck import CAPTIONS, MARKER, ROOT, SLIDES, Deck, DeckError, Slide

BUILD = ROOT / "build" / "slides"
FONTS = {
    "@fontsource/source-sans-3": (
        "source-sans-3-latin-400-normal.woff2",
        "source-sans-3-latin-400-italic.woff2",
        "source-sans-3-latin-600-normal.woff2",
    ),
    "@fontsource/source-code-pro": (
        "source-code-pro-latin-400-normal.woff2",
        "source-code-pro-latin-600-normal.woff2",
    ),
}


def markdown(source: Deck) -> str:
    """The deck as Marp reads it, from build/slides: marker lines replaced, head completed.

    Raises DeckError, with deck and slide, if a marker line cannot be followed.
    """
    head = [
        "---", "marp: true", "theme: allhands", "math: mathjax", "paginate: true",
        f"title: {source.title}", f"footer: {source.name}", "---", "",
    ]  # fmt: skip
    slides = []
    for slide in source.slides:
        try:
            slides.append(_links(_sized(slide, _replaced(slide))))
        except ValueError as error:
            raise DeckError(f"{source.path.name}, slide {slide.number}: {error}") from error
    return "\n".join(head) + "\n\n---\n\n".join(slides) + "\n"


def _replaced(slide: Slide) -> str:
    return MARKER.sub(lambda found: _shown(found[1], found[2]), slide.text)


def _shown(kind: str, words: str) -> str:
    if kind in CAPTIONS:
        return _caption(kind, words)
    if kind == "table":
        return timetable.table(words)
    piece = deck.listing(words)
    code = f"```{piece.language}\n{piece.text}\n```"
    return f"{code}\n\n{_caption('listing', f'`{piece.source}`')}"


def _sized(slide: Slide, text: str) -> str:
    """Listings, tables and a slide's list of words in the type that slide_type.py gives them."""
    if slide.is_class("words"):
        text = deck.LIST.sub(lambda found: _in_type(found[0], slide_type.list_px(found[0])), text)
    if not slide.is_class("timetable"):
        text = deck.TABLE.sub(_table, text)
    return deck.FENCE.sub(lambda found: _in_type(found[0], slide_type.listing_px(found[0])), text)


def _table(found: re.Match) -> str:
    type = slide_type.table_type(found[0])
    return _in_type(found[0], type.size_px, f"; --row: {type.row_em:g}em") + "\n"


def _in_type(markdown: str, size_px: float, style: str = "") -> str:
    return (
        f'<div class="shown" style="font-size: {size_px:g}px{style}">\n\n'
        f"{markdown.strip()}\n\n</div>"
    )


def _caption(kind: str, words: str) -> str:
    """A paragraph in the size of a footnote, with a mark that says what kind of thing is shown."""
    text = " ".join(words.split())
    return f'<div class="caption">\n\n<b class="{kind}">{kind}</b> {text}\n\n</div>'


def _links(text: str) -> str:
    """Links of slides/<name>.md as build/slides needs them; figures are copied, so theirs stay."""

    def moved(found: re.Match) -> str:
        target = found[2]
        if re.match(r"[a-z]+:|#|figures/", target):
            return found[0]
        return f"{found[1]}({os.path.normpath(f'../../slides/{target}')})"

    return re.sub(r"(\[[^\]]*\])\(([^)\s]+)\)", moved, text)


def prepare(decks: list[Deck], folder: Path = BUILD) -> None:
    """Write <name>.md, the theme, figures and typefaces into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in decks:
        (folder / f"{source.name}.md").write_text(markdown(source), encoding="utf-8")
    shutil.copy(SLIDES / "theme.css", folder)
    shutil.copytree(SLIDES / "figures", folder / "figures", dirs_exist_ok=True)
    fonts = folder / "fonts"
    fonts.mkdir(exist_ok=True)
    for package, files in FONTS.items():
        for file in files:
            shutil.copy(marp.MODULES / package / "files" / file, fonts)
        shutil.copy(marp.MODULES / package / "LICENSE", fonts / f"{Path(package).name}-LICENSE")
    # Signs such as arrows, and Japanese: the typefaces that the figures are drawn with.
    drawing = Path(find_spec("matplotlib").origin).parent / "mpl-data" / "fonts" / "ttf"
    for file in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf", "LICENSE_DEJAVU"):
        shutil.copy(drawing / file, fonts)
    japanese = Path(find_spec("matplotlib_fontja").origin).parent / "fonts"
    for file in ("ipaexg.ttf", "IPA_Font_License_Agreement_v1.0.txt"):
        shutil.copy(japanese / file, fonts)


def build(names: list[str], folder: Path = BUILD, formats=tuple(marp.FORMATS)) -> dict[str, float]:
    """Build decks; returns the seconds that each format took.

    Raises DeckError: what is missing on this machine, or what is wrong in a deck.
    """
    marp.require()
    prepare([deck.read(name) for name in names], folder)
    seconds = {}
    for format in formats:
        start_s = time.monotonic()
        marp.convert(folder, names, format)
        seconds[format] = time.monotonic() - start_s
    return seconds


def sheets(names: list[str], folder: Path = BUILD) -> list[Path]:
    """Draw the pages of each deck on one picture; each page is <name>.001.png and so on."""
    marp.pictures(folder, names)
    return [_sheet(name, folder) for name in names]


def _sheet(name: str, folder: Path, columns: int = 3) -> Path:
    from PIL import Image

    pages = [Image.open(path) for path in sorted(folder.glob(f"{name}.[0-9][0-9][0-9].png"))]
    width, height, gap = 640, 360, 8
    rows = -(-len(pages) // columns)
    size = (columns * (width + gap) + gap, rows * (height + gap) + gap)
    whole = Image.new("RGB", size, "#777777")
    for number, page in enumerate(pages):
        x, y = number % columns, number // columns
        place = (gap + x * (width + gap), gap + y * (height + gap))
        whole.paste(page.convert("RGB").resize((width, height)), place)
    path = folder / f"{name}.sheet.png"
    whole.save(path)
    return path


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m allhands.kit.slides", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="DECK", help="default: all decks")
    parser.add_argument("--html", action="store_true", help="HTML only")
    parser.add_argument("--sheet", action="store_true", help="pictures of all pages, on one sheet")
    asked = parser.parse_args(arguments)
    names = asked.names or deck.names()
    try:
        quick = asked.html or asked.sheet
        seconds = build(names, formats=("html",) if quick else tuple(marp.FORMATS))
        for format, took_s in seconds.items():
            print(f"{_count(len(names), 'deck')} as {format}: {took_s:.0f} s, in {BUILD}")
        if asked.sheet:
            print(*sheets(names), sep="\n")
        found = [] if asked.names else slides_check.decks_missing()
        found += slides_check.written(names) + slides_check.seen(names, BUILD)
    except OSError as error:  # such as a full disk
        print(f"{BUILD} could not be written: {error}.", file=sys.stderr)
        return 2
    except ValueError as error:  # a DeckError, or what timetable.toml lacks
        print(error, file=sys.stderr)
        return 2
    for sentence in found:
        print(sentence)
    print(_count(len(found), "finding") if found else "The checks found nothing.")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
