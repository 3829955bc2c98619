"""Lab 3, kernels and speed: checks refuse likely mistakes with the sentence meant for them."""

import re

import pytest

from allhands.grade.checks import lab3_mixedprec_speed as speed
from allhands.grade.desk import Desk
from allhands.profile import kernels
from allhands.profile.launches import Launches, Trace
from allhands.profile.report import report as report_of


@pytest.fixture
def desk() -> Desk:
    return Desk("lab3_mixedprec")


def refused(verdict, sentence: str) -> None:
    """The verdict is below full marks and says the sentence."""
    assert not verdict.full
    assert any(sentence in said for said in verdict.said), verdict.said


def named(*signs, but=()):
    return lambda name: any(s in name for s in signs) and not any(b in name for b in but)


SIGNS = ("884", "1688", "16816", "tensorop", "tensor16x8", "HMMA", "nvjet")
KERNEL_MISTAKES = {
    "every gemm": (named("gemm", "nvjet", "884"), "`sgemm` alone is FP32"),
    "fp16 in the name": (named("fp16", "f16", "nvjet", "h", "1688"), "hgemm"),
    "every xmma": (named(*SIGNS, "xmma"), "`ffma` is the ordinary multiply"),
    "every cutlass": (named(*SIGNS, "cutlass"), "`simt` means the ordinary cores"),
    "no rnn": (named(*SIGNS, but=("RNN",)), "the instruction of Tensor Cores itself"),
    "no 161616": (
        named("884", "1688", "16816", "tensor16x8", "nvjet", "HMMA"),
        "`161616` is a shape too",
    ),
    "all but": (
        lambda name: (
            not named("sgemm", "hgemm", "gemv", "simt", "ffma", "elementwise")(name)
            and ("RNN" not in name or "HMMA" in name)
        ),
        "a convolution in FP32",
    ),
    "all but matrix products": (
        lambda name: (
            not named(
                *("sgemm", "hgemm", "gemv", "simt", "ffma", "elementwise", "scudnn", "LSTM<")
            )(name)
        ),
        "it multiplies nothing",
    ),
    "no bool": (lambda name: re.search("|".join(SIGNS), name), "bool(...) of what you found"),
    "every rnn": (named(*SIGNS, "RNN"), "the same layer in FP32"),
    "no hopper": (named(*SIGNS[:-1]), "nvjet"),
    "no h884": (named("s884", *SIGNS[1:]), "`h884` is the same instruction"),
    "no tensor16x8": (
        named("884", "1688", "16816gemm", "tensorop", "nvjet", "HMMA"),
        "written out",
    ),
    "always": (lambda name: True, "some kernels do not"),
    "never": (lambda name: False, "some kernels do use them"),
    "a match": (lambda name: 1, "True or False"),
}


@pytest.mark.parametrize("mistake", KERNEL_MISTAKES)
def test_on_tensor_cores_refuses(desk, mistake):
    answer, sentence = KERNEL_MISTAKES[mistake]
    refused(desk.check("on_tensor_cores", answer), sentence)


def test_on_tensor_cores_takes_the_signs_and_the_package_agrees_with_the_names(desk):
    assert desk.check("on_tensor_cores", named(*SIGNS)).full
    assert desk.check("on_tensor_cores", lambda name: kernels.said(name).tensor_core is True).full
    assert all(kernels.said(name).tensor_core is True for name in speed.ON_TENSOR_CORES)
    assert not any(kernels.said(name).tensor_core for name in speed.ON_ORDINARY_CORES)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """60 ms of products on Tensor Cores, 20 ms of a layer with 101 columns, 20 ms elsewhere."""
    half = ("c10::Half", "c10::Half")
    launches = (
        Launches("volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", 10, 0.06, "aten::mm",
                 ((64, 256), (256, 128)), half, "encoder"),
        Launches("volta_hgemm_128x64_nn", 10, 0.02, "aten::mm", ((64, 256), (256, 101)), half,
                 "output"),
        Launches("softmax_warp_forward", 10, 0.02),
    )  # fmt: skip
    return report_of(Trace(tmp_path_factory.mktemp("t") / "t.json", "test", launches, "V100"))


OFF = {"share": 0.75, "layer": "output", "padded": 104}
OFF_MISTAKES = {
    "percent": ("share", 75, "not percent"),
    "of all time": ("share", 0.6, "the share of all time"),
    "the rest": ("share", 0.25, "the share that did not"),
    "another layer": ("layer", "encoder", "as report.not_on_tensor_cores writes it"),
    "as it is": ("padded", 101, "no multiple of 8"),
    "down": ("padded", 96, "up, not down"),
    "too far": ("padded", 128, "a smaller one works too"),
    "a text": ("padded", "104", "a number, not a text"),
}


@pytest.mark.parametrize("mistake", OFF_MISTAKES)
def test_off_refuses(desk, report, mistake):
    key, value, sentence = OFF_MISTAKES[mistake]
    refused(desk.check("off", {**OFF, key: value}, report), sentence)


def test_off_takes_the_next_multiple_of_8(desk, report):
    assert desk.check("off", OFF, report).full


def product(*, factor=2, b=None, output=True, upside_down=False, numbers=False):
    def intensity(m, n, k, bytes_per_number):
        moved = m * k + k * n + (m * n if output else 0)
        moved *= 1 if numbers else b or bytes_per_number
        return moved / (2 * m * n * k) if upside_down else factor * m * n * k / moved

    return intensity


INTENSITY_MISTAKES = {
    "products alone": ({"factor": 1}, "2 M N K operations"),
    "numbers, not bytes": ({"numbers": True}, "each number takes 2"),
    "no result": ({"output": False}, "the result is written too"),
    "always FP32": ({"b": 4}, "2 bytes, not 4"),
    "upside down": ({"upside_down": True}, "turn it over"),
    "always FP16": ({"b": 2}, "half as much in FP32"),
}


@pytest.mark.parametrize("mistake", INTENSITY_MISTAKES)
def test_intensity_refuses(desk, mistake):
    arguments, sentence = INTENSITY_MISTAKES[mistake]
    refused(desk.check("intensity", product(**arguments)), sentence)


def test_intensity_takes_the_formula(desk):
    assert desk.check("intensity", product()).full
