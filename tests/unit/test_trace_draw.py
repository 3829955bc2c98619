"""Figures: they show what was recorded, and the same figure gives the same file."""

import numpy as np
import pytest

from allhands.trace import draw
from allhands.trace.events import Event
from allhands.trace.summary import Metrics, time_by

EVENTS = [
    Event(2.0, 2.5, 0, "forward"),
    Event(2.5, 3.5, 0, "backward", "LSTM"),
    Event(2.0, 2.2, 1, "forward"),
]


def test_a_gantt_bar_stands_where_and_as_long_as_its_event():
    axes = draw.gantt(EVENTS, "two ranks").axes[0]
    bars = sorted((round(bar.get_x()), round(bar.get_width())) for bar in axes.patches)
    assert bars == [(0, 200), (0, 500), (500, 1000)]  # ms after the first start
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["rank 0 forward", "rank 0 backward", "rank 1 forward"]


def test_a_gantt_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one event"):
        draw.gantt([])


def test_the_longest_share_stands_on_top():
    axes = draw.time_shares(time_by(EVENTS)).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["backward", "forward"]
    assert axes.yaxis_inverted()


def test_a_learning_curve_shows_every_update_and_every_evaluation():
    updates = [{"update": n, "loss": 1 / n} for n in (1, 2, 3)]
    metrics = Metrics(updates, [{"update": 3, "valid_exact_match": 75.0}])
    left, right = draw.learning_curve({"seed 0": metrics}).axes
    assert left.lines[0].get_xydata().tolist() == [[1, 1], [2, 1 / 2], [3, 1 / 3]]
    assert right.lines[0].get_xydata().tolist() == [[3, 75]]


def test_an_alignment_names_tokens_of_both_languages():
    axes = draw.alignment(np.eye(2), ["may", "2"], ["5", "月"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["5", "月"]


def test_clouds_of_points_share_their_axes():
    left, right = draw.points({"made": np.eye(2), "real": np.zeros((3, 2))}).axes
    assert left.lines[0].get_xydata().tolist() == [[1, 0], [0, 1]]
    assert (left.get_xlim(), left.get_ylim()) == (right.get_xlim(), right.get_ylim())


def test_japanese_text_is_drawn_without_missing_glyphs(tmp_path, recwarn):
    draw.save_svg(draw.alignment(np.eye(2), ["may", "2"], ["月", "八万"]), tmp_path / "a.svg")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("a.svg", "b.svg"):
        draw.save_svg(draw.gantt(EVENTS), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
