"""What does a kernel's name say? Rules as data: the first that matches decides.

A name says which unit multiplied the matrices: `volta_fp16_s884gemm_...` is a product of FP16
matrices by the Tensor Cores' 8x8x4 instruction with a sum in FP32 (`s`), `volta_sgemm_...` an FP32
product without them. A name that no rule knows stays unknown.

Kinds: matrix (products of matrices, convolutions, recurrent layers, attention), elementwise
(also sums, norms, softmax and optimizers), memory (copies, gathers, transposes), communication,
other (not known).
"""

import re
from dataclasses import dataclass
from functools import cache

MATRIX, ELEMENTWISE, MEMORY, COMMUNICATION, OTHER = KINDS = (
    "matrix",
    "elementwise",
    "memory",
    "communication",
    "other",
)

# Where the rules come from. All are public.
PYPROF = "NVIDIA PyProf, pyprof/prof/tc.py: the list of names that use Tensor Cores"
PYPROF_CONV = "NVIDIA PyProf, pyprof/prof/conv.py: the list of cuDNN's kernels"
CUTLASS = "NVIDIA CUTLASS, profiler documentation and tools/library: naming of operations"
NVJET = "PyTorch and vLLM profiles on H100 and B200: nvjet_<types>_<tile>, cuBLAS 12.4 and later"
XMMA = "TensorRT tactic names: xmma_<op>_<A B>_<A B and sum in the unit>_<C>, ffma or tensor<tile>"
ATTENTION = "PyTorch aten/src/ATen/native/transformers/cuda; Dao-AILab/flash-attention"
CUDNN_RNN = "PyTorch profiles of nn.LSTM: cuDNN has RNN_blockPersist_fp_* with and without _HMMA"
CUBLAS = "PyTorch profiles: cuBLAS's own kernels for vectors and small products"
ATEN = "PyTorch aten/src/ATen/native/cuda"
NCCL = "NVIDIA NCCL: ncclKernel_* until 2.18, ncclDevKernel_* since"
TOOLS = "The profiler itself: copies and fills in torch.profiler, nvprof, Nsight Systems"
TRITON = "PyTorch Inductor: triton_poi, _red, _per (elementwise, sums), triton_mm, triton_tem"
MAGMA = "MAGMA, magmablas/gemm_template: blocked products on ordinary cores; cuBLAS has them too"
FERMI = "The first cuBLAS: gemm_kernel2x2_core, of 2010"
CUTLASS3 = (
    "NVIDIA CUTLASS 3 and 4, include/cutlass/gemm/dispatch_policy.hpp: Gmma is wgmma, Umma tcgen05"
)
CUTE = "NVIDIA CUTLASS, examples/python/CuTeDSL: kernel_cutlass_<name of the kernel>"
DEEPGEMM = "DeepSeek DeepGEMM: products by wgmma (sm90) and tcgen05 (sm100)"
MARLIN = "IST-DASLab/marlin and vLLM csrc/quantization: mma.sync.m16n8k16 of FP16 or BF16"
MOE = "vLLM and SGLang, fused_moe: Triton's tl.dot, on Tensor Cores by its dtype"
CHAINER = "Chainer and CuPy: names of elementwise kernels in their sources"


@dataclass(frozen=True)
class Rule:
    """What a name says that holds `pattern` (a regular expression, case ignored).

    bare: the pattern is asked of the kernel's own name, without its template arguments: a
    `gemmSN_TN_kernel<..., cublasGemvTensor...>` is no gemv.

    tensor_core: True, False, or None where the name leaves it open. dtype: of what is multiplied;
    "" where the rest of the name says it. reason: a code of `why.py` that the name itself gives.
    source: where the fact is published.
    """

    pattern: str
    kind: str
    tensor_core: bool | None = None
    dtype: str = ""
    reason: str = ""
    source: str = ""
    bare: bool = False


RULES = (
    Rule(r"nccl|nvshmem|multimem_all_reduce|(one|two)_shot_all_reduce", COMMUNICATION, source=NCCL),
    Rule(r"cross_device_reduce|allreduce|all_reduce|all_gather|reducescatter", COMMUNICATION),
    Rule(r"^\[?CUDA mem(cpy|set)|^mem(cpy|set)\b", MEMORY, source=TOOLS),
    # Parts of a product that multiply no matrices themselves.
    Rule(r"splitK?_?reduce|splitkreduce|reduce_?splitk", ELEMENTWISE, source=CUBLAS),
    Rule(
        r"computeOffsetsKernel|compute_gemm_pointers|scalePackedTensor|flip_filter|im2col|col2im",
        MEMORY,
        source=PYPROF_CONV,
    ),
    Rule(
        r"winograd_nonfused|generateWinogradTiles|winograd(Forward|Wgrad)(Data|Filter|Output|Delta)",
        ELEMENTWISE,
        source=PYPROF_CONV,
    ),
    Rule(r"deep_gemm::\w*(transpose|pack_fp32|clean_logits)", MEMORY, source=DEEPGEMM),
    Rule(r"marlin_repack|marlin\w*::permute", MEMORY, source=MARLIN),
    Rule(r"(nchw|nhwc|nchw_?\w*)To(nhwc|nchw)|kern_precompute_indices", MEMORY, source=PYPROF_CONV),
    Rule(
        r"elemWiseRNNcell|(LSTM|GRU)_elementWise|lstm_cell|gru_cell", ELEMENTWISE, source=CUDNN_RNN
    ),
    # Matrices without Tensor Cores, although the name also holds a word of a Tensor Core rule.
    Rule(r"_simt_", MATRIX, False, source=CUTLASS),
    Rule(r"xmma_\w*ffma", MATRIX, False, source=XMMA),
    Rule(r"xmma_[a-z0-9]+_f32f32_f32f32_f32", MATRIX, False, "FP32", source=XMMA),
    # Matrices on Tensor Cores, by the shape m n k of the instruction.
    Rule(r"(?<![a-z0-9])[hs]884", MATRIX, True, "FP16", source=PYPROF),
    Rule(r"(?<![a-z0-9])d(884|1684|1688|16816)", MATRIX, True, "FP64", source=CUTLASS),
    Rule(r"tf32(f32|gemm|x3)|s1688tf32", MATRIX, True, "TF32", source=XMMA),
    Rule(r"(volta|turing)_\w*hmma", MATRIX, True, "FP16", source=PYPROF),
    Rule(r"turing_\w*[hs]1688|_75_tensorop_\w*[hs]1688", MATRIX, True, "FP16", source=PYPROF),
    Rule(r"(?<![a-z0-9])h(1688|16816|161616)", MATRIX, True, "FP16", source=PYPROF),
    Rule(r"(?<!b)(fp|f)16_s(1688|16816|161616)|s1688f16", MATRIX, True, "FP16", source=PYPROF),
    Rule(r"bf16_s(1688|16816|161616)|s1688bf16", MATRIX, True, "BF16", source=PYPROF),
    Rule(
        r"_80_tensorop_(f32_)?s1688(gemm|fprop|dgrad|wgrad)", MATRIX, True, "TF32", source=CUTLASS
    ),
    Rule(r"(?<![a-z0-9])[hsc](1688|16816|161616)", MATRIX, True, source=PYPROF),
    Rule(r"i(8816|16816|16832|16864)|(?<![a-z])imma", MATRIX, True, "INT8", source=PYPROF),
    Rule(r"dmma", MATRIX, True, "FP64", source=XMMA),
    Rule(
        r"qgmma|(xmma|gemm|bmm|tensorop)\w*e[45]m[23]|e[45]m[23]\w*(gemm|bmm)",
        MATRIX,
        True,
        "FP8",
        source=XMMA,
    ),
    Rule(r"RNN_\w*_HMMA", MATRIX, True, "FP16", source=CUDNN_RNN),
    Rule(r"hmma|wgmma|hgmma|tensorop|_tensor(16|8)x\d", MATRIX, True, source=CUTLASS),
    Rule(
        r"MainloopSm90\w*Gmma|MainloopSm1[012]\d\w*(Umma|Tma)|cutlass_3x_gemm",
        MATRIX,
        True,
        source=CUTLASS3,
    ),
    Rule(
        r"kernel_cutlass_\w*(gemm\w*sm_?(90|1[012]\d)|sm_?(90|1[012]\d)\w*gemm)",
        MATRIX,
        True,
        source=CUTE,
    ),
    Rule(r"deep_gemm::\w*(gemm|mqa_logits|mega_moe)", MATRIX, True, source=DEEPGEMM),
    Rule(r"marlin\w*::marlin(_24)?(?![a-z])", MATRIX, True, source=MARLIN),
    Rule(r"nvjet_(sm\d+_)?h[hs]", MATRIX, True, "FP16", source=NVJET),
    Rule(r"nvjet_(sm\d+_)?t[ts]", MATRIX, True, "BF16", source=NVJET),
    Rule(r"nvjet_(sm\d+_)?(qq|oo)", MATRIX, True, "FP8", source=NVJET),
    Rule(r"nvjet_\w*tf32|nvjet_(sm90_)?sss", MATRIX, True, "TF32", source=NVJET),
    Rule(r"nvjet", MATRIX, None, source=NVJET),
    Rule(r"xmma_\w*(bf16bf16|f16f16|i8i8)", MATRIX, True, source=XMMA),
    Rule(r"xmma_", MATRIX, None, source=XMMA),
    # Attention.
    Rule(
        r"(flash|fmha|attn|attention)\w*(combine|preprocess|postprocess|convert|dot_do_o|reduce)",
        ELEMENTWISE,
        source=ATTENTION,
    ),
    Rule(r"flash::prepare_varlen|reshape_and_cache", MEMORY, source=ATTENTION),
    Rule(r"flash_(fwd|bwd)|FlashAttn(Fwd|Bwd)", MATRIX, True, source=ATTENTION),
    Rule(r"fmha_cutlass[FB]_f32\w*_sm(80|9\d)", MATRIX, True, "TF32", source=ATTENTION),
    Rule(r"fmha_cutlass[FB]_f32", MATRIX, False, "FP32", source=ATTENTION),
    Rule(r"fmha_cutlass[FB]_\w*_sm50", MATRIX, False, source=ATTENTION),
    Rule(r"fmha_cutlass[FB]_b?f16", MATRIX, True, source=ATTENTION),
    Rule(r"cudnn_generated_fort_native_sdpa", MATRIX, True, source=ATTENTION),
    Rule(r"fmha|flash_?attn|flash_?attention|paged_attention", MATRIX, None, source=ATTENTION),
    # Recurrent layers.
    Rule(r"RNN_\w*_[fb]p_\w*<float|persistRNN\w*<float", MATRIX, False, "FP32", source=CUDNN_RNN),
    Rule(r"RNN_(block)?persist|persist_?RNN", MATRIX, None, source=CUDNN_RNN),
    # Products with a vector, and outer products: no instruction for matrices fits them.
    Rule(r"gemmk1", MATRIX, False, reason="outer", source=CUBLAS, bare=True),
    Rule(r"gemmSN_|gemm_32x32_NN", MATRIX, False, reason="small", source=CUBLAS, bare=True),
    Rule(
        r"(?<!cublas)gemv|(?<![a-z])dot_kernel|reduce_1Block_kernel",
        MATRIX,
        False,
        reason="vector",
        source=CUBLAS,
        bare=True,
    ),
    # Matrices without Tensor Cores.
    Rule(r"winograd", MATRIX, False, source=PYPROF_CONV),
    Rule(
        r"implicit_convolve_|explicit_convolve_|convolve_common_engine",
        MATRIX,
        False,
        source=PYPROF_CONV,
    ),
    Rule(
        r"fft[12]d_|fft\w*conv|(vector|regular|RADIX)_?fft",
        MATRIX,
        False,
        reason="fft",
        source=PYPROF_CONV,
    ),
    Rule(r"(?<![a-z0-9])[sh]cudnn", MATRIX, False, source=PYPROF_CONV),
    Rule(
        r"(d|w)grad_(alg\w*_)?engine|dgrad2d_alg1|grouped_direct_kernel",
        MATRIX,
        False,
        source=PYPROF_CONV,
    ),
    Rule(
        r"conv_?depthwise|spatialDepthwise|depthwise_conv",
        MATRIX,
        False,
        reason="depthwise",
        source=ATEN,
    ),
    Rule(r"(?<![a-z0-9])g?[sdhcz]gemm(?![a-z])", MATRIX, False, source=CUBLAS),
    Rule(r"magma_\w*[sdhcz]gemm", MATRIX, False, source=MAGMA),
    Rule(r"gemm_kernel\dx\d\w*_core", MATRIX, False, source=FERMI),
    Rule(
        r"dgrad_1x1_stride_2x2|first_layer_wgrad|conv2d_c1_k1|direct_group",
        MATRIX,
        True,
        source=PYPROF,
    ),
    # Matrices of which the name tells no more.
    Rule(r"triton_(tem|mm|bmm)|_attn_(fwd|bwd)", MATRIX, None, source=TRITON),
    Rule(r"fused_moe_kernel", MATRIX, None, source=MOE),
    Rule(r"gemm|matmul|conv(olution|olve|\dd)|fprop|dgrad|wgrad", MATRIX, None),
    # The rest.
    Rule(
        r"copy|CatArray|transpose|gather|scatter|index(_|Select|ing)|embedding|slice",
        MEMORY,
        source=ATEN,
    ),
    Rule(r"fill(_|Functor)|pad(_|ding)", MEMORY, source=ATEN),
    Rule(r"triton_(poi|red|per)", ELEMENTWISE, source=TRITON),
    Rule(
        r"elementwise|element_wise|reduce|softmax|(_|rms)norm|LayerNorm|GammaBeta",
        ELEMENTWISE,
        source=ATEN,
    ),
    Rule(r"batch_?norm|bn_(fw|bw)|multi_tensor_apply|dropout|adam|sgd", ELEMENTWISE, source=ATEN),
    Rule(
        r"pool|nll_loss|cross_entropy|activation|relu|gelu|sigmoid|tanh", ELEMENTWISE, source=ATEN
    ),
    Rule(r"^cupy_|(lstm|gru)_(fwd|bwd)", ELEMENTWISE, source=CHAINER),
)
_COMPILED = tuple((re.compile(rule.pattern, re.IGNORECASE), rule) for rule in RULES)

# What is multiplied, where the rule does not say: the first word of a name that says it.
DTYPES = tuple(
    (re.compile(pattern, re.IGNORECASE), dtype)
    for pattern, dtype in (
        (r"e[45]m[23]|(?<![a-z0-9])fp8_", "FP8"),
        (r"bf16|bfloat16|nvjet_t", "BF16"),
        (r"tf32", "TF32"),
        (
            r"(?<![a-z])fp16_sgemm|(?<![a-z0-9])(fp16|f16|hgemm|hcudnn)|f16f16|f16_|__half|half_t|c10::half",
            "FP16",
        ),
        (r"(?<![a-z0-9])([dz]gemm|d884)|double|f64", "FP64"),
        (r"i8|int8|s8|igemm", "INT8"),
        (r"(?<![a-z0-9])g?[sc](gemm|cudnn)|sgemm|float|f32|fp32", "FP32"),
    )
)

FULL_LOAD = {"FP16": 8, "BF16": 8, "TF32": 4, "INT8": 16}  # values in 16 bytes


@dataclass(frozen=True)
class Said:
    """What a name says; `dtype` is "" and `tensor_core` None where it does not."""

    kind: str
    tensor_core: bool | None
    dtype: str
    reason: str
    rule: Rule | None


@cache
def said(name: str) -> Said:
    """Return what a kernel's name says. A name that no rule knows is `other`, without a guess."""
    own = bare(name)
    for pattern, rule in _COMPILED:
        if pattern.search(own if rule.bare else name):
            dtype = rule.dtype or (_dtype(name) if rule.kind == MATRIX else "")
            return Said(rule.kind, rule.tensor_core, dtype, rule.reason, rule)
    return Said(OTHER, None, "", "", None)


def bare(name: str) -> str:
    """Return a name without template arguments, as far as they go where a table cut it off."""
    found, depth = [], 0
    for part in re.split(r"([<>])", name):
        if part == "<":
            depth += 1
        elif part == ">":
            depth = max(0, depth - 1)
        elif not depth:
            found.append(part)
    return "".join(found)


def _dtype(name: str) -> str:
    return next((dtype for pattern, dtype in DTYPES if pattern.search(name)), "")


def alignment(name: str) -> int | None:
    """Return how many values a CUTLASS kernel loads at once; None if its name does not say it.

    On Tensor Cores 8 values of FP16 are the fastest; a kernel that loads fewer was chosen because a
    dimension (or an address) is not a multiple of 8.
    """
    found = re.search(r"align(\d+)(?![A-Za-z0-9])", name)
    return int(found[1]) if found else None
