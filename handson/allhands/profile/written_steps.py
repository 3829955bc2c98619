"""What do the course's traces show? One training step of a translator on four chips, as tables.

No GPU recorded these steps. They are written from public documentation: the kernels' names are
published (traces/README.md says where), which kernel serves which layer follows the published
profiles, and the times are invented, so that they only have a sensible order of size. The model is
lab 1's translator in PyTorch: embedding 256, hidden size 512, batch 128, eight tokens a sentence.
"""

from dataclasses import dataclass

from allhands.profile.launches import Shape


@dataclass(frozen=True)
class Row:
    """`calls` launches of one kernel, each `each_us` long, by one call of an operator."""

    layer: str
    operator: str
    shapes: tuple[Shape, ...]
    kernel: str
    calls: int
    each_us: float
    backward: bool = False
    dtype: str = ""  # of the operator's inputs, where it is not the step's


@dataclass(frozen=True)
class Step:
    """A training step on one chip. second: the format besides torch.profiler's."""

    name: str
    chip: str
    about: str
    dtype: str  # as torch.profiler writes it
    second: str  # nvprof, nvprof-trace, nsys-sum, nsys-sum-old, nsys-trace, nsys-sqlite
    rows: tuple[Row, ...]


TOKENS, HIDDEN, EMBED, BATCH, STEPS = 1024, 512, 256, 128, 8
LSTM = ((STEPS, BATCH, EMBED), (4 * HIDDEN, EMBED), (4 * HIDDEN, HIDDEN))
SCORES = ((BATCH, STEPS, HIDDEN), (BATCH, HIDDEN, STEPS))
CONTEXT = ((BATCH, STEPS, STEPS), (BATCH, STEPS, HIDDEN))
NATIVE = "void at::native::"
COPY = f"{NATIVE}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, {{}}>"
EMBEDDING = f"{NATIVE}(anonymous namespace)::indexSelectLargeIndex<{{}}, long, unsigned int, 2>"
SOFTMAX = f"{NATIVE}(anonymous namespace)::cunn_SoftMaxForward<4, {{}}, float, float>"
NLL = f"{NATIVE}(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>"
ADAM = f"{NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>"
UNSCALE = (
    f"{NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<"
    f"_amp_foreach_non_finite_check_and_unscale_cuda_>"
)
CELL = "void LSTM_elementWise_fp<{0}, {0}, float, 2>(int, int, int, int, {0} const*)"
CELL_BACK = "void LSTM_elementWise_bp1<{0}, {0}, float>(int, int, int, int, {0}*)"


def output(vocabulary: int, forward: str, data: str, weight: str, us: float) -> tuple[Row, ...]:
    """Rows of the output layer: a product, and two in the backward pass."""
    bias = ((vocabulary,), (TOKENS, HIDDEN), (HIDDEN, vocabulary))
    back = ((TOKENS, vocabulary), (vocabulary, HIDDEN))
    back_weight = ((vocabulary, TOKENS), (TOKENS, HIDDEN))
    return (
        Row("output", "aten::addmm", bias, forward, 1, us),
        Row("output", "aten::mm", back, data, 1, us, backward=True),
        Row("output", "aten::mm", back_weight, weight, 1, us, backward=True),
    )


def recurrent(layer: str, first: str, step: str, cells: str, first_us: float, step_us: float):
    """Rows of an LSTM that cuDNN takes step by step: one product for all inputs, then eight."""
    forward, back = CELL.format(cells), CELL_BACK.format(cells)
    rnn, rnn_back = "aten::_cudnn_rnn", "aten::_cudnn_rnn_backward"
    return (
        Row(layer, rnn, LSTM, first, 1, first_us),
        Row(layer, rnn, LSTM, step, STEPS, step_us),
        Row(layer, rnn, LSTM, forward, STEPS, 5.0),
        Row(layer, rnn_back, LSTM, step, STEPS, 1.6 * step_us, backward=True),
        Row(layer, rnn_back, LSTM, back, STEPS, 5.5, backward=True),
    )


def persistent(layer: str, first: str, fp: str, bp: str, first_us: float, us: float):
    """Rows of an LSTM whose steps cuDNN takes in one launch."""
    return (
        Row(layer, "aten::_cudnn_rnn", LSTM, first, 1, first_us),
        Row(layer, "aten::_cudnn_rnn", LSTM, fp, 1, us),
        Row(layer, "aten::_cudnn_rnn_backward", LSTM, bp, 1, 1.5 * us, backward=True),
    )


def attention(scores: str, context: str, us: float, cells: str) -> tuple[Row, ...]:
    """Rows of the attention: scores, softmax, context."""
    softmax = SOFTMAX.format(cells)
    return (
        Row("attention", "aten::bmm", SCORES, scores, 1, us),
        Row("attention", "aten::_softmax", ((BATCH, STEPS, STEPS),), softmax, 1, 4.0),
        Row("attention", "aten::bmm", CONTEXT, context, 1, us),
    )


def around(cells: str, *, mixed: bool) -> tuple[Row, ...]:
    """Rows of what multiplies no matrices: embedding, copies, loss, optimizer."""
    weights = ((4 * HIDDEN, HIDDEN),)
    rows = [
        Row("encoder", "aten::index_select", ((40, EMBED),), EMBEDDING.format(cells), 1, 6.0),
        Row("loss", "aten::nll_loss_nd", ((TOKENS, 104),), NLL, 1, 4.0, dtype="float"),
        Row("", "", (), "[CUDA memcpy HtoD]", 2, 3.0),
        Row("", "aten::_fused_adam_", weights, ADAM, 2, 21.0, dtype="float"),
    ]
    if mixed:
        copy = Row("encoder", "aten::copy_", weights, COPY.format(cells), 4, 4.5, dtype="float")
        unscale = "aten::_amp_foreach_non_finite_check_and_unscale_"
        rows += [copy, Row("", unscale, weights, UNSCALE, 1, 14.0, dtype="float")]
    return tuple(rows)


HALF, BFLOAT, FLOAT = "c10::Half", "c10::BFloat16", "float"
VOLTA = "volta_fp16_s884gemm_fp16_{}_ldg8_f2f_{}"
TURING = "turing_fp16_s1688gemm_fp16_{}_ldg8_f2f_{}"
AMPERE = "ampere_fp16_s16816gemm_fp16_{}_ldg8_f2f_stages_{}"
WMMA = (
    "void cutlass::Kernel<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_{}_align8>"
    "(cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_128x2_{}_align8::Params)"
)
TF32 = (
    "sm80_xmma_gemm_f32f32_tf32f32_f32_{}_n_tilesize{}_stage3_warpsize2x2x1_tensor16x8x8_"
    "execute_kernel__5x_cublas"
)
TF32_CUTLASS = (
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x256_16x3_{}_align4>"
    "(cutlass_80_tensorop_s1688gemm_128x256_16x3_{}_align4::Params)"
)
FFMA = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_{}_n_tilesize{}_stage3_warpsize2x2x1_ffma_aligna4_alignc4_"
    "execute_kernel__5x_cublas"
)
SGEMM = "volta_sgemm_{}"
HALF_SGEMM = "volta_fp16_sgemm_fp16_128x128_{}"  # FP16 in memory, multiplied without Tensor Cores
PERSIST = "void RNN_blockPersist_{0}_LSTM_HMMA<__half, __half, float, 1, 128>({0}_params)"
PERSIST_FP32 = "void RNN_blockPersist_{0}_LSTM<float, float, float, 128>({0}_params)"
GEMV = "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>"
NVJET = "nvjet_tst_{}_v_bz_{}"


def volta(name: str, about: str, second: str, vocabulary: int, *out: str) -> Step:
    """A step in mixed precision on a V100."""
    lstm = (VOLTA.format("128x128", "tn"), VOLTA.format("64x128", "tn"), "__half", 21.0, 11.0)
    attend = (VOLTA.format("64x128", "tn"), VOLTA.format("128x128", "nn"), 8.0, "__half")
    rows = recurrent("encoder", *lstm) + recurrent("decoder", *lstm) + attention(*attend)
    us = 14.0 if vocabulary % 8 == 0 else 62.0
    rows += output(vocabulary, *out, us) + around("c10::Half", mixed=True)
    return Step(name, "Tesla V100-SXM2-16GB", about, HALF, second, rows)


STEPS_WRITTEN = (
    volta(
        "v100_mixed",
        "FP16 with autocast, vocabulary 104",
        "nvprof",
        104,
        VOLTA.format("128x128", "tn"),
        VOLTA.format("128x128", "nn"),
        VOLTA.format("256x128", "nt"),
    ),
    volta(
        "v100_vocab101",
        "FP16 with autocast, vocabulary 101",
        "nvprof-trace",
        101,
        HALF_SGEMM.format("tn"),
        HALF_SGEMM.format("nn"),
        HALF_SGEMM.format("nt"),
    ),
    Step(
        "t4_mixed",
        "Tesla T4",
        "FP16 with autocast, vocabulary 104",
        HALF,
        "nsys-sum-old",
        recurrent(
            "encoder",
            TURING.format("256x128", "tn"),
            TURING.format("128x64_sliced1x2", "tn"),
            "__half",
            44.0,
            16.0,
        )
        + recurrent(
            "decoder",
            TURING.format("256x128", "tn"),
            TURING.format("128x64_sliced1x2", "tn"),
            "__half",
            44.0,
            16.0,
        )
        + attention(
            HALF_SGEMM.format("nt"), TURING.format("128x64_sliced1x2", "tn"), 19.0, "c10::Half"
        )
        + output(
            104,
            TURING.format("128x128", "tn"),
            TURING.format("128x128", "nn"),
            TURING.format("128x128", "nt"),
            31.0,
        )
        + around("c10::Half", mixed=True),
    ),
    Step(
        "t4_fp32",
        "Tesla T4",
        "FP32, vocabulary 104",
        FLOAT,
        "nvprof",
        persistent(
            "encoder",
            SGEMM.format("128x64_tn"),
            PERSIST_FP32.format("fp"),
            PERSIST_FP32.format("bp"),
            310.0,
            1450.0,
        )
        + persistent(
            "decoder",
            SGEMM.format("128x64_tn"),
            PERSIST_FP32.format("fp"),
            PERSIST_FP32.format("bp"),
            310.0,
            1450.0,
        )
        + attention(SGEMM.format("64x32_sliced1x4_tn"), SGEMM.format("128x64_nn"), 42.0, "float")
        + output(
            104,
            SGEMM.format("128x64_tn"),
            SGEMM.format("128x64_nn"),
            SGEMM.format("128x64_nt"),
            61.0,
        )
        + around("float", mixed=False),
    ),
    Step(
        "a100_mixed",
        "NVIDIA A100-SXM4-40GB",
        "FP16 with autocast, vocabulary 104",
        HALF,
        "nsys-sqlite",
        persistent(
            "encoder",
            AMPERE.format("64x64", "64x5_tn"),
            PERSIST.format("fp"),
            PERSIST.format("bp"),
            12.0,
            74.0,
        )
        + persistent(
            "decoder",
            AMPERE.format("64x64", "64x5_tn"),
            PERSIST.format("fp"),
            PERSIST.format("bp"),
            12.0,
            74.0,
        )
        + attention(WMMA.format("tn", "tn"), WMMA.format("nn", "nn"), 6.0, "c10::Half")
        + (Row("coverage", "aten::mv", ((TOKENS, HIDDEN), (HIDDEN,)), GEMV, 1, 5.0),)
        + output(
            104,
            AMPERE.format("128x64", "64x3_tn"),
            AMPERE.format("64x64", "64x5_nn"),
            AMPERE.format("64x64", "64x5_nt"),
            8.0,
        )
        + around("c10::Half", mixed=True),
    ),
    Step(
        "a100_tf32",
        "NVIDIA A100-SXM4-40GB",
        "FP32 with TF32 allowed in cuDNN, and in all products but the output layer's",
        FLOAT,
        "nsys-sum",
        recurrent(
            "encoder",
            TF32_CUTLASS.format("tn", "tn"),
            TF32.format("tn", "64x64x32"),
            "float",
            24.0,
            12.0,
        )
        + recurrent(
            "decoder",
            TF32_CUTLASS.format("tn", "tn"),
            TF32.format("tn", "64x64x32"),
            "float",
            24.0,
            12.0,
        )
        + attention(TF32.format("tn", "64x64x32"), TF32.format("nn", "64x64x32"), 9.0, "float")
        + output(
            104,
            FFMA.format("tn", "128x64x8"),
            FFMA.format("nn", "64x64x8"),
            FFMA.format("nt", "64x64x8"),
            34.0,
        )
        + around("float", mixed=False),
    ),
    Step(
        "h100_bf16",
        "NVIDIA H100 80GB HBM3",
        "BF16 with autocast and no loss scaling, vocabulary 104",
        BFLOAT,
        "nsys-trace",
        recurrent(
            "encoder",
            NVJET.format("192x192_64x4_2x1", "coopB_TNN"),
            NVJET.format("128x64_64x8_1x2", "TNN"),
            "__nv_bfloat16",
            7.0,
            5.0,
        )
        + recurrent(
            "decoder",
            NVJET.format("192x192_64x4_2x1", "coopB_TNN"),
            NVJET.format("128x64_64x8_1x2", "TNN"),
            "__nv_bfloat16",
            7.0,
            5.0,
        )
        + attention(
            NVJET.format("64x8_64x16_1x1", "TNT"),
            NVJET.format("128x64_64x8_1x2", "NNT"),
            4.0,
            "c10::BFloat16",
        )
        + output(
            104,
            NVJET.format("128x64_64x8_1x2", "bias_TNN"),
            NVJET.format("192x192_64x4_2x1", "coopA_NNT"),
            NVJET.format("64x8_64x16_1x1", "splitK_NTT"),
            5.0,
        )
        + (
            Row(
                "output",
                "aten::mm",
                (),
                "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>",
                1,
                2.5,
                True,
            ),
        )
        + around("c10::BFloat16", mixed=True)[:-1],
    ),
    Step(
        "h100_fp32",
        "NVIDIA H100 80GB HBM3",
        "FP32, TF32 not allowed, vocabulary 104",
        FLOAT,
        "nsys-sqlite",
        persistent(
            "encoder",
            FFMA.format("tn", "128x128x8"),
            PERSIST_FP32.format("fp"),
            PERSIST_FP32.format("bp"),
            52.0,
            190.0,
        )
        + persistent(
            "decoder",
            FFMA.format("tn", "128x128x8"),
            PERSIST_FP32.format("fp"),
            PERSIST_FP32.format("bp"),
            52.0,
            190.0,
        )
        + attention(FFMA.format("tn", "32x32x8"), FFMA.format("nn", "32x32x8"), 12.0, "float")
        + output(
            104,
            FFMA.format("tn", "128x64x8"),
            FFMA.format("nn", "64x64x8"),
            FFMA.format("nt", "64x64x8"),
            19.0,
        )
        + around("float", mixed=False),
    ),
)
