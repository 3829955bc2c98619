"""Pictures of failed jobs, of calls and of devices: do they show what they were given?"""

import pytest
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from allhands.trace.talks import calls, devices, failures
from allhands.trace.talks.failures import Bar, Mark


def words(picture) -> list[str]:
    return [one.get_text() for one in picture.findobj(Text) if one.get_text()]


def test_the_map_of_a_log_has_a_bar_for_each_line_and_counts_the_kinds():
    lines = [("root", "KeyError"), ("lost", "Connection closed"), ("lost", "")]
    picture = failures.log_map(lines, {"root": "#000000", "lost": "#ff0000"}, rows=2)
    bars = [one for one in picture.axes[0].patches if isinstance(one, Rectangle)]
    assert len(bars) == 3
    assert [bar.get_width() > 0 for bar in bars] == [True] * 3
    assert bars[1].get_width() > bars[0].get_width() > bars[2].get_width()
    assert {"root: 1", "lost: 2", "line 1", "line 3"} <= set(words(picture))


def test_every_rank_is_drawn_in_every_pattern_and_only_those_that_speak_are_full():
    picture = failures.who_says_it((((1, 2), "two", "why"), ((), "none", "how")), 4)
    squares = [one for one in picture.axes[0].patches if isinstance(one, Rectangle)]
    full = [one.get_facecolor() != squares[0].get_facecolor() for one in squares]
    assert full == [False, True, True, False, False, False, False, False]


def test_lanes_lie_below_each_other_or_side_by_side_with_all_their_bars():
    bars = [Bar(0, 0, 2, "works"), Bar(1, 0, 1, "works"), Bar(1, 1, 2, "waits", "why?")]
    for below, same in ((True, "x0"), (False, "y0")):
        panels = {"one": (bars, [Mark(2, "end")]), "two": (bars, [])}
        picture = failures.lanes(panels, until=3, below=below)
        picture.draw_without_rendering()
        first, second = (axes.get_position() for axes in picture.axes)
        assert getattr(first, same) == pytest.approx(getattr(second, same), abs=0.01)
        assert [len(axes.patches) for axes in picture.axes] == [3, 3]
        assert {"one", "two", "end", "why?", "works", "waits"} <= set(words(picture))


def test_places_are_added_whatever_their_words_are():
    rows = (("rank 0", (("a", 2), ("b", 1))), ("rank 1", (("b", 4), ("c", 3))))
    assert {"6 of what?", "4 of what?"} <= set(words(calls.by_position(rows)))


def test_only_calls_that_both_ranks_make_are_paired():
    call = ("sum", "#ffffff")
    columns = (("rank 0", (call,) * 3), ("rank 1", (call,) * 2))
    picture = calls.calls_in_order(columns, (True, False, False))
    arrows = [one for one in picture.axes[0].patches if type(one).__name__ == "FancyArrowPatch"]
    assert len(arrows) == 2


def test_devices_that_are_shown_are_numbered_from_0():
    picture = devices.renumbered((("2,3", (2, 3)),))
    said = words(picture)
    assert said.count("hidden") == 2
    assert {"device 0", "device 1"} <= set(said)
    assert "device 2" not in said


def test_an_array_stands_in_the_column_of_its_device():
    picture = devices.births((("a = 1", 0, "a"), ("b = 1", 1, "b")), n_gpus=2)
    at = {one.get_text(): one.get_position()[0] for one in picture.axes[0].texts}
    assert at["a"] == at["GPU 0"]
    assert at["b"] == at["GPU 1"]


def test_each_cell_says_its_bytes():
    picture = devices.bytes_on_gpus({"all": [[1024, 0], [1024, 0]]})
    said = words(picture)
    assert said.count("1,024") == 2
    assert {"rank 1", "GPU 1", "all"} <= set(said)
