"""Lab 3: checks refuse likely mistakes with the sentence meant for them; seeded faults show."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

from allhands.grade.check import NOT_WRITTEN
from allhands.grade.checks import lab3_mixedprec_steps as steps
from allhands.grade.convert import given_instead
from allhands.grade.desk import Desk
from allhands.grade.source import solved_notebook
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
    ):
        refused(desk.check("lost", {**right, key: value}, gradients), sentence)


def test_half_copy_refuses_a_model_that_has_changed_and_a_copy_in_fp32(desk):
    refused(desk.check("half_copy", lambda model: model.half()), "model.half() changes the model")
    refused(desk.check("half_copy", copy.deepcopy), "still FP32")
    refused(desk.check("half_copy", lambda model: copy.deepcopy(model.half())), "has changed")
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


MASTER_MISTAKES = {
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


def test_master_step_takes_the_formula(desk):
    assert desk.check("master_step", right_master_step).full


def scaler(**mistakes):
    """The exercise's function, with a mistake if asked."""

    def next_scale(scale, good_steps, found_inf, growth=2.0, backoff=0.5, interval=2000):
        if found_inf:
            factor = mistakes.get("factor", backoff)
            return scale * factor, good_steps if mistakes.get("keeps_count") else 0
        if good_steps + 1 >= interval + mistakes.get("late", 0):
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
}


@pytest.mark.parametrize("mistake", SCALER_MISTAKES)
def test_next_scale_refuses(desk, mistake):
    arguments, sentence = SCALER_MISTAKES[mistake]
    refused(desk.check("next_scale", scaler(**arguments)), sentence)


def test_next_scale_takes_the_rule_and_wants_two_values(desk):
    assert desk.check("next_scale", scaler()).full
    refused(desk.check("next_scale", lambda scale, *a, **k: scale), "two values")


def test_the_planted_overflows_make_torch_s_scaler_grow_back_off_and_back_off_again():
    scales = [2.0**16, *steps.torch_scales(steps.planted_overflows(), 2.0**16, steps.INTERVAL)]
    moves = [math.log2(b / a) for a, b in itertools.pairwise(scales)]
    assert set(moves) == {-1, 0, 1}
    assert any(a == b == -1 for a, b in itertools.pairwise(moves))


def clipped(order: str, *, answer: bool = True):
    """A step that does unscale (u), test (t) and clip (c) in this order, then moves."""

    def clipped_step(weights, scale, max_norm, rate):
        for what in order:
            if what == "u":
                for weight in weights:
                    weight.grad = weight.grad / scale
            elif what == "c":
                clip_grad_norm_(weights, max_norm)
            elif not all(weight.grad.isfinite().all() for weight in weights):
                return False
        for weight in weights:
            weight -= rate * weight.grad
        return answer

    return clipped_step


CLIP_MISTAKES = {
    "clip before unscale": (clipped("tcu"), "clipped before unscaling"),
    "never unscaled": (clipped("tc"), "blown up"),
    "not clipped": (clipped("ut"), "the gradient is not clipped"),
    "neither": (clipped("t"), "neither unscaled nor clipped"),
    "not tested": (clipped("uc"), "test for inf and nan before"),
}


@pytest.mark.parametrize("mistake", CLIP_MISTAKES)
def test_clipped_step_refuses(desk, mistake):
    answer, sentence = CLIP_MISTAKES[mistake]
    refused(desk.check("clipped_step", answer), sentence)


def test_clipped_step_wants_false_for_a_skipped_step(desk):
    def always_true(*arguments):
        clipped("utc")(*arguments)
        return True

    refused(desk.check("clipped_step", always_true), "return False when the step is skipped")
    assert desk.check("clipped_step", clipped("utc")).full
    assert desk.check("clipped_step", clipped("tuc")).full  # inf stays inf when it is divided


def readings(id: str):
    """The function of a repair exercise as the participant gets it, and as it is mended."""
    cells = {cell.id: cell.source for cell in solved_notebook("lab3_mixedprec").cells}
    helpers = next(text for text in cells.values() if "def unscale(" in text)
    text = cells[id]
    begin = text.index("    ### BEGIN SOLUTION")
    end = text.index("### END SOLUTION") + len("### END SOLUTION")
    given = text[:begin] + given_instead(text[begin:end]) + text[end:]
    found = []
    for code in (given, text):
        names: dict = {"np": np, "torch": torch}
        exec(helpers, names)
        exec(code, names)
        found.append(names[id])
    return found


def test_the_seeded_fault_of_the_step_stands_still_and_the_repair_learns(desk):
    def loss_after(step) -> float:
        weight = torch.zeros(1)
        for _ in range(50):
            weight.grad = 1024 * 2 * (weight - 1)
            step([weight], 1024.0, 1.0, 0.1)
        return ((weight - 1) ** 2).item()

    given, mended = readings("clipped_step")
    assert loss_after(given) > 0.9
    assert loss_after(mended) < 1e-3
    refused(desk.check("clipped_step", given), "clipped before unscaling")
    assert desk.check("clipped_step", mended).full


def amp(*, dtype=torch.float16, zero=True, unscale=True, step="scaler", update=True):
    """The exercise's step, with a mistake if asked."""

    def amp_step(model, optimizer, scaler, x_bf, y_b, max_norm):
        if zero:
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(model(x_bf), y_b)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), max_norm)
        if step == "scaler":
            scaler.step(optimizer)
        elif step == "optimizer":
            optimizer.step()
        if update:
            scaler.update()
        return loss.detach()

    return amp_step


AMP_MISTAKES = {
    "no autocast": ({"dtype": None}, "torch.autocast"),
    "bf16": ({"dtype": torch.bfloat16}, "on a CPU autocast means BF16"),
    "gradients pile up": ({"zero": False}, "the gradients pile up"),
    "clip before unscale": ({"unscale": False}, "scaler.unscale_(optimizer) comes first"),
    "the optimizer steps": ({"step": "optimizer"}, "optimizer.step() does not"),
}


@pytest.mark.parametrize("mistake", AMP_MISTAKES)
def test_amp_step_refuses(desk, mistake):
    arguments, sentence = AMP_MISTAKES[mistake]
    refused(desk.check("amp_step", amp(**arguments)), sentence)


def test_amp_step_takes_the_step_and_refuses_one_without_update(desk):
    assert not desk.check("amp_step", amp(update=False)).full
    assert desk.check("amp_step", amp()).full


def sum_first(grads):
    return sum(grads, np.float16(0)) / np.float16(len(grads))


def divide_first(grads):
    return sum((grad / np.float16(len(grads)) for grad in grads), np.float16(0))


def in_place(grads):
    for grad in grads:
        grad /= np.float16(len(grads))
    return sum(grads, np.float16(0))


AVERAGE_MISTAKES = {
    sum_first: "above 65504 on the way",
    in_place: "makes a new array",
    lambda grads: np.mean(np.float32(grads), axis=0): "twice the bytes",
    lambda grads: divide_first(grads) / np.float16(4): "divided twice",
}


@pytest.mark.parametrize("mistake", AVERAGE_MISTAKES)
def test_average_refuses(desk, mistake):
    refused(desk.check("average", mistake), AVERAGE_MISTAKES[mistake])


def test_the_seeded_fault_of_average_is_infinite_and_the_repair_is_not(desk):
    grads = [np.full(1, 40_000, np.float16)] * 4
    given, mended = readings("average")
    with np.errstate(over="ignore"):
        assert np.isinf(given(grads)).all()
    assert mended(grads) == pytest.approx(40_000, rel=1e-3)
    refused(desk.check("average", given), "above 65504 on the way")
    assert desk.check("average", mended).full


@pytest.mark.parametrize(("id", "right"), [("recipe", "b"), ("two_scalers", "c")])
def test_each_wrong_choice_has_its_own_sentence(desk, id, right):
    wrong = sorted({"a", "b", "c", "d"} - {right})
    verdicts = [desk.check(id, letter) for letter in wrong]
    assert len({verdict.said for verdict in verdicts}) == 3
    assert not any(verdict.full for verdict in verdicts)
    assert desk.check(id, right).full
