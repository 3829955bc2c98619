"""The checks of lab 3 about speed: which kernels use Tensor Cores, and what a product costs."""

import math
from collections.abc import Callable, Mapping
from numbers import Real

import numpy as np

from allhands.grade.check import Marker, likely, show
from allhands.profile import Report

# Where the names come from: allhands/profile, whose recorded traces hold them or their like.
ON_TENSOR_CORES = (
    "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn",
    "volta_h884gemm_64x64_ldg8_nn",
    "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
    "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_"
    "tensor16x8x16_kernel",
    "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",
    "void RNN_blockPersist_bp_LSTM_HMMA<__half, __half, float, 1, 128>(bp_params)",
    "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_tn_align8",
)
ON_ORDINARY_CORES = (
    "volta_sgemm_128x64_nn",
    "volta_hgemm_128x64_nn",
    "volta_fp16_sgemm_fp16_128x128_tn",
    "void RNN_blockPersist_bp_LSTM<float, float, float, 128>(bp_params)",
    "ampere_sgemm_32x128_tn",
    "cutlass_80_simt_sgemm_256x128_8x4_nn_align1",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_"
    "ffma_aligna4_alignc4_execute_kernel__5x_cublas",
    "gemv2T_kernel_val",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)",
    "volta_scudnn_128x64_relu_interior_nn_v1",
    "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void (anonymous namespace)::cunn_SoftMaxForward<4, c10::Half, float, float>(float*)",
    "Memcpy DtoD (Device -> Device)",
)


def on_tensor_cores(mark: Marker, on_tensor_cores: Callable) -> None:
    said = {
        name: mark.run(on_tensor_cores, name, none_passes=True)
        for name in ON_TENSOR_CORES + ON_ORDINARY_CORES
    }
    odd = [answer for answer in said.values() if not isinstance(answer, bool | np.bool_)]
    seen = f"it returned {show(odd[0])}" if odd else ""
    mark.need(not odd, "True or False", seen, "return bool(...) of what you found")
    missed = [name for name in ON_TENSOR_CORES if not said[name]]
    mark.require(
        not missed and not all(said.values()),
        1,
        "True for kernels of Tensor Cores, from Volta to Hopper",
        f"False for {show(missed[0])}" if missed else "True for every name",
        _why_missed(missed[0]) if missed else "some kernels do not: see the right column",
    )
    fooled = [name for name in ON_ORDINARY_CORES if said[name]]
    mark.require(
        not fooled and any(said.values()),
        2,
        "False for every kernel of the ordinary cores",
        f"True for {show(fooled[0])}" if fooled else "False for every name",
        _why_ordinary(fooled[0]) if fooled else "some kernels do use them",
    )


def _why_missed(name: str) -> str:
    return likely(
        ("nvjet" in name, "`nvjet` kernels of Hopper are Tensor Core kernels"),
        ("xmma" in name, "`tensor16x8x16` is the shape of the instruction, written out"),
        ("HMMA" in name, "`HMMA` is the instruction of Tensor Cores itself: half matrix multiply"),
        ("161616" in name, "`161616` is a shape too, 16x16x16; and `tensorop` says it"),
        ("h884" in name, "`h884` is the same instruction with an FP16 sum"),
        otherwise="look for 884, 1688, 16816, tensorop, `tensor16x8` and nvjet",
    )


def _why_ordinary(name: str) -> str:
    return likely(
        ("hgemm" in name, "FP16 numbers, but no shape of an instruction: ordinary cores"),
        ("fp16_sgemm" in name, "FP16 numbers, but no shape of an instruction: ordinary cores"),
        ("ffma" in name, "`xmma` is a library; `ffma` is the ordinary multiply and add"),
        ("simt" in name, "`cutlass` is a library; `simt` means the ordinary cores"),
        ("sgemm" in name, "`sgemm` alone is FP32 on the ordinary cores"),
        ("RNN" in name, "the same layer in FP32: `HMMA` is missing in its name"),
        ("cudnn" in name, "a convolution in FP32: no shape of an instruction in its name"),
        ("nccl" in name, "`f16` is what it sends; it multiplies nothing"),
        ("gemv" in name, "a matrix times one vector: there is no tile for a Tensor Core"),
        otherwise="no matrix product at all",
    )


def off(mark: Marker, off: Mapping, report: Report) -> None:
    need_keys(mark, off, "share", "layer", "padded")
    right, got = report.tensor_core_share, float(off["share"])
    of_all = right * report.matrix_s / report.total_s
    mark.require(
        abs(got - right) < 5e-4,
        1,
        "the share of the matrix time on Tensor Cores, between 0 and 1",
        show(got),
        likely(
            (abs(got - 100 * right) < 0.1, "give a share, not percent"),
            (abs(got - of_all) < 5e-4, "that is the share of all time; only matrices can use them"),
            (abs(got - (1 - right)) < 5e-4, "that is the share that did not"),
            otherwise="report.tensor_core_share, or add up total_s of the kernels",
        ),
    )
    blamed = next(one for one in report.not_on_tensor_cores if one["reason"] == "dimension")
    size, layer, padded = blamed["size"], str(off["layer"]).strip(), off["padded"]
    wanted = 8 * math.ceil(size / 8)
    number = isinstance(padded, Real) and not isinstance(padded, bool)
    mark.need(number, 'a number of words for "padded"', show(padded), "a number, not a text")
    mark.require(
        layer == blamed["layer"] and padded == wanted,
        1,
        f"the layer with a dimension of {size}, and the next multiple of 8",
        f"{show(layer)}, {show(padded)}",
        likely(
            (layer != blamed["layer"], "the layer as report.not_on_tensor_cores writes it"),
            (padded == size, "that is its size now, and it is no multiple of 8"),
            (padded == wanted - 8, "up, not down: no word may be lost"),
            (padded % 8 == 0, "that works, and a smaller one works too"),
            otherwise="8 * math.ceil(size / 8)",
        ),
    )


def intensity(mark: Marker, intensity: Callable) -> None:
    m, n, k = 64, 104, 256
    flops, numbers = 2 * m * n * k, m * k + k * n + m * n
    got = float(mark.run(intensity, m, n, k, 2))
    in_fp32 = float(mark.run(intensity, m, n, k, 4))
    right = flops / (2 * numbers)
    good = mark.require(
        near(got, right),
        1,
        f"for M = {m}, N = {n}, K = {k} in FP16: operations for each byte",
        f"{got:.4g} where {right:.4g} is right",
        likely(
            (near(got, right / 2) and near(in_fp32, got), "FP16 takes 2 bytes, not 4"),
            (near(got, right / 2), "a product and a sum: 2 M N K operations"),
            (near(got, flops / numbers), "divide by bytes: each number takes 2 of them"),
            (near(got, flops / (2 * (m * k + k * n))), "the result is written too: M N numbers"),
            (near(got, 1 / right), "turn it over: operations divided by bytes"),
            otherwise="2 M N K / (bytes of a number x (M K + K N + M N))",
        ),
    )
    vector = float(mark.run(intensity, 1, 1024, 1024, 2))
    right_vector = 2 * 1024 * 1024 / (2 * (1024 + 1024 * 1024 + 1024))
    mark.require(
        near(in_fp32, right / 2) and near(vector, right_vector),
        1,
        "half as much in FP32, and about 1 for a single row",
        f"{in_fp32:.4g} in FP32, {vector:.4g} for one row",
        "use m, n, k and bytes_per_number; do not write numbers into the function",
        after=good,
    )


def need_keys(mark: Marker, answer: object, *keys: str) -> None:
    """The check ends here if the answer is no dict with these keys."""
    ok = isinstance(answer, Mapping) and set(keys) <= set(answer)
    names = ", ".join(f'"{key}"' for key in keys[:-1])
    mark.need(ok, f'a dict with the keys {names} and "{keys[-1]}"', show(answer))


def near(got: float, right: float, tolerance: float = 1e-6) -> bool:
    return abs(got - right) <= tolerance * abs(right)
