"""The pictures of the speed-up show what was measured, and nothing else."""

import pytest

from allhands.trace import draw, draw_scaling
from allhands.trace.events import Event
from allhands.trace.scaling import SpeedUp, fit_amdahl

WEAK = [SpeedUp(1, 1, 1, 1), SpeedUp(2, 1.8, 1.7, 1.95), SpeedUp(4, 2.0, 1.5, 2.1)]
STRONG = [SpeedUp(1, 1, 1, 1), SpeedUp(2, 1.4, 1.2, 1.5)]
EVENTS = [
    Event(1.0, 1.5, 0, "backward"),
    Event(1.5, 2.5, 0, "communicate", "all"),
    Event(1.0, 2.0, 1, "backward"),
    Event(2.0, 2.5, 1, "communicate", "all"),
]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def ranges(axes):
    """{(x, lowest, highest)} of all error bars."""
    return {
        tuple(round(float(v), 9) for v in (line[0][0], line[0][1], line[1][1]))
        for bars in axes.collections
        for line in bars.get_segments()
    }


def test_each_point_stands_at_its_median_with_its_range():
    axes = draw_scaling.speedup(WEAK).axes[0]
    assert ranges(axes) == {(1, 1, 1), (2, 1.7, 1.95), (4, 1.5, 2.1)}
    [points] = [line for line in axes.lines if line.get_marker() == "o"]
    assert points.get_xydata().tolist() == [[1, 1], [2, 1.8], [4, 2]]


def test_the_ideal_line_goes_through_n_at_n():
    ideal = draw_scaling.speedup(WEAK).axes[0].lines[0]
    assert ideal.get_label() == "ideal"
    assert all(x == y for x, y in ideal.get_xydata())


def test_the_fitted_law_is_drawn_and_names_its_serial_share():
    fit = fit_amdahl([2], [1 / 0.625])  # 1/S = 1/2 + s/2, so s = 1/4
    axes = draw_scaling.speedup(STRONG, fit).axes[0]
    assert legend(axes)[1] == "Amdahl, serial share 25.0%"
    told = draw_scaling.speedup(STRONG, fit, fitted="strong, 2 ranks").axes[0]
    assert legend(told)[1] == "Amdahl (fitted to strong, 2 ranks), serial share 25.0%"
    dashed = axes.lines[-1].get_xydata()
    assert dashed[0].tolist() == [1, 1]
    assert dashed[-1].tolist() == [2, 1.6]


def test_two_measurements_are_told_apart():
    axes = draw_scaling.speedup({"weak": WEAK, "strong": STRONG}, title="two modes").axes[0]
    assert legend(axes) == ["ideal", "weak", "strong"]
    assert axes.get_title(loc="left") == "two modes"


def test_ranks_that_share_cores_are_marked():
    assert "ranks share cores" in legend(draw_scaling.speedup(WEAK, cores=2).axes[0])
    assert "ranks share cores" not in legend(draw_scaling.speedup(WEAK, cores=4).axes[0])


def test_ranks_side_by_side_have_a_row_each_with_their_waits():
    figure = draw_scaling.side_by_side(EVENTS)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "rank 1"]
    bars = {(round(bar.get_y() + 0.35), bar.get_x(), bar.get_width()) for bar in axes.patches}
    bars = {bar for bar in bars if bar[2]}  # ms after the first start
    assert bars == {(0, 0, 500), (0, 500, 500), (0, 1000, 500), (1, 0, 1000), (1, 1000, 500)}
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["backward", "communicate", "wait"]


def test_without_waits_the_events_stay_as_they_are():
    figure = draw_scaling.side_by_side(EVENTS, waits=False)
    assert len([bar for bar in figure.axes[0].patches if bar.get_width()]) == len(EVENTS)


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="at least one event"):
        draw_scaling.side_by_side([])


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("a.svg", "b.svg"):
        draw.save_svg(draw_scaling.speedup({"weak": WEAK}, cores=2), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
