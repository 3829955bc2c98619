"""The roofline and the memory of a training: cases worked by hand, and real arrays as oracles."""

import chainer
import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from allhands.data.batch import Batch
from allhands.model.seq2seq import ModelSize, Seq2Seq
from allhands.model.seq2seq_torch import TorchSeq2Seq
from allhands.precision import memory, roofline
from allhands.precision.chips import CHIPS, VARIANTS, Chip, chip
from allhands.precision.roofline import Product, Translator, gain, predict, translator
from allhands.trace import draw_roofline
from allhands.train import roofline_here

SIZE = st.integers(1, 4096)
ROUND = Chip("round", {"FP32": 1e12, "FP16": 8e12}, 1e11, 1e9, 1e-6, "made up")


# chips


def test_a_chip_is_found_by_its_marketing_name():
    assert chip("Tesla V100-SXM2-16GB").name == "V100"
    assert chip("NVIDIA H200").name == "H200"
    with pytest.raises(ValueError, match="It has: V100, T4, A100, H100, H200"):
        chip("K80")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Tesla V100-SXM2-16GB", ("V100", 125, 900, 16)),
        ("Tesla V100-SXM2-32GB", ("V100 SXM 32GB", 125, 900, 32)),
        ("V100-32GB", ("V100 SXM 32GB", 125, 900, 32)),
        ("Tesla V100-PCIE-32GB", ("V100 PCIe 32GB", 112, 900, 32)),
        ("Tesla T4", ("T4", 65, 320, 16)),
        ("NVIDIA A100-SXM4-40GB", ("A100", 312, 1555, 40)),
        ("NVIDIA A100-SXM4-80GB", ("A100 SXM 80GB", 312, 2039, 80)),
        ("A100-80GB", ("A100 SXM 80GB", 312, 2039, 80)),
        ("NVIDIA A100 80GB PCIe", ("A100 PCIe 80GB", 312, 1935, 80)),
        ("NVIDIA H100 80GB HBM3", ("H100", 989.5, 3350, 80)),
        ("NVIDIA H100 PCIe", ("H100 PCIe 80GB", 756.5, 2000, 80)),
        ("NVIDIA H100 NVL", ("H100 NVL 94GB", 835.5, 3900, 94)),
        ("NVIDIA H200", ("H200", 989.5, 4800, 141)),
        ("h200 nvl", ("H200 NVL 141GB", 835.5, 4800, 141)),
    ],
)
def test_a_variant_has_its_own_figures(name, expected):
    one = chip(name)
    figures = (one.peak("FP16") / 1e12, one.bytes_per_s / 1e9, one.memory_bytes / 1e9)
    assert (one.name, *figures) == (expected[0], *map(pytest.approx, expected[1:]))


@pytest.mark.parametrize("one", [*CHIPS, *VARIANTS], ids=lambda one: one.name)
def test_every_chip_is_found_by_its_own_name(one):
    assert chip(one.name) is one


@pytest.mark.parametrize(
    "name",
    [
        *("RTX A1000", "T400", "T4G", "GH200", "NVIDIA GH200 480GB", "V100S", "A100X", "XH100"),
        *("A100-64GB", "Tesla V100-FHHL-16GB", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "T4 NVL"),
        *("", "NVIDIA", "SXM", "80GB", "A100 or H100"),
    ],
)
def test_a_chip_that_is_not_in_the_table_is_not_taken_for_another(name):
    with pytest.raises(ValueError, match=r"There is no chip .* It has: V100, T4, A100, H100, H200"):
        chip(name)


@pytest.mark.parametrize("one", [*CHIPS, *VARIANTS], ids=lambda one: one.name)
def test_every_chip_names_its_source_and_is_faster_with_fewer_bits(one):
    assert "datasheet" in one.source
    assert one.peak("FP16") > 3 * one.peak("FP32")
    assert one.ridge("FP16") > one.ridge("FP32")


def test_a_chip_without_bf16_says_so():
    with pytest.raises(ValueError, match=r"V100 has no rate for 'BF16'. It has: FP64, FP32, FP16"):
        predict(Product("x", 8, 8, 8, "BF16"), chip("V100"))


# products


def test_a_product_by_hand():
    product = Product("x", 100, 200, 50, "FP16", count=3)
    assert product.flops == 3 * 2 * 100 * 200 * 50
    assert product.n_bytes == 3 * 2 * (100 * 50 + 50 * 200 + 100 * 200)
    assert product.intensity == pytest.approx(2e6 / 70e3)


def test_a_prediction_by_hand():
    one = predict(Product("x", 1000, 1000, 1000), ROUND)
    assert (one.compute_s, one.memory_s, one.launch_s) == pytest.approx((2e-3, 1.2e-4, 1e-6))
    assert one.time_s == pytest.approx(2e-3 + 1e-6)
    assert one.bound == "compute"
    vector = predict(Product("x", 1, 1000, 1000), ROUND)
    assert vector.memory_s == pytest.approx(4 * 1_002_000 / 1e11)
    assert vector.bound == "memory"
    assert predict(Product("x", 8, 8, 8), ROUND).bound == "launch"


def test_many_small_launches_pay_each():
    one, many = (predict(Product("x", 64, 64, 64, count=n), ROUND) for n in (1, 10))
    assert many.time_s == pytest.approx(10 * one.time_s)
    batched = predict(Product("x", 64, 64, 64, batch=10), ROUND)
    assert batched.time_s == pytest.approx(10 * one.time_s - 9e-6)


@given(SIZE, SIZE, SIZE, st.sampled_from(["FP32", "FP16"]))
def test_no_product_is_faster_than_the_roof(m, n, k, dtype):
    product = Product("x", m, n, k, dtype)
    roof = min(ROUND.flops_per_s[dtype], ROUND.bytes_per_s * product.intensity)
    assert predict(product, ROUND).flops_per_s <= roof * (1 + 1e-12)


@given(SIZE, SIZE, SIZE)
def test_fp16_gains_nothing_from_a_launch_two_from_memory_and_eight_from_arithmetic(m, n, k):
    product = Product("x", m, n, k)
    assert 1 <= gain(product, ROUND) <= 8
    still = Chip("no launch", ROUND.flops_per_s, ROUND.bytes_per_s, 1e9, 0.0, "made up")
    assert gain(product, still) >= 2 - 1e-12
    if product.intensity < still.ridge("FP32"):
        assert gain(product, still) == pytest.approx(2)


def test_when_it_does_not_pay():
    a100 = chip("A100")
    assert gain(Product("large", 8192, 8192, 8192), a100) > 15
    assert gain(Product("small", 32, 32, 32), a100) < 1.01
    assert 1.5 < gain(Product("with a vector", 1, 16384, 16384), a100) < 2


def test_at_the_ridge_arithmetic_and_memory_take_the_same_time():
    # K = 10 with M = N very large: intensity 2K / 4 = 5, the ridge of a chip of 5e11 and 1e11
    ridge = Chip("ridge", {"FP32": 5e11}, 1e11, 1e9, 0.0, "made up")
    one = predict(Product("x", 10**9, 10**9, 10), ridge)
    assert ridge.ridge("FP32") == 5
    assert one.compute_s == pytest.approx(one.memory_s)


@given(SIZE, SIZE, SIZE)
def test_the_backward_pass_is_two_products_of_the_same_arithmetic(m, n, k):
    product = Product("x", m, n, k)
    left, right = product.backward()
    assert left.flops == right.flops == product.flops
    assert (left.m, left.n, left.k) == (m, k, n)  # as dY W': M x N by N x K
    assert (right.m, right.n, right.k) == (k, n, m)  # as X' dY: K x M by M x N


@pytest.mark.parametrize("bad", [{"m": 0}, {"k": -1}, {"count": 0}, {"dtype": "FP12"}])
def test_products_that_do_not_exist(bad):
    with pytest.raises(ValueError, match=r"saw|There is no dtype"):
        Product(**{"name": "x", "m": 8, "n": 8, "k": 8} | bad)


class Multiplications(chainer.FunctionHook):
    """Counts 2 M N K of the products that Chainer really computes."""

    name = "Multiplications"

    def __init__(self):
        self.flops = 0

    def forward_preprocess(self, function, in_data):
        if function.label == "LinearFunction":
            (rows, n_in), (n_out, _) = (array.shape for array in in_data[:2])
            self.flops += 2 * rows * n_in * n_out
        elif function.label == "MatMul":
            left, right = in_data
            inner = left.shape[-2 if function.transa else -1]
            columns = right.shape[-2 if function.transb else -1]
            self.flops += 2 * left.size // inner * inner * columns


def test_the_translators_products_are_those_that_the_model_computes():
    source = np.full((4, 7), 5, dtype=np.int32)
    target = np.full((4, 9), 5, dtype=np.int32)
    size = ModelSize(20, 30, 16, 24)
    with Multiplications() as counter:
        Seq2Seq(size, seed=0)(source, target)
    assert sum(one.flops for one in translator(size, 4, 7, 9)) == counter.flops


def test_training_takes_three_times_the_products():
    size = Translator(40, 104)
    forward = translator(size, 8, 5, 6)
    training = translator(size, 8, 5, 6, backward=True)
    assert len(training) == 3 * len(forward)
    assert sum(one.flops for one in training) == 3 * sum(one.flops for one in forward)


def test_tables_have_a_line_for_each_product():
    products = translator(Translator(40, 104), 8, 5, 6, "FP16")
    lines = roofline.table(products, chip("T4")).splitlines()
    assert len(lines) == 1 + len(products)
    assert [line.split("  ")[0] for line in lines[1:]] == [one.name for one in products]


# memory


def test_bytes_of_a_parameter():
    assert memory.holding("fp32").parameter_bytes == 16
    assert memory.holding("mixed").parameter_bytes == 16  # ZeRO, section 3.1
    assert memory.holding("fp16").parameter_bytes == 8
    with pytest.raises(ValueError, match="There is: fp32, mixed, fp16"):
        memory.holding("fp8")


def test_the_number_of_parameters_is_the_models():
    size = ModelSize(20, 30, 16, 24)
    assert memory.n_parameters(size) == Seq2Seq(size, seed=0).count_params()


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_what_is_kept_is_near_to_what_pytorch_keeps():
    """An independent count: the arrays that PyTorch saves for the backward pass, weights apart."""
    size, rows = ModelSize(20, 30, 16, 24), 4
    model = TorchSeq2Seq(size, seed=0)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if tensor.is_floating_point() and storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    source = np.full((rows, 7), 5, dtype=np.int32)
    target = np.full((rows, 9), 5, dtype=np.int32)
    step_by_step = torch.backends.mkldnn.flags(enabled=False)
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
    with step_by_step, hooks:
        loss = model.loss(Batch(source, target, target, rows * 9))
    assert loss.item() > 0
    predicted = memory.need(size, 7, 9).activations_per_sentence * rows
    assert sum(kept.values()) == pytest.approx(predicted, rel=0.25)


def test_the_batch_that_fits_fits_and_one_more_does_not():
    for name in memory.HOLDINGS:
        need = memory.need(Translator(40, 104), 10, 12, name)
        batch = need.batch_that_fits(2e8, reserve_bytes=1e7)
        assert need.total(batch) + 1e7 <= 2e8 < need.total(batch + 1) + 1e7


def test_mixed_precision_saves_activations_and_no_weights():
    fp32, mixed = (memory.need(Translator(40, 104), 10, 12, name) for name in ("fp32", "mixed"))
    assert mixed.fixed == fp32.fixed
    assert 0.5 < mixed.activations_per_sentence / fp32.activations_per_sentence < 0.6


def test_no_sentence_fits_where_the_weights_do_not():
    need = memory.need(Translator(40, 104), 10, 12)
    assert need.batch_that_fits(1e6) == 0
    with pytest.raises(ValueError, match="A memory has more than 0 bytes"):
        need.batch_that_fits(0)


def test_the_memory_table_has_every_recipe():
    lines = memory.table(Translator(40, 104), 10, 12, 1e9).splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(memory.HOLDINGS)


# the chip at hand


def test_the_chip_at_hand_is_measured_and_its_products_predicted():
    products = (Product("square", 48, 48, 48), Product("flat", 64, 64, 2, batch=2))
    here = roofline_here.measure(products=products, rounds=1, sizes=(32, 64), copy_bytes=1 << 20)
    assert set(here.chip.flops_per_s) == {"FP32"}
    assert here.chip.bytes_per_s > 0
    assert [one.product for one in here.products] == list(products)
    for one in here.products:
        assert one.measured_s > 0
        assert one.predicted_s == predict(one.product, here.chip).time_s
    assert [one["name"] for one in here.as_dict()["products"]] == ["square", "flat"]
    assert len(str(here).splitlines()) == 2 + len(products)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dtypes": ("FP8",)}, "There is no dtype 'FP8' here"),
        ({"dtypes": ("TF32",)}, "A CPU has no TF32"),
        ({"device": "tpu"}, "The device is cpu or cuda:N"),
        ({"rounds": 0}, "1 round or more"),
        ({"products": [Product("x", 8, 8, 8, "BF16")]}, "need that format among dtypes"),
        ({"products": [Product("x", 8, 8, 8, count=2)]}, "with one launch"),
    ],
)
def test_what_cannot_be_measured(given, words):
    with pytest.raises(ValueError, match=words):
        roofline_here.measure(**given)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said():
    with pytest.raises(ValueError, match="PyTorch sees no GPU here"):
        roofline_here.measure("cuda:0")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_is_no_faster_than_its_datasheet():
    here = roofline_here.measure("cuda:0", ("FP32", "FP16"), rounds=2)
    paper = chip(here.chip.name)
    for dtype, rate in here.chip.flops_per_s.items():
        assert rate < 1.1 * paper.peak(dtype)


# the picture


def panel(**changes) -> draw_roofline.Panel:
    points = [
        draw_roofline.Point("a", "FP32", 2.0, predicted=1e11),
        draw_roofline.Point("b", "FP16", 50.0, predicted=4e12, measured=3e12),
    ]
    given = {"title": "t", "bytes_per_s": 1e11, "peaks": ROUND.flops_per_s, "points": points}
    return draw_roofline.Panel(**given | changes)


def test_the_roof_is_drawn_where_the_chip_has_it():
    (axes,) = draw_roofline.roofline(panel()).axes
    drawn = [line.get_xydata() for line in axes.lines]
    slope = drawn[0]
    assert slope[:, 1] * 1e12 == pytest.approx(slope[:, 0] * 1e11)
    flats = {round(line[0, 1] * 1e12): line[0, 0] for line in drawn[1:3]}
    assert flats == {10**12: pytest.approx(10.0), 8 * 10**12: pytest.approx(80.0)}
    heights = sorted(float(line[0, 1]) for line in drawn[3:] if len(line) == 1)
    assert heights == pytest.approx([0.1, 3.0, 4.0])
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_panel_without_points_and_two_panels_side_by_side():
    assert len(draw_roofline.rooflines([panel(points=[]), panel()], "two").axes) == 2
    assert matplotlib.get_backend()  # drawing needs no display


def test_a_point_under_a_roof_that_is_not_there():
    with pytest.raises(ValueError, match="under the roof 'FP8', but the chip has FP32, FP16"):
        draw_roofline.roofline(panel(points=[draw_roofline.Point("a", "FP8", 2.0)]))
