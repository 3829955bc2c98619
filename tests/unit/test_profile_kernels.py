"""Kernel names: what is published about them is what the rules say."""

import pytest

from allhands.profile import kernels
from allhands.profile.generations import generation_of
from allhands.profile.kernels import COMMUNICATION, ELEMENTWISE, MATRIX, MEMORY, OTHER, said

XMMA = "sm80_xmma_gemm_{}_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_{}_execute_kernel__5x_cublas"

ON = {  # names as they stand in published profiles, and what they multiply
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn": "FP16",
    "volta_h884gemm_64x64_ldg8_nn": "FP16",
    "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1": "FP16",
    "Volta_hmma_implicit_gemm_fprop_fp32_nhwc_128x128x64x1_1x3x3x0x1": "FP16",
    "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_stages_32x1_tn": "FP16",
    "turing_h1688gemm_128x64_ldg8_nn": "FP16",
    "void cutlass::Kernel2<cutlass_75_tensorop_f16_s1688gemm_f16_64x64_tn_align8>(P)": "FP16",
    "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x5_tn": "FP16",
    "ampere_fp16_s1688gemm_fp16_64x128_sliced1x2_ldg8_f2f_tn": "FP16",
    "ampere_h16816gemm_256x128_ldg8_stages_32x3_tn": "FP16",
    "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_64x64_32x10_nt_align8>(P)": "FP16",
    "ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_nn": "BF16",
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_32x6_nn_align8>": (
        "BF16"
    ),
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_nn_align8>": (
        "BF16"
    ),
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4>(Params)": "TF32",
    "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nt_align1>(Params)": "FP64",
    "cutlass_80_wmma_tensorop_i161616gemm_s8_128x128_128x2_tn_align16": "INT8",
    "turing_int8_i8816gemm_int8_256x128_ldg16_mma_interleaved_tt": "INT8",
    XMMA.format("f32f32_tf32f32_f32", "tensor16x8x8"): "TF32",
    "sm90_xmma_gemm_f16f16_f16f16_f16_nt_n_tilesize128x128x64_stage4_hgmma64x128x16": "FP16",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1": "BF16",
    "sm80_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage4_tensor8x8x4_dmma": "FP64",
    "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128_qgmma64x64x32": "FP8",
    "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_128x128x64_warpspecialized": "FP16",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNN": "FP16",
    "nvjet_hss_64x8_64x16_1x1_v_bz_splitK_NNT": "FP16",
    "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN": "BF16",
    "nvjet_qqtst_128x128_128x6_2x1_v_bz_TNT": "FP8",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 64, 4, cutlass::half_t>>(P)": "FP16",
    "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)": "FP16",
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)": "TF32",
    "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_7_64x64x64": "FP16",
    "void RNN_blockPersist_fp_LSTM_HMMA<__half, __half, float, 1, 128>(const __half*)": "FP16",
    "void dgrad_1x1_stride_2x2<__half>": "FP16",
    "nvjet_sss_tf32_128x256_TNT": "TF32",
    "nvjet_sm90_sss_128x128_64x4_2x1_v_bz_TNN": "TF32",
    "nvjet_sm100_sss_tf32_128x256_TNT": "TF32",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int>, "
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<4>"
    ", cute::tuple<cute::C<128>>, cutlass::bfloat16_t>>>": "BF16",
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int>, "
    "cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm100TmaUmmaWarpSpecialized<4"
    ">, cute::tuple<cute::C<128>>, cutlass::float_e4m3_t>>>": "FP8",
    "kernel_cutlass_gemm_sm100_bf16": "BF16",
    "void deep_gemm::fp8_gemm_kernel<7168u, 4096u, 128u, 128u, 128u>(__nv_bfloat16*)": "FP8",
    "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 7168u>": "FP8",
    "void marlin::Marlin<__half, 1125899906843648l, 256, 1, 16, 4, 4>(int4 const*)": "FP16",
}
OFF = {
    "volta_sgemm_128x64_nn": "FP32",
    "maxwell_sgemm_128x64_tn": "FP32",
    "ampere_sgemm_128x64_nn": "FP32",
    "volta_fp16_sgemm_fp16_128x128_nt": "FP16",
    "maxwell_fp16_sgemm_fp16_128x64_tn": "FP16",
    "volta_dgemm_64x64_nt": "FP64",
    "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1": "FP32",
    "volta_scudnn_128x64_relu_interior_nn_v1": "FP32",
    "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nt_align1>(Params)": "FP32",
    XMMA.format("f32f32_f32f32_f32", "ffma_aligna4_alignc4"): "FP32",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize256x64...": "FP32",  # cut off by a table
    "void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4>": "FP16",
    "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, float, float>": "FP32",
    "void gemmk1_kernel<int, float, 256, 5, false, false, false, false>": "FP32",
    "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorBatched<float const>>>": "FP32",
    "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>": "FP32",
    "void cudnn::detail::implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1>": "FP32",
    "void cudnn::winograd::winograd3x3Kernel<float, float, 1, 4, 8, 0>": "FP32",
    "void fft2d_r2c_32x32<float, false, 0u, false>": "FP32",
    "void cudnn::detail::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, true, 512>": "FP32",
    "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float>": "FP32",
    "void RNN_blockPersist_fp_LSTM<float, float, float, 128>(const float*)": "FP32",
    "fmha_cutlassF_f32_aligned_64x64_rf_sm75(PyTorchMemEffAttention)": "FP32",
    "fmha_cutlassF_f16_aligned_64x64_rf_sm50(PyTorchMemEffAttention)": "FP16",
    "volta_gcgemm_32x32_nt": "FP32",
    "volta_zgemm_64x64_nn": "FP64",
    "void gemm_kernel2x2_core<double, false, false, false, false, false>(double*)": "FP64",
    "void magma_sgemmEx_kernel<float, float, float, false, true, 6, 4, 6, 3, 4>(int)": "FP32",
    "void gemmSN_TN_kernel_half<256, 8, 2, 4, 8>": "",
}
OPEN = (  # products of matrices, of which the name does not say which unit multiplied them
    "triton_mm",
    "triton_tem_fused_mm_3",
    "nvjet_ddd_64x64_16x4",  # FP64 by its letters; not confirmed by a published profile
    "nvjet_sm100_sss_64x64_16x4",  # TF32, or FP32 out of three BF16 products
    "fused_moe_kernel",
    "sm80_xmma_fprop_implicit_gemm_indexed_unheard_of",
    "my_own_gemm_kernel",
    "void RNN_blockPersist_fp_LSTM<__half, __half, float, 128>(const __half*)",
    "paged_attention_v2_kernel",
)
ASIDE = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": COMMUNICATION,
    "void vllm::cross_device_reduce_1stage<__half, 2>": COMMUNICATION,
    "[CUDA memcpy HtoD]": MEMORY,
    "Memset (Device)": MEMORY,
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>": MEMORY,
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>": MEMORY,
    "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>": MEMORY,
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long>": MEMORY,
    "void cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)": MEMORY,
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>": MEMORY,
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, false>": ELEMENTWISE,
    "void LSTM_elementWise_bp1<__nv_bfloat16, __nv_bfloat16, float>(int, int)": ELEMENTWISE,
    "void elemWiseRNNcell<__half, __half, float, 2, 1>(int, int)": ELEMENTWISE,
    "void flash_bwd_dot_do_o_kernel<true>(Flash_bwd_params)": ELEMENTWISE,
    "triton_poi_fused_add_relu_0": ELEMENTWISE,
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>": ELEMENTWISE,
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>": ELEMENTWISE,
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<AdamFunctor>": ELEMENTWISE,
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1, true>": ELEMENTWISE,
    "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, int>": ELEMENTWISE,
    "cupy_add__float32_float32_float32": ELEMENTWISE,
    "lstm_fwd": ELEMENTWISE,
    "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>": ELEMENTWISE,
    "void cudnn::winograd_nonfused::winogradWgradOutput4x4<float, float>": ELEMENTWISE,
    "void cudnn::winograd::generateWinogradTilesKernel<0, float, float>": ELEMENTWISE,
    "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64>, 4>": ELEMENTWISE,
    "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>>>>": ELEMENTWISE,
    "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<8>>>>": (
        ELEMENTWISE
    ),
    "void cutlass::device_kernel<flash::FlashAttnBwdPostprocessConvertdQ<cute::C<8>>>": ELEMENTWISE,
    "void flash_bwd_preprocess_kernel<true>(Flash_bwd_params)": ELEMENTWISE,
    "_attn_bwd_preprocess": ELEMENTWISE,
    "void vllm::paged_attention_v2_reduce_kernel<__half, 128, 128, 512>": ELEMENTWISE,
    "flash::prepare_varlen_num_blocks_kernel(int, int, int)": MEMORY,
    "void deep_gemm::transpose_fp32<256u, 128u, 56u>(float const*, float*)": MEMORY,
    "void marlin::gptq_marlin_repack_kernel<256, 4, false>(unsigned int const*)": MEMORY,
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda, "
    "c10::Float8_e4m3fn>": MEMORY,
    "void at::native::vectorized_elementwise_kernel<4, c10::Float8_e4m3fn>": ELEMENTWISE,
}


@pytest.mark.parametrize(("name", "dtype"), ON.items())
def test_published_names_of_tensor_core_kernels(name, dtype):
    assert (said(name).kind, said(name).tensor_core, said(name).dtype) == (MATRIX, True, dtype)


@pytest.mark.parametrize(("name", "dtype"), OFF.items())
def test_published_names_of_matrix_kernels_without_tensor_cores(name, dtype):
    assert (said(name).kind, said(name).tensor_core, said(name).dtype) == (MATRIX, False, dtype)


@pytest.mark.parametrize("name", OPEN)
def test_what_a_name_does_not_say_is_not_guessed(name):
    assert (said(name).kind, said(name).tensor_core) == (MATRIX, None)


@pytest.mark.parametrize(("name", "kind"), ASIDE.items())
def test_what_multiplies_no_matrices(name, kind):
    assert (said(name).kind, said(name).tensor_core) == (kind, None)


@pytest.mark.parametrize("name", ["my_kernel", "", "kernel_0", "lattice_boltzmann_step"])
def test_a_name_that_no_rule_knows_is_other(name):
    assert said(name) == kernels.Said(OTHER, None, "", "", None)


def test_every_rule_decides_about_at_least_one_of_these_names():
    deciding = {said(name).rule for name in (*ON, *OFF, *OPEN, *ASIDE)}
    assert [rule.pattern for rule in kernels.RULES if rule not in deciding] == []


def test_every_rule_that_judges_tensor_cores_has_a_source():
    assert [r.pattern for r in kernels.RULES if r.tensor_core is not None and not r.source] == []


SMALL = "cublasGemvTensorStridedBatched<float const>, cublasGemvTensorStridedBatched<float>"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (f"void gemmSN_NN_kernel<float, 256, 4, 2, 8, 2, 4, false, {SMALL}>", "small"),
        (f"void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, {SMALL}>", "small"),
        ("void gemmSN_TN_kernel_half<256, 8, 2, 4, 8>", "small"),
        (f"void gemmk1_kernel<int, float, 256, 5, true, false, false, false, {SMALL}>", "outer"),
        ("_Z13gemmk1_kernelIifLi256E30cublasGemvTensorStridedBatchedIKfES1_IfEfEv", "outer"),
        ("_Z16gemmSN_TN_kernelIfLi128E30cublasGemvTensorStridedBatchedIKfES1_IfEfEv", "small"),
        ("_Z17gemv2T_kernel_valIiifffLi128E30cublasGemvTensorStridedBatchedIKfEfEv", "vector"),
        (f"void gemvNSP_kernel<float, float, float, 1, 16, 4, 1024, {SMALL}>", "vector"),
        (f"std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, {SMALL}>", "vector"),
        ("void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTe", "small"),  # cut
        (f"void splitKreduce_kernel<float, {SMALL}>", ""),
    ],
)
def test_a_word_in_a_template_argument_decides_nothing(name, reason):
    assert said(name).reason == reason


def test_a_bare_name_has_no_template_arguments():
    assert kernels.bare("void a::b<int, c<d>>::e<f>(g)") == "void a::b::e(g)"
    assert kernels.bare("void a<b<c") == "void a"
    assert kernels.bare("a>b") == "ab"


WITH = {
    "Tesla V100-SXM2-16GB": "Volta",
    "NVIDIA TITAN V": "Volta",
    "Tesla T4": "Turing",
    "T4G": "Turing",
    "NVIDIA TITAN RTX": "Turing",
    "Quadro RTX 6000": "Turing",
    "NVIDIA GeForce RTX 2080 Ti": "Turing",
    "NVIDIA A100-SXM4-40GB": "Ampere",
    "NVIDIA A2": "Ampere",
    "NVIDIA A10": "Ampere",
    "NVIDIA A10G": "Ampere",
    "NVIDIA A16": "Ampere",
    "NVIDIA A30": "Ampere",
    "NVIDIA A40": "Ampere",
    "NVIDIA RTX A2000 12GB": "Ampere",
    "NVIDIA RTX A4000": "Ampere",
    "NVIDIA RTX A5000": "Ampere",
    "NVIDIA RTX A6000": "Ampere",
    "NVIDIA RTX A1000": "Ampere",
    "NVIDIA GeForce RTX 3090": "Ampere",
    "Orin": "Ampere",
    "NVIDIA H100 80GB HBM3": "Hopper",
    "NVIDIA H200": "Hopper",
    "NVIDIA GH200 480GB": "Hopper",
    "NVIDIA L4": "Ada",
    "NVIDIA L40": "Ada",
    "NVIDIA L40S": "Ada",
    "NVIDIA RTX 6000 Ada Generation": "Ada",
    "NVIDIA GeForce RTX 4090": "Ada",
    "NVIDIA B200": "Blackwell",
    "NVIDIA B300": "Blackwell",
    "NVIDIA GB200": "Blackwell",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "Blackwell",
}
WITHOUT = {
    "NVIDIA T400": "Turing",
    "NVIDIA T400 4GB": "Turing",
    "NVIDIA T1000 8GB": "Turing",
    "NVIDIA GeForce GTX 1650 Ti": "Turing",
    "NVIDIA GeForce GTX 1660 SUPER": "Turing",
    "NVIDIA GeForce MX450": "Turing",
    "Tesla K80": "Kepler",
    "Tesla M60": "Maxwell",
    "NVIDIA GeForce GTX TITAN X": "Maxwell",
    "Tesla P40": "Pascal",
    "Tesla P100-PCIE-16GB": "Pascal",
    "NVIDIA TITAN X (Pascal)": "Pascal",
    "NVIDIA TITAN Xp": "Pascal",
    "NVIDIA GeForce GTX 1080 Ti": "Pascal",
}


@pytest.mark.parametrize("chip", [*WITH, *WITHOUT])
def test_generations_and_whether_they_have_tensor_cores(chip):
    found = generation_of(chip)
    assert (found.name, found.tensor_cores) == ((WITH | WITHOUT)[chip], chip in WITH)


@pytest.mark.parametrize("chip", ["", "Radeon", "AMD Instinct MI250X", "Tesla", "XA100", "A1001"])
def test_a_chip_that_is_not_known_has_no_generation(chip):
    assert generation_of(chip) is None


def test_alignment():
    assert kernels.alignment("cutlass_80_tensorop_f16_s16816gemm_f16_64x64_nn_align2>(P)") == 2
    assert kernels.alignment("cutlass_80_tensorop_f16_s16816gemm_f16_64x64_nn_align8::Params") == 8
    assert kernels.alignment("volta_sgemm_128x64_nn") is None
