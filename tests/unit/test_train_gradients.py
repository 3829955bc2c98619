"""Real gradients as FP16 keeps them, and the pictures of formats and gradients."""

import numpy as np
import pytest

from allhands import config as configs
from allhands.precision.formats import BF16, FP16, FP32, TF32
from allhands.trace import draw, draw_precision
from allhands.train.gradients import Shares, gradients, nonzero, shares

PLANTED = {"a": np.array([[0.0, 2.0**-30], [-(2.0**-20), 1.0]]), "b": np.array([1e5])}


def test_by_hand_what_becomes_of_each_gradient():
    assert nonzero(PLANTED).tolist() == [2.0**-30, 2.0**-20, 1.0, 1e5]
    assert shares(PLANTED) == Shares(zero=0.25, subnormal=0.25, normal=0.25, infinite=0.25)
    assert shares(PLANTED, 2.0**10) == Shares(zero=0, subnormal=0.25, normal=0.5, infinite=0.25)
    assert shares(PLANTED, format=BF16) == Shares(zero=0, subnormal=0, normal=1, infinite=0)


def test_the_translator_s_gradients_need_scaling_only_with_a_small_loss_weight():
    small = configs.override(configs.lab1_cpu(), ["n_embed=16", "n_hidden=24", "batch_size=32"])
    found = gradients(5, config=small)
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
    assert shares(found).zero < 0.01
    assert shares(found, 1e-5).zero > 0.2
    assert shares(found, 1e-5 * 2.0**16).zero < 0.01
    shown = [shares(found, 1e-5 * 2.0**power).zero for power in range(0, 17, 4)]
    assert shown == sorted(shown, reverse=True)


def test_a_seed_decides_the_gradients():
    small = configs.override(configs.lab1_cpu(), ["n_embed=8", "n_hidden=8", "batch_size=8"])
    one, same, other = (gradients(2, seed, small) for seed in (0, 0, 1))
    for name in one:
        np.testing.assert_array_equal(one[name], same[name])
    assert any(not np.array_equal(one[name], other[name]) for name in one)


def test_the_number_line_is_drawn_to_scale():
    picture = draw_precision.number_line((FP32, TF32, BF16, FP16), "formats")
    sizes, near = picture.axes
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in sizes.patches]
    assert ends[-2] == pytest.approx((-24, -14))
    assert ends[-1] == pytest.approx((-14, np.log2(65504)))
    assert ends[0] == pytest.approx((-149, -126))
    ticks = [len(lines.get_segments()) for lines in near.collections]
    assert ticks == [33, 5, 33]  # TF32, BF16 and FP16 from 1 to 1 + 1/32


def test_the_histogram_says_which_share_becomes_zero(tmp_path):
    sizes = nonzero(PLANTED)
    panels = {"as they are": sizes, "scaled": 2.0**10 * sizes}
    picture = draw_precision.gradient_histogram(panels, FP16, "gradients")
    titles = [axes.get_title("left") or axes.get_title() for axes in picture.axes]
    assert titles == ["as they are: 25.0% become 0", "scaled: 0.0% become 0"]
    for axes in picture.axes:
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(100)
    for name in ("one.svg", "two.svg"):
        picture = draw_precision.gradient_histogram(panels, FP16)
        draw.save_svg(picture, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_recipes_that_died_are_drawn_with_their_last_step():
    common = {"steps": [1, 50], "losses": [2.3, 1.0], "nan_step": None, "test_exact": 80.0}
    died = common | {"steps": [1], "losses": [2.3], "nan_step": 1, "test_exact": 0.0}
    outcomes = [{"recipe": "a", **common}, {"recipe": "a", **common}, {"recipe": "b", **died}]
    picture = draw_precision.recipes(outcomes, {"b": "B", "a": "A", "c": "C"})
    left, right = picture.axes
    assert len(left.lines) == 3
    assert [label.get_text() for label in right.get_yticklabels()] == ["B", "A"]
    assert any("nan after step 1" in text.get_text() for text in right.texts)
