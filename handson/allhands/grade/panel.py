"""How a verdict, a hint and a score table look in a notebook: small HTML panels.

Colours come from JupyterLab's theme where there is one, so that a panel is calm in light and dark;
the fallbacks serve exported HTML. All text is escaped; `code` between backquotes is set in a code
font.
"""

import html
import re
from collections.abc import Iterable, Sequence

_GOOD, _PART, _NONE, _QUIET_BLUE = "#2e7d32", "#b26a00", "#c62828", "#607d8b"
_BOX = (
    "border:1px solid var(--jp-border-color2,#ddd);border-left:4px solid {colour};"
    "border-radius:4px;padding:0.7em 1em;margin:0.2em 0;max-width:52em;line-height:1.5;"
    "background:var(--jp-layout-color1,#fff);color:var(--jp-content-font-color1,#222);"
    "font-family:var(--jp-content-font-family,system-ui,sans-serif);"
    "font-size:var(--jp-content-font-size1,14px)"
)
_QUIET = "color:var(--jp-content-font-color2,#555)"


def text(sentence: str) -> str:
    """Escape a sentence; `this` becomes code."""
    code = r'<code style="background:var(--jp-layout-color2,#f2f2f2);padding:0 0.25em">\1</code>'
    return re.sub(r"`([^`\n]+)`", code, html.escape(sentence, quote=False))


def box(colour: str, inside: Iterable[str]) -> str:
    return f'<div style="{_BOX.format(colour=colour)}">{"".join(inside)}</div>'


def colour_of(score: float, points: float) -> str:
    return _GOOD if score >= points else _PART if score > 0 else _NONE


def verdict(
    title: str, score: float, points: float, said: Sequence[str], last: str, *, blank: bool = False
) -> str:
    """`last` is the explanation after success, or how to go on after a failure."""
    colour = _QUIET_BLUE if blank else colour_of(score, points)
    badge = (
        f'<span style="float:right;color:{colour};font-weight:600">'
        f"{score:g} of {points:g} points</span>"
    )
    head = f'<div style="font-weight:600;margin-bottom:0.3em">{badge}{text(title)}</div>'
    return box(colour, [head, *(_row(sentence) for sentence in said), _foot(last)])


def _row(sentence: str) -> str:
    """One sentence, with a mark in front; the words Asked, Seen and Try stand out."""
    good = sentence.startswith("Good: ")
    mark, colour = ("✓", _GOOD) if good else ("•", _PART)
    words = re.sub(
        r"(^|\s)(Asked|Seen|Try): ",
        lambda found: f'{"<br>" if found[1] else ""}<span style="{_QUIET}">{found[2]}:</span> ',
        text(sentence.removeprefix("Good: ") if good else sentence),
    )
    return (
        f'<div style="display:flex;gap:0.6em"><span style="color:{colour}">{mark}</span>'
        f"<span>{words}</span></div>"
    )


def _foot(sentence: str) -> str:
    line = "border-top:1px solid var(--jp-border-color2,#ddd);margin-top:0.6em;padding-top:0.5em"
    return f'<div style="{line}">{text(sentence)}</div>' if sentence else ""


def note(title: str, sentence: str, colour: str = "#1565c0") -> str:
    return box(colour, [f'<div style="font-weight:600">{text(title)}</div>', text(sentence)])


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], colour: str) -> str:
    cell = "padding:0.1em 1.2em 0.1em 0;text-align:left"
    head = "".join(f'<th style="{cell}">{text(each)}</th>' for each in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{cell}">{text(each)}</td>' for each in row) + "</tr>"
        for row in rows
    )
    top = f'<div style="font-weight:600;margin-bottom:0.3em">{text(title)}</div>'
    return box(colour, [top, f"<table><tr>{head}</tr>{body}</table>"])
