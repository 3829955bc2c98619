"""Kernel names that the course did not write: is the verdict that of their source?

The names stand in profiles and lists that others published: TensorFlow's xplane files, Accel-Sim's
list of nvbit names, nvprof tables of Paddle, nsys and torch.profiler tables of vLLM and SGLang,
NVIDIA PyProf. Long template arguments are shortened. Beside each group stands how the verdict is
known: not by the rules of kernels.py, but by the kernel's source or by what the library's maker
says of the name. yes, no: it multiplies matrices, with or without Tensor Cores. open: it multiplies
matrices, by a unit that depends on more than the name. aside: it multiplies none.
"""

import re

import pytest

from allhands.profile import written_steps
from allhands.profile.kernels import MATRIX, said

BATCHED = "cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float>"
TMA = "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized"
NATIVE = "void at::native::"

NAMES = {
    # Volta's instruction is 8x8x4, Turing's 16x8x8: NVIDIA, "Mixed-Precision Training", and PyProf.
    "yes: the instruction of Volta or Turing is in the name": (
        "volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_nn",
        "volta_fp16_s884gemm_fp16_128x256_ldg8_f2f_tn",
        "volta_h884gemm_64x64_nt",
        "volta_h884gemm_256x128_ldg8_nn",
        "turing_fp16_s884gemm_fp16_64x64_ldg8_f2f_nn",
        "turing_fp16_s884gemm_fp16_128x64_ldg8_f2f_nt",
        "turing_fp16_s1688gemm_fp16_256x64_ldg8_f2f_nn",
        "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nt",
        "void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::fprop_indexed::Kernel_traits<"
        "xmma_cudnn::Volta_hmma_fp32_traits, xmma_cudnn::Cta_tile<xmma_cudnn::Volta<int=0>>>>",
    ),
    # CUTLASS: a tensorop of compute capability 8.0 is one; 1688 without a format is TF32.
    "yes: CUTLASS and cuBLAS since Ampere": (
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>"
        "(cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4::Params)",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4>"
        "(cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4::Params)",
        "ampere_h16816gemm_128x64_ldg8_stages_32x6_tn",
    ),
    # nvjet_<types>: t BF16, h FP16, s FP32; the profiles say which operator and types launched it.
    "yes: cuBLAS on Hopper and Blackwell, of aten::mm on BF16": (
        "nvjet_sm100_tst_24x64_64x16_4x1_v_bz_TNN",
        "nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_bias_TNT",
        "nvjet_sm100_tst_128x256_64x4_1x2_h_bz_TNT",
        "nvjet_sm90_tst_128x256",
        "nvjet_tst_8x64_64x16_4x1_v_bz_TNN",
    ),
    "yes: cuBLAS on Hopper, of a product in TF32": ("nvjet_sss_tf32_128x256_TNT",),
    # Dao-AILab/flash-attention, hopper/: the Sm90 kernels hold a TiledMma of GMMA atoms.
    "yes: attention by its source": (
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, "
        "cutlass::bfloat16_t>, false>(flash::Flash_fwd_params)",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
        "cutlass::bfloat16_t>>>",
        "void cutlass::device_kernel<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90<2, "
        "cutlass::half_t>>>",
        "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float, "
        "cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
    ),
    # include/cutlass/gemm/dispatch_policy.hpp; vLLM csrc/quantization; DeepGEMM's wgmma, tcgen05.
    "yes: products of language models by their source": (
        f"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<{TMA}<6>>>",
        "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, 32u, 32u, 0u, 768u>",
        "deep_gemm::sm90_fp8_mqa_logits",
        "void marlin::Marlin<__half, vllm::kU4.id(), 256, 1, 16, 4, 4, false, true, -1>",
        "void marlin::Marlin<(long)1125899906910725, (long)1125899906843648>",
        "void marlin_moe_wna16::Marlin<(long)1125899906910725, (long)1125899906843648>",
        "bmm_E4m3_E4m3E4m3_Fp32_t128x16x128u2_s6_et64x16",
    ),
    # sgemm, scudnn, gcgemm: FP32 (complex) by the ordinary cores; PyProf lists them without.
    "no: cuBLAS and cuDNN without an instruction in the name": (
        "volta_sgemm_32x128_nn",
        "volta_sgemm_32x32_sliced1x4_nn",
        "maxwell_sgemm_128x64_nn",
        "ampere_sgemm_32x32_sliced1x4_tn",
        "sgemm_32x32x32_NT_vec",
        "maxwell_fp16_sgemm_fp16_128x32_nn",
        "maxwell_gcgemm_32x32_nt",
        "volta_gcgemm_32x32_nt",
        "ampere_gcgemm_32x32_nt",
        "volta_dgemm_64x64_lower_nt",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "maxwell_scudnn_128x64_stridedB_splitK_medium_nn_v0",
        "maxwell_scudnn_128x64_stridedB_small_nn_v0",
        "maxwell_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148m_nt_v1",
        "maxwell_scudnn_winograd_128x128_ldg1_ldg4_mobile_relu_tile148t_nt_v0",
        "void cudnn::detail::implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, true>",
        "void cudnn::detail::dgrad_alg1_engine<float, 512, 6, 5, 3, 3, 3, false>",
        "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(T1::Params)",
    ),
    # MAGMA's blocked product; cuBLAS's kernels for small products, vectors and outer products.
    "no: other products of cuBLAS": (
        "void magma_sgemmEx_kernel<float, float, float, false, true, 6, 4, 6, 3, 4>(int, int)",
        "void magma_sgemmEx_kernel<float, float, float, (bool)1, (bool)0, (int)6, (int)4>",
        "_Z19gemm_kernel2x2_coreIdLb0ELb0ELb0ELb0ELb0EEvPT_PKS0_S3_iiiiiiS1_S1_S0_S0_i",
        f"void gemmSN_TN_kernel<float, (int)128, (int)16, (int)2, (int)4, (bool)1, {BATCHED}>",
        "gemmSN_TN_kernel_half<256,8,2,4,8>",
        f"void gemmk1_kernel<int, float, 256, 5, true, false, false, false, {BATCHED}, float, 0>",
        f"void gemmk1_kernel<float, 256, 5, false, false, true, false, {BATCHED}, float>",
        f"void gemv2T_kernel_val<int, int, float, float, float, 128, 16, 4, 4, false, {BATCHED}>",
        f"void gemv2N_kernel<int, int, double2, double2, double2, int=128, int=16, {BATCHED}>",
        f"void gemvNSP_kernel<float, float, float, 1, 16, 4, 1024, cublasGemvParams<{BATCHED}>>",
        f"void dot_kernel<float, 128, 0, cublasDotParams<{BATCHED}>>(cublasDotParams<{BATCHED}>)",
        f"void reduce_1Block_kernel<float, 128, 7, {BATCHED}>(float const*, float)",
        "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, "
        "__nv_bfloat16, __nv_bfloat16, float, (bool)0, (bool)1, (bool)1, (bool)0, (int)7>",
        "_ZN8internal5gemvx6kernelIii13__nv_bfloat16S2_S2_fLb0ELb1ELb1ELb0ELi7ELb0E18"
        "cublasGemvParamsExIi30cublasGemvTensorStridedBatchedIKS2_ES6_S4_IS2_EfEEENSt9enable_if",
    ),
    # Triton's tl.dot: by dtype and chip.
    "open": ("fused_moe_kernel", "fused_moe_kernel_gptq_awq", "triton_tem_fused_mm_0"),
    # PyProf's conv.py counts no operations for these (winoAuxList, fftAuxList, convAuxList).
    "aside: cuDNN's transforms": (
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>"
        "(cudnn::winograd_nonfused::WinogradDataParams<float, float>)",
        "void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>"
        "(cudnn::winograd_nonfused::WinogradFilterParams<float, float>)",
        "void cudnn::winograd_nonfused::winogradForwardOutput9x9_5x5<float, float>",
        "void cudnn::winograd_nonfused::winogradWgradOutput4x4<float, float>",
        "void cudnn::winograd::generateWinogradTilesKernel<1, float, float>",
        "compute_gemm_pointers(float2**, float2 const*, int, float2 const*, int)",
        "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, bool=1, bool=0>",
        "void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params)",
    ),
    # Dao-AILab/flash-attention: flash_fwd_combine, flash_bwd_preprocess, _postprocess kernels.
    "aside: before and after attention": (
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>, "
        "cute::C<128>>, 6, 256, 1, false, true, cutlass::bfloat16_t, float, cutlass::arch::Sm90>>",
        "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<64>>>>",
        "void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<cute::tuple<cute::C<"
        "64>>, cutlass::half_t, float, cutlass::arch::Sm90, 256>>",
        "flash::prepare_varlen_num_blocks_kernel",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>",
    ),
    # By their sources in PyTorch and TensorFlow; splitKreduce sums what a product has left.
    "aside: no product": (
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false>",
        "void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>)",
        f"{NATIVE}(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
        f"{NATIVE}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        f"{NATIVE}(anonymous namespace)::indexSelectSmallIndex<float, long, unsigned int, 2, 2>",
        f"{NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<2>>",
        f"{NATIVE}reduce_kernel<256, 2, at::native::ReduceOp<float>>",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 4, true, false>",
        "void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*, float*, float*)",
        "_ZN5cudnn6detail25bn_fw_tr_1C11_kernel_NCHWIffLi512ELb1ELi1EEEv17cudnnTensorStruct",
        "void tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0, false>(int)",
        "void per_token_group_quant_8bit_kernel<__nv_bfloat16, c10::Float8_e4m3fn>",
    ),
}
KNOWN = [(name, group.split(":")[0]) for group, names in NAMES.items() for name in names]
VERDICT = {True: "yes", False: "no", None: "open"}

# NVIDIA PyProf, pyprof/prof/tc.py (2020, until Turing and the first Ampere): such a name uses
# Tensor Cores. Its xmma words are left out: they do not hold for those in FP32.
PYPROF = ("h884", "s884", "h1688", "s1688", "hmma", "i8816", "16816", "c1688")


@pytest.mark.parametrize(("name", "verdict"), KNOWN)
def test_the_verdict_is_that_of_the_kernels_source(name, verdict):
    found = said(name)
    assert (VERDICT[found.tensor_core] if found.kind == MATRIX else "aside") == verdict


def test_the_names_are_many_and_not_those_that_the_course_wrote():
    written = {row.kernel for step in written_steps.STEPS_WRITTEN for row in step.rows}
    own = {name for name, _ in KNOWN if name not in written}
    assert len(own) >= 60
    assert {verdict for _, verdict in KNOWN} == {"yes", "no", "open", "aside"}


def test_pyprofs_list_agrees_on_names_of_its_time():
    old = re.compile(r"volta|turing|maxwell|ampere|sgemm|cudnn|cutlass_80|Kernel2")
    names = [(name, verdict) for name, verdict in KNOWN if old.search(name)]
    assert len(names) >= 30
    for name, verdict in names:
        assert (verdict == "yes") is any(word in name for word in PYPROF) or "5x_cudnn" in name, (
            name
        )
