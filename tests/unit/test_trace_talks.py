"""Pictures of the talks: what is drawn is what is told."""

import pytest
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.text import Text

from allhands.trace import diagrams_machine
from allhands.trace.talks import canvas, curves, ranks, translator


def words(picture):
    return [text.get_text() for text in picture.findobj(Text) if text.get_text()]


def test_for_slide_leaves_no_type_below_the_least():
    picture = diagrams_machine.ranks_on_nodes({"": [[0, 1], [2, 3]]})
    assert min(text.get_fontsize() for text in picture.findobj(Text)) < 14
    canvas.for_slide(picture, size=(10, 4), least_pt=14)
    assert min(text.get_fontsize() for text in picture.findobj(Text)) >= 14
    assert tuple(picture.get_size_inches()) == (10, 4)


def test_rows_are_filled_up_to_the_longest_one():
    picture = translator.padded_rows([["a", "b", "c"], ["d"], ["e", "f"]])
    assert words(picture).count("PAD") == 3
    cells = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    assert len(cells) == 9


def test_in_doubling_each_rank_sends_once_a_step_and_all_end_with_all():
    picture = ranks.doubling(8)
    arrows = [patch for patch in picture.axes[0].patches if isinstance(patch, FancyArrowPatch)]
    assert len(arrows) == 8 * 3
    assert words(picture).count("0 to 7") == 8
    assert [f"distance {d}" in words(picture) for d in (1, 2, 4, 8)] == [True, True, True, False]


def test_amdahls_lines_end_below_one_over_the_share():
    picture = curves.amdahl((0.0, 0.5), most=4)  # 1 / (0.5 + 0.5 / 4) = 1.6
    ideal, half = (line.get_ydata() for line in picture.axes[0].lines)
    assert ideal[-1] == pytest.approx(4)
    assert half[-1] == pytest.approx(1.6)
    assert "50 % serial: 1.6" in words(picture)


def test_a_batch_of_n_ranks_is_one_update():
    picture = ranks.larger_batches({1: "one", 4: "four"}, samples=8)
    lefts = sorted(p.get_x() for p in picture.axes[0].patches if isinstance(p, Rectangle))
    assert len(lefts) == 16  # each sample once in each row
    gaps = [left for left in lefts if round(left % 1, 3) != 0]
    assert len(gaps) == 8 + 2  # a gap begins an update: eight in one row, two in the other


def test_a_decoder_is_given_what_it_said():
    shown = words(translator.own_words(("x", "y", "EOS")))
    assert [shown.count(one) for one in ("BOS", "x", "y", "EOS")] == [1, 2, 2, 1]
