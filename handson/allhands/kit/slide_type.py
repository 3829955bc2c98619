"""How large may a table, a listing or a list be? As large as its page allows, in a few steps.

Lengths are CSS pixels of a slide of 1280 x 720, in the layout of slides/theme.css; an em is the
size of the type itself. What is estimated here is measured in Chromium afterwards
(slides_check.py): a wrong guess is a finding, and no slide with text over its edge.
"""

import re
import unicodedata
from dataclasses import dataclass

PAGE_PX = 1152  # between the left and the right edge
ROOM_PX = 450  # between the title and two captions
LISTING_FRAME_PX = (57, 40)  # what the frame takes: across, down
LISTING_LINE_EM = 1.46
LISTING_STEPS_PX = (32, 30, 28, 26, 24, 22, 21, 20, 19, 18.5)
TABLE_LINE_EM = 1.2
TABLE_GAP_PX = 28  # between two columns
TABLE_STEPS_PX = (32, 30, 28, 26)
TABLE_ROW_EM = (0.6, 0.5, 0.4, 0.3)  # above and below a row, from roomy to close
LIST_STEPS_PX = (38, 36, 34)
LIST_ITEMS = {38: 3, 36: 4}  # no more items in this type
LIST_FRAME_EM = 1.3  # the dot or number before an item
LETTER_EM = {"small": 0.42, "capital": 0.58, "digit": 0.5}  # Source Sans 3, on average
CODE_LETTER_EM = 0.6 * 0.86
CODE_FRAME_EM = 0.5


@dataclass(frozen=True)
class TableType:
    """The type of a table, and the room above and below each row, in em."""

    size_px: float
    row_em: float


def listing_px(markdown: str) -> float:
    """The type of a listing between fences: the largest step in which no line is cut.

    The last step is taken if none fits.
    """
    lines = markdown.splitlines()[1:-1] or [""]
    across, down = LISTING_FRAME_PX
    n_columns = max(1, max(_columns(line) for line in lines))
    fits_px = min(
        (PAGE_PX - across) / (0.6 * n_columns), (ROOM_PX - down) / (LISTING_LINE_EM * len(lines))
    )
    return next((step for step in LISTING_STEPS_PX if step <= fits_px), LISTING_STEPS_PX[-1])


def table_type(markdown: str) -> TableType:
    """The type of a Markdown table: the largest step in which all cells stand on one line.

    Large type comes before roomy rows. If no step fits, the last one, with cells of two lines or
    close rows.
    """
    rows = [_cells(line) for line in markdown.splitlines() if line.lstrip().startswith("|")]
    rows = [row for row in rows if not all(re.fullmatch(r":?-+:?", cell) for cell in row)]
    n_columns = max(len(row) for row in rows)
    widths_em = [
        max(_width_em(row[column]) for row in rows if column < len(row))
        for column in range(n_columns)
    ]
    for size_px in TABLE_STEPS_PX:
        if sum(widths_em) * size_px + (n_columns - 1) * TABLE_GAP_PX > PAGE_PX:
            continue
        for row_em in TABLE_ROW_EM:
            if len(rows) * (TABLE_LINE_EM + 2 * row_em) * size_px <= ROOM_PX:
                return TableType(size_px, row_em)
    size_px, close_em = TABLE_STEPS_PX[-1], TABLE_ROW_EM[-1]
    high_em = ROOM_PX / (len(rows) * size_px)
    roomy = (row for row in TABLE_ROW_EM if 2 * TABLE_LINE_EM + 2 * row <= high_em)
    return TableType(size_px, next(roomy, close_em))


def list_px(markdown: str) -> float:
    """The type of a Markdown list: the largest step for its items in which no line is broken."""
    lines = [re.sub(r"^ *(?:[-*]|\d+\.)? +", "", line) for line in markdown.splitlines()]
    n_items = len(re.findall(r"^(?:[-*]|\d+\.) ", markdown, re.MULTILINE))
    longest_em = LIST_FRAME_EM + max(_width_em(line) for line in lines)
    for size_px in LIST_STEPS_PX:
        if n_items <= LIST_ITEMS.get(size_px, n_items) and longest_em * size_px <= PAGE_PX:
            return size_px
    return LIST_STEPS_PX[-1]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _width_em(cell: str) -> float:
    """How wide a cell is: code in backquotes is wider than text."""
    code = re.findall(r"`([^`]*)`", cell)
    text = re.sub(r"`[^`]*`|[*_]{1,2}|\]\([^)]*\)|\[", "", cell)
    code_em = sum(CODE_LETTER_EM * _columns(part) + CODE_FRAME_EM for part in code)
    return code_em + sum(_letter_em(letter) for letter in text)


def _letter_em(letter: str) -> float:
    if _columns(letter) == 2:
        return 1.0
    if letter.isdigit():
        return LETTER_EM["digit"]
    return LETTER_EM["capital" if letter.isupper() else "small"]


def _columns(text: str) -> int:
    """Columns on a terminal: a Japanese character takes two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
