"""What ran on Tensor Cores, what did not, and why: cases worked by hand, and the command."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from allhands import profile
from allhands.cli import app
from allhands.profile.launches import Launches, Trace
from allhands.profile.report import printable
from allhands.profile.why import dimensions, why

ON, OFF = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "volta_fp16_sgemm_fp16_128x128_nt"
FP32, OPEN, ADD = "volta_sgemm_128x64_nn", "triton_mm", "void vectorized_elementwise_kernel<4>"
HALF = ("c10::Half", "c10::Half")
SMALL, IGEMM = "void gemmSN_TN_kernel_half<256, 8, 2, 4, 8>", "cutlass_75_simt_igemm_s8_128x128"
FLAT = "void gemm_kernel2x2_core<0>"
EINSUM = {"operator": "aten::einsum", "shapes": ((), (8, 16), (16, 24))}
SCALED = {"operator": "aten::_scaled_mm", "shapes": ((8, 16), (16, 24), (), ())}
TURNED = {"operator": "aten::conv_transpose2d", "shapes": ((2, 8, 9, 9), (8, 16, 3, 3), (16,))}


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


def test_kernels_that_took_no_time_have_no_share():
    made = report(Launches(ON, 1, 0.0), Launches(OFF, 1, 0.0), Launches(ADD, 1, 0.0))
    assert "All kernels have time 0" in str(made)
    found = json.loads(json.dumps(made.as_dict()))
    assert (found["tensor_core_share"], found["total_s"]) == (None, 0)
    assert [one["share"] for one in found["not_on_tensor_cores"]] == [None]
    made = report(Launches(OFF, 1, 0.0), Launches(ADD, 1, 1.0))
    assert "All kernels that multiply matrices have time 0" in str(made)
    assert "multiplies matrices." not in str(made)


@pytest.mark.parametrize("odd", ["\x1b[31mred", "a\nb", "a\rb", "a\x9b2Jb", "a\u202eb", "a\ud800b"])
def test_what_a_terminal_would_obey_is_written_out(odd):
    one = Launches(f"{odd}_sgemm_{odd}", 1, 1.0, f"aten::{odd}", ((8, 8), (8, 8)), HALF, odd)
    made = report(one, Launches(FP32, 1, 1.0), chip=odd)
    lines = str(made).splitlines()
    assert all(line.isprintable() for line in lines)
    assert len(lines) == len(str(report(Launches(OFF, 1, 1.0), Launches(FP32, 1, 1.0))).split("\n"))
    assert printable(odd).encode().decode("unicode_escape") == odd
    assert json.loads(json.dumps(made.as_dict()))["chip"] == odd


def test_a_text_that_can_be_printed_stays_as_it_is():
    assert printable("volta_sgemm µs …") == "volta_sgemm µs …"


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
        (OFF, {"types": HALF}, "unknown", "FP16, and the profile has no shapes"),
        (IGEMM, mm(64, 112, 32), "library", "INT8, all dimensions multiples of 16"),
        (FLAT, mm(64, 104, 512), "unknown", "neither the name nor the profile says the dtype"),
        (OFF, {**EINSUM, "types": HALF}, "operator", "of aten::einsum it is not known here which"),
        (OFF, {**EINSUM, "types": HALF}, "operator", "Its inputs: 8 x 16, 16 x 24."),
        (OFF, {**SCALED, "types": HALF}, "operator", "of aten::_scaled_mm it is not known"),
        (OFF, {**TURNED, "types": HALF}, "operator", "of aten::conv_transpose2d it is not known"),
        ("void gemmSN_TN_kernel_half<256, 8, 2, 4, 8>", {"types": HALF}, "small", "small products"),
        (SMALL, {**mm(4, 104, 512), "types": HALF}, "dimension", "M = 4 is not a multiple of 8"),
        (SMALL, {**mm(8, 104, 512), "types": HALF}, "small", "small products"),
        (SMALL, {**mm(1, 104, 512), "types": HALF}, "vector", "M = 1"),
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


@pytest.mark.parametrize("chip", ["NVIDIA T400", "GeForce GTX 1660", "Tesla K80", "Tesla P40"])
@pytest.mark.parametrize("name", [FP32, OFF, SMALL, "volta_dgemm_64x64_nt"])
def test_a_chip_without_tensor_cores_is_never_told_to_use_them(chip, name):
    found = why_of(name, **mm(64, 101, 512), types=("float", "float"), chip=chip)
    assert (found.code, found.sentence) == ("no_tensor_cores", f"{chip} has no Tensor Cores.")


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


def test_one_bad_trace_of_several_does_not_hide_the_others(tmp_path):
    (tmp_path / "bad.json").write_text("{")
    good = profile.trace("t4_fp32")
    for files in ((good, tmp_path / "bad.json", good), (tmp_path / "bad.json", good, good)):
        result = allhands(*files)
        assert result.exit_code == 2
        assert result.stdout.count("Tensor Cores: 0.0% of the matrix time") == 2
        assert result.stderr.count("\n") == 1
        assert "bad.json ends in the middle" in result.stderr
    result = allhands(good, tmp_path / "no.json", "--json")
    assert result.exit_code == 2
    assert [one["trace"] for one in json.loads(result.stdout)] == [str(good)]
    assert allhands(tmp_path / "no.json", tmp_path / "bad.json", "--json").stdout == ""


def test_the_command_prints_no_control_characters_as_they_are(tmp_path):
    event = {"ph": "X", "cat": "kernel", "name": "\x1b]0;x\x07\ud800_sgemm_", "ts": 1, "dur": 1}
    (tmp_path / "x.json").write_text(json.dumps([event]))
    assert "\\x1b]0;x\\x07\\ud800_sgemm_" in allhands(tmp_path / "x.json").stdout
    text = allhands(tmp_path / "x.json", "--json").stdout
    assert text.strip().isprintable()
    assert json.loads(text)["kernels"][0]["name"] == event["name"]


def test_a_trace_is_what_reading_gives():
    assert isinstance(profile.read(profile.trace("t4_fp32")), Trace)
