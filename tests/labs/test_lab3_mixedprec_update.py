"""Lab 3, whole steps and the sum over ranks: likely mistakes are refused; seeded faults show."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

from allhands.grade.convert import given_instead
from allhands.grade.desk import Desk
from allhands.grade.source import solved_notebook
from allhands.train import mixed


@pytest.fixture
def desk() -> Desk:
    return Desk("lab3_mixedprec")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


def finite(weights) -> bool:
    return all(weight.grad.isfinite().all() for weight in weights)


def clipped(order: str, *, made=True, skipped=False, test=finite):
    """A step that does unscale (u), test (t) and clip (c) in this order, then moves."""

    def clipped_step(weights, scale, max_norm, rate):
        for what in order:
            if what == "u":
                for weight in weights:
                    weight.grad = weight.grad / scale
            elif what == "c":
                clip_grad_norm_(weights, max_norm)
            elif not test(weights):
                return skipped
        for weight in weights:
            weight -= rate * weight.grad
        return made

    return clipped_step


def no_inf(weights):
    return not any(weight.grad.isinf().any() for weight in weights)


def no_nan(weights):
    return not any(weight.grad.isnan().any() for weight in weights)


CLIP_MISTAKES = {
    "clip before unscale": (clipped("tcu"), "clipped before unscaling"),
    "never unscaled": (clipped("tc"), "blown up"),
    "not clipped": (clipped("ut"), "the gradient is not clipped"),
    "neither": (clipped("t"), "neither unscaled nor clipped"),
    "not tested": (clipped("uc"), "test for inf and nan before"),
    "never true": (clipped("utc", made=False), "return True when the step is made"),
    "no answer": (clipped("utc", made=None), "return True when the step is made"),
    "lets nan pass": (clipped("utc", test=no_inf), "nan passes your test"),
    "lets inf pass": (clipped("utc", test=no_nan), "inf passes your test"),
    "looks at the last": (clipped("utc", test=lambda w: finite(w[-1:])), "of all weights"),
    "looks at the first": (clipped("utc", test=lambda w: finite(w[:1])), "of all weights"),
    "skips and says 1": (clipped("utc", skipped=1), "return False when the step is skipped"),
    "skips, says True": (clipped("utc", skipped=np.True_), "return False when the step is skipped"),
}


@pytest.mark.parametrize("mistake", CLIP_MISTAKES)
def test_clipped_step_refuses(desk, mistake):
    answer, sentence = CLIP_MISTAKES[mistake]
    refused(desk.check("clipped_step", answer), sentence)


def test_clipped_step_takes_either_order_of_the_test_and_any_truth(desk):
    assert desk.check("clipped_step", clipped("utc", made=np.True_, skipped=np.False_)).full
    assert desk.check("clipped_step", clipped("utc", made=torch.tensor(True), skipped=None)).full
    assert desk.check("clipped_step", clipped("utc")).full
    assert desk.check("clipped_step", clipped("tuc")).full  # inf stays inf when it is divided
    assert desk.check("clipped_step", mixed.sgd_step).full


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


def amp(
    *,
    dtype=torch.float16,
    zero="first",
    unscale=True,
    step="scaler",
    update=True,
    loss_in="autocast",
    returns="loss",
):
    """The exercise's step, with a mistake if asked."""

    def amp_step(model, optimizer, scaler, x_bf, y_b, max_norm):
        if zero == "first":
            optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            logits = model(x_bf)
            loss = F.cross_entropy(logits, y_b)
        if loss_in == "half":
            loss = F.cross_entropy(logits, y_b)
        elif loss_in == "single":
            loss = F.cross_entropy(logits.float(), y_b)
        scaler.scale(loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), max_norm)
        if step == "scaler":
            scaler.step(optimizer)
        elif step == "optimizer":
            optimizer.step()
        if update:
            scaled = scaler.scale(loss)
            scaler.update()
        if zero == "last":
            optimizer.zero_grad()
        return {"loss": loss, "scaled": scaled if update else None, "none": None}[returns]

    return amp_step


AMP_MISTAKES = {
    "no autocast": ({"dtype": None}, "torch.autocast"),
    "bf16": ({"dtype": torch.bfloat16}, "on a CPU autocast means BF16"),
    "gradients pile up": ({"zero": "never"}, "the gradients pile up"),
    "cleared at the end": ({"zero": "last"}, "optimizer.zero_grad() at the start"),
    "the scaled loss": ({"returns": "scaled"}, "that is the scaled loss"),
    "no loss": ({"returns": "none"}, "it returned `None`"),
    "a loss in FP16": ({"loss_in": "half"}, "F.cross_entropy under autocast too"),
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
    assert desk.check("amp_step", amp(loss_in="single")).full


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
    lambda grads: divide_first(grads) / np.float16(len(grads)): "divided twice",
    lambda grads: sum(grad / np.float16(4) for grad in grads): "and not by 4",
    lambda grads: np.median(np.float32(grads), axis=0).astype(np.float16): "that is the median",
    lambda grads: np.float16([38000, 22752, -27328]): "and then the sum",
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
