"""The table of recipes: what is common to all of them, and what tells them apart."""

import dataclasses

import numpy as np
import pytest
import torch
from rich.console import Console

from allhands.train import digits, mixed_table
from allhands.train.mixed_table import RECIPES, TASK, run, table

SHORT = dataclasses.replace(TASK, n_steps=60, look_every=20)


def test_the_digits_are_all_there_and_no_image_is_in_both_parts():
    data = digits.load()
    train, test = data.train_images.numpy(), data.test_images.numpy()
    assert (len(train), len(test)) == (1437, 360)
    assert len(np.unique(np.concatenate([train, test]), axis=0)) == 1797
    assert (train.min(), train.max()) == (-1, 1)
    answers = torch.cat([data.train_digits, data.test_digits])
    assert torch.bincount(answers).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_a_seed_decides_everything():
    first, again = (run("mixed", 1, SHORT) for _ in range(2))
    assert first.losses == again.losses
    assert run("mixed", 2, SHORT).losses != first.losses


def test_all_recipes_begin_with_the_same_weights_images_and_batch():
    first = {
        name: run(name, 0, dataclasses.replace(SHORT, n_steps=1)).losses[0] for name in RECIPES
    }
    assert list(first.values()) == pytest.approx([first["fp32"]] * len(RECIPES), rel=5e-3)


def test_gradients_underflow_unless_the_loss_is_scaled_or_the_range_is_large():
    zeros = {
        name: run(name, 0, SHORT).zero_share for name in ("fp32", "fp16_master", "mixed", "bf16")
    }
    assert zeros["fp16_master"] > 0.9
    for name in ("mixed", "bf16"):
        assert zeros[name] == pytest.approx(zeros["fp32"], abs=0.02)


def test_pure_fp16_is_nan_after_its_first_step_as_adam_predicts():
    outcome = run("fp16", 0, SHORT)
    assert (outcome.nan_step, outcome.test_exact) == (1, 0)


def test_fp32_does_not_care_about_the_weight_of_the_loss():
    fair = dataclasses.replace(SHORT, loss_weight=1.0)
    assert run("fp32", 0, SHORT).losses == pytest.approx(run("fp32", 0, fair).losses, rel=1e-3)


def test_without_the_small_weight_no_scaling_is_needed():
    fair = dataclasses.replace(SHORT, loss_weight=1.0)
    scaled, plain = (run(name, 0, fair) for name in ("mixed", "fp16_master"))
    assert plain.losses == pytest.approx(scaled.losses, rel=5e-3)


def test_only_both_remedies_together_learn_what_fp32_learns():
    """On the way: FP32 has learned a good part, scaling alone less, masters alone nothing."""
    task = dataclasses.replace(TASK, n_steps=1000)
    names = ("fp32", "mixed", "fp16_master", "fp16_scaling")
    last = {name: run(name, 0, task).losses[-1] for name in names}
    assert last["mixed"] == pytest.approx(last["fp32"], rel=0.02)
    chance = np.log(10)  # the loss of a net that gives every digit the same probability
    assert last["fp32"] < chance - 0.5
    assert last["fp16_master"] > chance - 0.05
    assert last["fp16_scaling"] > last["fp32"] + 0.1


def test_the_table_has_a_row_a_recipe_and_says_nan():
    console = Console(width=100, record=True)
    console.print(table([run(name, seed, SHORT) for name in ("fp32", "fp16") for seed in (0, 1)]))
    said = console.export_text()
    assert "FP32" in said
    assert said.count("nan, step 1") == 2


def test_an_unknown_recipe_is_told_which_there_are():
    with pytest.raises(ValueError, match=r"no recipe 'fp8'. The recipes are: fp32, fp16"):
        mixed_table.run("fp8")
