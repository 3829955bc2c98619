"""What ran on Tensor Cores, what did not, and why: cases worked by hand, and the command."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allhands import profile
from allhands.cli import app
from allhands.profile.launches import Launches, Trace
from allhands.profile.why import dimensions, why

ON, OFF = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "volta_fp16_sgemm_fp16_128x128_nt"
FP32, OPEN, ADD = "volta_sgemm_128x64_nn", "triton_mm", "void vectorized_elementwise_kernel<4>"
HALF = ("c10::Half", "c10::Half")


def report(*launches: Launches, chip: str = "") -> profile.Report:
    return profile.report(profile.Trace(Path("made.json"), "torch.profiler", launches, chip))


def why_of(name, operator="", shapes=(), types=(), chip=""):
    return why(Launches(name, 1, 1.0, operator, shapes, types), chip)


def mm(m, n, k):
    return {"operator": "aten::mm", "shapes": ((m, k), (k, n))}


def test_the_share_is_of_the_time_of_matrix_kernels():
    made = report(
        Launches(ON, 3, 6e-3), Launches(FP32, 1, 2e-3), Launches(ADD, 9, 99e-3), Launches("f", 1, 1)
    )
    assert made.tensor_core_share == pytest.approx(0.75)
    assert made.matrix_s == pytest.approx(8e-3)
    assert made.unknown_share == 0


def test_an_open_name_is_neither_in_the_share_nor_among_those_that_did_not():
    made = report(Launches(ON, 1, 5.0), Launches(OFF, 1, 2.0), Launches(OPEN, 1, 3.0))
    assert (made.tensor_core_share, made.unknown_share) == (0.5, pytest.approx(0.3))
    assert [one["kernel"] for one in made.not_on_tensor_cores] == [OFF]
    assert "50.0% to 80.0%" in str(made)


def test_there_is_no_share_without_a_matrix_kernel():
    made = report(Launches(ADD, 1, 1.0), Launches("f", 1, 1.0))
    assert made.tensor_core_share is None
    assert made.as_dict()["tensor_core_share"] is None
    assert "No kernel in this trace multiplies matrices" in str(made)


def test_kernels_of_two_layers_stay_apart_and_those_of_one_are_summed():
    half = {"operator": "aten::mm", "types": HALF}
    made = report(
        Launches(ON, 1, 1.0, shapes=((8, 8), (8, 8)), layer="a", **half),
        Launches(ON, 2, 2.0, shapes=((16, 8), (8, 8)), layer="a", **half),
        Launches(ON, 4, 4.0, shapes=((8, 8), (8, 8)), layer="b", **half),
    )
    assert [(one.layer, one.calls, one.total_s) for one in made.kernels] == [
        ("b", 4, 4.0),
        ("a", 3, 3.0),
    ]


def test_the_json_has_the_promised_keys():
    made = report(Launches(OFF, 2, 1.0, **mm(64, 101, 512), types=HALF, layer="output"))
    found = json.loads(json.dumps(made.as_dict()))
    assert found["tensor_core_share"] == 0
    (kernel,) = found["kernels"]
    assert kernel["name"] == OFF
    assert kernel["calls"] == 2
    assert kernel["total_s"] == 1.0
    assert kernel["kind"] == "matrix"
    assert kernel["tensor_core"] is False
    assert kernel["dtype"] == "FP16"
    assert kernel["layer"] == "output"
    (off,) = found["not_on_tensor_cores"]
    assert off["kernel"] == OFF
    assert off["why"] == "N = 101 is not a multiple of 8."
    assert (off["layer"], off["dimension"], off["size"]) == ("output", "N", 101)


@pytest.mark.parametrize(
    ("name", "given", "code", "words"),
    [
        (FP32, {"chip": "Tesla V100-SXM2-16GB"}, "dtype", "Tensor Cores of Volta take FP16"),
        (FP32, {"chip": "NVIDIA A100-SXM4-40GB"}, "dtype", "not TF32: allow TF32"),
        (FP32, {**mm(64, 101, 512), "types": ("float", "float")}, "dtype", "FP32 is multiplied"),
        (FP32, {"chip": "Tesla P100-PCIE-16GB"}, "no_tensor_cores", "has no Tensor Cores"),
        ("volta_dgemm_64x64_nt", {}, "dtype", "FP64"),
        (OFF, {**mm(64, 101, 512), "types": HALF}, "dimension", "N = 101 is not a multiple of 8"),
        (OFF, {**mm(63, 104, 513), "types": HALF}, "dimension", "M = 63, K = 513 are not mult"),
        (OFF, {**mm(64, 104, 512), "types": HALF}, "library", "The library chose otherwise: FP16"),
        (OFF, {**mm(1, 104, 512), "types": HALF}, "vector", "A product with a vector: M = 1"),
        (OFF, {**mm(64, 104, 1), "types": HALF}, "outer", "K = 1"),
        (OFF, {}, "unknown", "the profile has no shapes"),
        ("cutlass_75_simt_igemm_s8_128x128", mm(64, 104, 24), "dimension", "multiples of 16"),
        ("void gemv2T_kernel_val<int, __half>", {}, "vector", "A product with a vector."),
        ("void gemmk1_kernel<int, __half>", {}, "outer", "An outer product"),
        ("void conv_depthwise2d_forward_kernel<3, c10::Half>", {}, "depthwise", "depthwise"),
        ("void fft2d_r2c_32x32<__half>", {}, "fft", "Fourier"),
    ],
)
def test_reasons(name, given, code, words):
    found = why_of(name, **given)
    assert found.code == code
    assert words in found.sentence
    assert found.sentence.endswith(".")


@pytest.mark.parametrize(
    ("operator", "shapes", "expected"),
    [
        ("aten::mm", ((3, 5), (5, 7)), {"M": 3, "N": 7, "K": 5}),
        ("aten::addmm", ((7,), (3, 5), (5, 7), (), ()), {"M": 3, "N": 7, "K": 5}),
        ("aten::addmm", ((3, 7), (3, 5), (5, 7), (), ()), {"M": 3, "N": 7, "K": 5}),
        ("aten::linear", ((2, 3, 5), (7, 5), (7,)), {"M": 6, "N": 7, "K": 5}),
        ("aten::bmm", ((9, 3, 5), (9, 5, 7)), {"M": 3, "N": 7, "K": 5}),
        ("aten::baddbmm", ((9, 3, 7), (9, 3, 5), (9, 5, 7)), {"M": 3, "N": 7, "K": 5}),
        ("aten::matmul", ((2, 3, 5), (5, 7)), {"M": 6, "N": 7, "K": 5}),
        ("aten::mv", ((3, 5), (5,)), {"M": 3, "N": 1, "K": 5}),
        (
            "aten::cudnn_convolution",
            ((8, 3, 32, 32), (64, 3, 7, 7)),
            {"output channels": 64, "input channels": 3},
        ),
        (
            "aten::convolution_backward",
            ((8, 64, 30, 30), (8, 3, 32, 32), (64, 3, 3, 3)),
            {"output channels": 64, "input channels": 3},
        ),
        (
            "aten::_cudnn_rnn",
            ((16, 128, 255), (2048, 255), (2048, 512), (2048,)),
            {"batch": 128, "input size": 255, "hidden size": 512},
        ),
        ("aten::_scaled_dot_product_flash_attention", ((2, 8, 64, 60),), {"head size": 60}),
        ("aten::mm", (), {}),
        ("aten::mm", ((3,), (3,)), {}),
        ("my::op", ((3, 5), (5, 7)), {}),
    ],
)
def test_dimensions(operator, shapes, expected):
    assert dimensions(operator, shapes) == expected


def test_a_kernel_for_odd_dimensions_is_on_tensor_cores_and_said_to_be_slower():
    name = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_nn_align1>(P)"
    made = report(Launches(name, 1, 1.0), Launches(name.replace("align1", "align8"), 1, 2.0))
    assert made.tensor_core_share == 1
    assert [one.loads for one in made.kernels] == [None, 1]
    assert "loads 1 value(s) at a time" in str(made)


# the course's traces say what their README promises


@pytest.mark.parametrize(
    ("step", "layers"),
    [
        ("v100_mixed", {}),
        ("v100_vocab101", {("output", "dimension")}),
        ("t4_mixed", {("attention", "library")}),
        ("t4_fp32", {(layer, "dtype") for layer in ("encoder", "decoder", "attention", "output")}),
        ("a100_mixed", {("coverage", "vector")}),
        ("a100_tf32", {("output", "dtype")}),
        ("h100_bf16", {}),
        (
            "h100_fp32",
            {(layer, "dtype") for layer in ("encoder", "decoder", "attention", "output")},
        ),
    ],
)
def test_the_courses_traces(step, layers):
    made = profile.report(profile.read(profile.trace(step)))
    assert {(one["layer"], one["reason"]) for one in made.not_on_tensor_cores} == set(layers)
    assert made.unknown_share == 0
    assert [one.name for one in made.kernels if one.kind == "other"] == []
    if step.endswith("fp32"):
        assert made.tensor_core_share == 0
    elif layers:
        assert 0.5 < made.tensor_core_share < 1
    else:
        assert made.tensor_core_share == 1


def test_the_vocabulary_of_101_is_named_in_all_three_products():
    made = profile.report(profile.read(profile.trace("v100_vocab101")))
    found = {(one["dimension"], one["size"]) for one in made.not_on_tensor_cores}
    assert found == {("N", 101), ("K", 101), ("M", 101)}


# the command


def allhands(*words):
    return CliRunner().invoke(app, ["profile", *map(str, words)])


def test_the_command_prints_a_report_for_each_trace():
    result = allhands(profile.trace("v100_mixed"), profile.trace("h100_fp32_nsys"))
    assert result.exit_code == 0
    assert "Tensor Cores: 100.0% of the matrix time" in result.output
    assert "Tensor Cores: 0.0% of the matrix time" in result.output
    assert "written from public documentation" in result.output


def test_json_is_one_object_and_a_list_for_several():
    path = profile.trace("t4_fp32")
    one = json.loads(allhands(path, "--json").output)
    assert one["tensor_core_share"] == 0
    assert json.loads(allhands(path, path, "--json").output) == [one, one]


def test_a_bad_trace_is_one_sentence_and_exit_code_2(tmp_path):
    (tmp_path / "empty.json").write_text("")
    result = allhands(tmp_path / "empty.json")
    assert result.exit_code == 2
    assert "is empty. Expected a torch.profiler trace" in result.output
    assert allhands(tmp_path / "no.json").exit_code == 2


def test_a_trace_is_what_reading_gives():
    assert isinstance(profile.read(profile.trace("t4_fp32")), Trace)
