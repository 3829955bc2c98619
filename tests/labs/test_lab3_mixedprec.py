"""Lab 3: checks refuse likely mistakes with the sentence meant for them; seeded faults show."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch

from allhands.grade.check import NOT_WRITTEN
from allhands.grade.checks import lab3_mixedprec_steps as steps
from allhands.grade.desk import Desk
from allhands.precision.formats import FP16
from allhands.train import mixed


@pytest.fixture
def desk() -> Desk:
    return Desk("lab3_mixedprec")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


LIMITS = {"smallest": 2.0**-24, "largest": 65504.0, "unheard": 2.0**-11}
LIMITS_MISTAKES = {
    "normal": ("smallest", FP16.smallest_normal, "the smallest normal number"),
    "one too far": ("smallest", 2.0**-25, "is 0 already"),
    "a Python float": ("smallest", 5e-324, "cast with np.float16"),
    "infinity": ("largest", math.inf, "the last one before it"),
    "rounded down": ("largest", 65519, "rounded down when it becomes FP16"),
    "as printed": ("largest", 65500, "four digits only"),
    "the step": ("unheard", 2.0**-10, "that one does change 1"),
    "in FP64": ("unheard", 2.0**-53, "the sum was not FP16"),
}


@pytest.mark.parametrize("mistake", LIMITS_MISTAKES)
def test_limits_refuses(desk, mistake):
    key, value, sentence = LIMITS_MISTAKES[mistake]
    refused(desk.check("limits", {**LIMITS, key: value}), sentence)


def test_limits_takes_numpy_s_numbers_and_wants_all_three(desk):
    assert desk.check("limits", {key: np.float16(value) for key, value in LIMITS.items()}).full
    refused(desk.check("limits", {"smallest": 2.0**-24}), 'the keys "smallest"')


def test_lost_refuses_percent_zeros_of_fp32_subnormals_and_exponents(desk):
    # 10 zeros; 40 lost; 30 round up to 2^-24; 20 subnormal; 10 normal. A scale of 2 saves all.
    counts = ((0.0, 10), (2.0**-25, 40), (0.9 * 2.0**-24, 30), (2.0**-20, 20), (1.0, 10))
    gradients = np.concatenate([np.full(n, value, np.float32) for value, n in counts])
    right = {"share": 0.4, "scale": 2.0}
    assert desk.check("lost", right, gradients).full
    for key, value, sentence in (
        ("share", 40, "not percent"),
        ("share", 50 / 110, "some are 0 in FP32 already"),
        ("share", 0.7, "half of the smallest number and more is rounded up"),
        ("share", 0.9, "subnormal numbers are not 0"),
        ("share", 0.6, "the share that survives"),
        ("scale", 1.0, "that is the exponent"),
        ("scale", 4.0, "a smaller one works too"),
        ("scale", 0.5, "go on doubling"),
        ("scale", 65536, "a smaller one works too"),
        ("scale", 2.0**200, "a smaller one works too"),
    ):
        refused(desk.check("lost", {**right, key: value}, gradients), sentence)


@pytest.mark.parametrize("power", [10, 16, 40])
def test_lost_takes_large_scales(desk, power):
    gradients = np.full(100, 2.0 ** (-24 - power), np.float32)
    right = {"share": 1.0, "scale": 2.0**power}
    assert desk.check("lost", right, gradients).full
    refused(desk.check("lost", {**right, "scale": power}, gradients), "that is the exponent")
    refused(desk.check("lost", {**right, "scale": 2.0 ** (power - 2)}, gradients), "go on doubling")


def test_half_copy_refuses_a_model_that_has_changed_and_a_copy_in_fp32(desk):
    refused(desk.check("half_copy", lambda model: model.half()), "model.half() changes the model")
    refused(desk.check("half_copy", copy.deepcopy), "still FP32")
    refused(desk.check("half_copy", lambda model: copy.deepcopy(model.half())), "has changed")
    refused(desk.check("half_copy", lambda model: torch.nn.Module()), "a copy of the whole model")
    assert desk.check("half_copy", mixed.half_copy).full


def in_half(masters, halves, rate):
    for master, half in zip(masters, halves, strict=True):
        half -= rate * half.grad
        master.copy_(half)


def without_copy(masters, halves, rate):
    for master, half in zip(masters, halves, strict=True):
        master -= rate * half.grad.float()


def from_half(masters, halves, rate):
    for master, half in zip(masters, halves, strict=True):
        master.copy_(half.float() - rate * half.grad.float())
        half.copy_(master)


def uphill(masters, halves, rate):
    right_master_step(masters, halves, -rate)


def without_rate(masters, halves, rate):
    right_master_step(masters, halves, 1.0)


def right_master_step(masters, halves, rate):
    for master, half in zip(masters, halves, strict=True):
        master -= rate * half.grad.float()
        half.copy_(master)


def new_tensors(masters, halves, rate):
    masters[:] = [m - rate * h.grad.float() for m, h in zip(masters, halves, strict=True)]
    halves[:] = [master.half() for master in masters]


def product_in_half(masters, halves, rate):
    for master, half in zip(masters, halves, strict=True):
        master -= rate * half.grad
        half.copy_(master)


def rebound(masters, halves, rate):
    for master, half in zip(masters, halves, strict=True):
        master = master - rate * half.grad.float()
        half = master.half()


MASTER_MISTAKES = {
    product_in_half: "the product rate x grad was FP16",
    rebound: "master = master - ... makes a new one",
    in_half: "is the sum made in FP16",
    without_copy: "half.copy_(master)",
    from_half: "ten times rate times gradient",
    uphill: "the sign",
    without_rate: "multiply the gradient by the rate",
    new_tensors: "in place",
    lambda masters, halves, rate: None: NOT_WRITTEN,
}


@pytest.mark.parametrize("mistake", MASTER_MISTAKES)
def test_master_step_refuses(desk, mistake):
    refused(desk.check("master_step", mistake), MASTER_MISTAKES[mistake])


def test_master_step_takes_the_formula_and_one_that_clears_the_gradients(desk):
    def clears(masters, halves, rate):
        right_master_step(masters, halves, rate)
        for half in halves:
            half.grad = None

    assert desk.check("master_step", right_master_step).full
    assert desk.check("master_step", clears).full


def scaler(**mistakes):
    """The exercise's function, with a mistake if asked."""

    def next_scale(scale, good_steps, found_inf, growth=2.0, backoff=0.5, interval=2000):
        growth, backoff = mistakes.get("growth", growth), mistakes.get("backoff", backoff)
        interval = mistakes.get("interval", interval)
        if found_inf:
            factor = mistakes.get("factor", backoff)
            return scale * factor, good_steps if mistakes.get("keeps_count") else 0
        if mistakes.get("modulo") and (good_steps + 1) % interval == 0:
            return scale * growth, good_steps + 1
        if good_steps + 1 >= interval + mistakes.get("late", 0) and not mistakes.get("modulo"):
            return scale * growth, good_steps + 1 if mistakes.get("goes_on") else 0
        return scale, good_steps + 1

    return next_scale


SCALER_MISTAKES = {
    "grows after an overflow": ({"factor": 2.0}, "an overflow means: too large"),
    "never backs off": ({"factor": 1.0}, "the next step overflows again"),
    "keeps the count": ({"keeps_count": True}, "an overflow sets the count to 0"),
    "late": ({"late": 1}, "one step late"),
    "early": ({"late": -1}, "too early"),
    "goes on": ({"goes_on": True}, "after growth the count begins at 0"),
    "counts modulo": ({"modulo": True}, "after growth the count begins at 0"),
    "grows by 2": ({"growth": 2.0}, "do not write numbers instead"),
    "backs off to a half": ({"backoff": 0.5}, "do not write numbers instead"),
    "an interval of 5": ({"interval": 5}, "do not write numbers instead"),
    "to nothing": ({"growth": 0.0}, "`0.0` where torch has 2^"),
}


@pytest.mark.parametrize("mistake", SCALER_MISTAKES)
def test_next_scale_refuses(desk, mistake):
    arguments, sentence = SCALER_MISTAKES[mistake]
    refused(desk.check("next_scale", scaler(**arguments)), sentence)


def test_next_scale_takes_the_rule_and_wants_two_values(desk):
    assert desk.check("next_scale", scaler()).full
    refused(desk.check("next_scale", lambda scale, *a, **k: scale), "two values")

    def without_return(scale, good_steps, found_inf, growth=2.0, backoff=0.5, interval=2000):
        scale = scale * backoff if found_inf else scale

    refused(desk.check("next_scale", without_return), "it returned `None`")


def test_the_planted_overflows_make_torch_s_scaler_grow_back_off_and_back_off_again():
    scales = [2.0**16, *steps.torch_scales(steps.planted_overflows(), 2.0**16, **steps.USUAL)]
    moves = [math.log2(b / a) for a, b in itertools.pairwise(scales)]
    assert set(moves) == {-1, 0, 1}
    assert any(a == b == -1 for a, b in itertools.pairwise(moves))


@pytest.mark.parametrize(("id", "right"), [("recipe", "b"), ("two_scalers", "c")])
def test_each_wrong_choice_has_its_own_sentence(desk, id, right):
    wrong = sorted({"a", "b", "c", "d"} - {right})
    verdicts = [desk.check(id, letter) for letter in wrong]
    assert len({verdict.said for verdict in verdicts}) == 3
    assert not any(verdict.full for verdict in verdicts)
    assert desk.check(id, right).full
