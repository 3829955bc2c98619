"""A GAN in mixed precision: one loss scale is not enough for two losses of different size."""

import math

import numpy as np
import pytest
import torch

from allhands.train import gan


@pytest.fixture(scope="module")
def runs():
    return {precision: gan.train_gan(precision, seed=0) for precision in ("mixed", "one_scaler")}


def test_the_real_points_lie_in_eight_equal_heaps_on_the_unit_circle():
    points = gan.real_points(8000, torch.Generator().manual_seed(0)).numpy()
    heap = np.round(np.arctan2(points[:, 1], points[:, 0]) / (math.pi / 4)).astype(int) % 8
    assert np.bincount(heap).tolist() == pytest.approx([1000] * 8, rel=0.15)
    assert np.hypot(*points.T) == pytest.approx(1.0, abs=6 * gan.SPREAD)


def test_energy_distance_of_a_hand_worked_case():
    x, y = torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0]])
    # E|X - Y| = 1, E|X - X'| = (0 + 2 + 2 + 0) / 4 = 1, E|Y - Y'| = 0
    assert gan.energy_distance(x, y) == pytest.approx(2 * 1 - 1 - 0)
    assert gan.energy_distance(x, x) == pytest.approx(0)


def test_one_scaler_must_suit_the_discriminator_and_loses_the_generators_gradients(runs):
    assert runs["one_scaler"].zero_share > 10 * runs["mixed"].zero_share
    assert runs["one_scaler"].zero_share > 0.02
    assert runs["one_scaler"].distance > 2 * runs["mixed"].distance


def test_with_two_scalers_each_loss_finds_its_own_scale(runs):
    mixed = runs["mixed"]
    assert mixed.scales_g[-1] > 1000 * mixed.scales_d[-1]
    assert runs["one_scaler"].scales_d == runs["one_scaler"].scales_g
    assert gan.train_gan("fp32", seed=0, steps=3).scales_g == [1.0, 1.0, 1.0]


def test_the_same_seed_gives_the_same_run():
    one, two = (gan.train_gan("mixed", seed=3, steps=5) for _ in range(2))
    assert one.losses_d == two.losses_d
    assert np.array_equal(one.made, two.made)


def test_bad_input_is_a_sentence():
    with pytest.raises(ValueError, match="one of fp32, mixed, one_scaler"):
        gan.train_gan("fp16", seed=0)
    with pytest.raises(ValueError, match="at least one step"):
        gan.train_gan("fp32", seed=0, steps=0)
