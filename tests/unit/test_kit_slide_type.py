"""Type on slides: as large as the page allows, never so large that a line is cut."""

import pytest

from allhands.kit import slide_type, slides
from allhands.kit.deck import Deck, Slide

STEPS = slide_type.LISTING_STEPS_PX


def listing(n_lines: int, n_columns: int) -> str:
    return "```text\n" + "\n".join(["x" * n_columns] * n_lines) + "\n```"


def table(n_rows: int, *cells: str) -> str:
    row = "| " + " | ".join(cells) + " |"
    return "\n".join([row, "|---" * len(cells) + "|", *[row] * n_rows])


@pytest.mark.parametrize("n_lines", range(1, 13))
def test_a_listing_fits_its_page_or_has_the_smallest_type(n_lines):
    for n_columns in range(1, 101):
        size_px = slide_type.listing_px(listing(n_lines, n_columns))
        across_px, down_px = 0.6 * size_px * n_columns + 57, 1.46 * size_px * n_lines + 40
        assert size_px in STEPS
        assert size_px == STEPS[-1] or across_px <= slide_type.PAGE_PX
        assert down_px <= slide_type.ROOM_PX


def test_more_lines_or_columns_never_make_the_type_larger():
    sizes_px = [slide_type.listing_px(listing(3, n)) for n in range(1, 120)]
    assert sizes_px == sorted(sizes_px, reverse=True)
    assert (sizes_px[0], sizes_px[-1]) == (STEPS[0], STEPS[-1])


def test_a_japanese_line_is_as_wide_as_twice_its_characters():
    assert slide_type.listing_px("```\n" + "語" * 40 + "\n```") == slide_type.listing_px(
        listing(1, 80)
    )


def test_a_small_table_gets_large_type_and_roomy_rows():
    small, large = (slide_type.table_type(table(n, "way", "weak point")) for n in (3, 11))
    assert small == slide_type.TableType(32, 0.6)
    assert large == slide_type.TableType(26, 0.3)


def test_a_wide_table_gets_smaller_type():
    sizes_px = [slide_type.table_type(table(3, "a" * n, "b" * n)).size_px for n in range(10, 60)]
    assert sizes_px == sorted(sizes_px, reverse=True)
    assert (sizes_px[0], sizes_px[-1]) == (32, 26)


def test_code_in_a_cell_is_wider_than_text_and_marks_take_no_room():
    width = slide_type._width_em
    assert width("`abc`") > width("abc") == width("**abc**") == width("[abc](../a/b.md)")


def test_a_list_is_set_smaller_for_more_items_and_for_longer_ones():
    sizes_px = [slide_type.list_px("\n".join(["- **Look** first"] * n)) for n in (2, 3, 4, 5)]
    assert sizes_px == [38, 38, 36, 34]
    assert slide_type.list_px("1. " + "long " * 15) < 38


def test_the_build_sets_type_on_listings_tables_and_lists_of_words_only(tmp_path):
    words = "<!-- _class: words -->\n\n# A b c\n\n- **one** item\n- another\n\nEnd\n"
    plan = f"<!-- _class: timetable -->\n\n# A b c\n\n{table(2, 'a', 'b')}\n"
    texts = [words, plan, f"# A\n\n{table(2, 'a', 'b')}\n", f"# A\n\n{listing(2, 9)}\n", "- a\n- b"]
    made = [Slide(number, text) for number, text in enumerate(texts, 1)]
    built = slides.markdown(Deck(tmp_path / "a.md", "A", tuple(made))).split("\n---\n")[1:]
    assert ['<div class="shown"' in text for text in built] == [True, False, True, True, False]
    assert "- **one** item\n- another\n\n</div>" in built[0]
    assert "--row: 0.6em" in built[2]
