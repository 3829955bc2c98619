"""Why did a matrix kernel not run on Tensor Cores? What its name and its operator's inputs say.

The reasons, in the order in which they are asked, each with a code and a sentence:

    no_tensor_cores  the chip has none
    vector, outer    one of M, N, K is 1
    dtype            FP32 (without TF32) or FP64 is multiplied
    depthwise, fft   the algorithm has no product of matrices that would fit
    dimension        a dimension is not a multiple of 8 (FP16, BF16) or 16 (INT8)
    small            the library chose its kernel for small products
    library          the dtype is right, all dimensions are: the library chose another kernel
    operator         the profile has shapes, of an operator whose dimensions are not known here
    unknown          the profile has no shapes or no dtype: the dimensions or the library's choice

The multiples of 8 and 16 are those of NVIDIA's Deep Learning Performance Guide, "Tensor Core
requirements": needed until cuBLAS 10 and cuDNN 7.5, and fastest since.
"""

from dataclasses import dataclass

from allhands.profile import generations, kernels
from allhands.profile.launches import Launches, Shape

MULTIPLE = {**kernels.FULL_LOAD, "FP8": 16}
TYPES = {  # as torch.profiler writes them, and as people do
    **{"float": "FP32", "double": "FP64", "c10::half": "FP16", "half": "FP16"},
    **{"c10::bfloat16": "BF16", "bfloat16": "BF16", "signed char": "INT8", "char": "INT8"},
    **{"float32": "FP32", "float64": "FP64", "float16": "FP16", "int8": "INT8"},
    **{"c10::float8_e4m3fn": "FP8", "c10::float8_e5m2": "FP8"},
}
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "linear", "matmul", "_addmm_activation")
VECTORS = ("mv", "addmv", "dot", "vdot")
CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d", "_convolution", "cudnn_convolution")

RECURRENT = ("_cudnn_rnn", "_cudnn_rnn_backward", "lstm", "gru")


@dataclass(frozen=True)
class Why:
    """A reason: its code, one sentence, and where a dimension is to blame which one."""

    code: str
    sentence: str
    dimension: str = ""
    size: int | None = None


def dtype_of(types: tuple[str, ...]) -> str:
    """Return what an operator multiplies: the type of the last input that is a tensor of numbers.

    The inputs of a product are of one type; a bias or an index before them may be of another.
    """
    known = [TYPES[one.lower()] for one in types if one.lower() in TYPES]
    return known[-1] if known else ""


def dimensions(operator: str, shapes: tuple[Shape, ...]) -> dict[str, int]:
    """Return the sizes that must be multiples of 8, by name; {} if the operator is not known.

    For a product M x K by K x N these are M, N and K; for a convolution the channels; for a
    recurrent layer its input and its hidden size and the batch.
    """
    name = operator.removeprefix("aten::")
    full = [shape for shape in shapes if len(shape) >= 2]
    if name in VECTORS:
        matrix = next((shape for shape in full), ())
        return {"M": matrix[0], "N": 1, "K": matrix[1]} if len(matrix) == 2 else {}
    if name in PRODUCTS and len(full) >= 2:
        left, right = full[-2:] if name != "linear" else full[:2]
        n = right[0] if name == "linear" else right[-1]
        rows = left[-2]
        if name in ("linear", "matmul") and len(right) == 2:
            for size in left[:-2]:
                rows *= size
        return {"M": rows, "N": n, "K": left[-1]}
    if name in CONVOLUTIONS and len(full) >= 2 and len(full[1]) >= 3:
        weight = full[1]
        return {"output channels": weight[0], "input channels": full[0][1]}
    if name == "convolution_backward" and len(full) >= 3:  # gradient, input, weight
        return {"output channels": full[0][1], "input channels": full[1][1]}
    if name.startswith("_scaled_dot_product") and full:
        return {"head size": full[0][-1]}
    if name in RECURRENT and len(full) >= 2 and len(full[0]) == 3:
        weights = [shape for shape in full[1:] if len(shape) == 2]
        batch = full[0][1]
        hidden = {"hidden size": weights[1][1]} if len(weights) > 1 else {}
        return {"batch": batch, "input size": full[0][2], **hidden}
    return {}


def why(one: Launches, chip: str = "") -> Why:
    """Return why launches of a matrix kernel did not run on Tensor Cores."""
    said = kernels.said(one.name)
    dtype = said.dtype or dtype_of(one.types)
    input_dtype = dtype_of(one.types) or dtype
    generation = generations.generation_of(chip)  # a kernel's name may be of an older chip
    if generation and not generation.tensor_cores:
        return Why("no_tensor_cores", f"{chip} has no Tensor Cores.")
    sizes = dimensions(one.operator, one.shapes)
    ones = [name for name, size in sizes.items() if size == 1 and name in ("M", "N", "K")]
    if said.reason == "outer" or "K" in ones:
        return Why("outer", "An outer product: K = 1.", "K", 1)
    if said.reason == "vector" or ones:
        at = f": {ones[0]} = 1" if ones else ""
        return Why("vector", f"A product with a vector{at}.", ones[0] if ones else "", 1)
    if input_dtype == "FP64" or dtype == "FP64":
        return Why("dtype", "FP64 is multiplied, and the library chose a kernel without them.")
    if input_dtype == "FP32":
        if generation and generation.name in generations.ONLY_FP16:
            more = f": Tensor Cores of {generation.name} take FP16; use mixed precision"
        else:
            more = ", not TF32: allow TF32 (Ampere and later), or use mixed precision"
        return Why("dtype", f"FP32 is multiplied{more}.")
    if said.reason == "depthwise":
        return Why("depthwise", "A depthwise convolution multiplies no matrices.")
    if said.reason == "fft":
        return Why("fft", "The library chose a convolution by Fourier transforms.")
    multiple = MULTIPLE.get(input_dtype, 8)
    odd = {name: size for name, size in sizes.items() if size % multiple}
    if odd:
        listed = ", ".join(f"{name} = {size}" for name, size in odd.items())
        verb = "is not a multiple" if len(odd) == 1 else "are not multiples"
        name, size = next(iter(odd.items()))
        return Why("dimension", f"{listed} {verb} of {multiple}.", name, size)
    if said.reason == "small":
        return Why("small", "The library chose its kernel for small products.")
    if sizes and input_dtype:
        return Why(
            "library",
            f"The library chose otherwise: {input_dtype}, all dimensions multiples of {multiple}.",
        )
    if sizes:
        return Why(
            "unknown",
            f"Not known: neither the name nor the profile says the dtype, and all dimensions are "
            f"multiples of {multiple}.",
        )
    if any(one.shapes):
        return Why(
            "operator",
            f"Not known: {input_dtype or 'no dtype'}, and of {one.operator or 'this operator'} it "
            f"is not known here which sizes must be multiples of {multiple}. Its inputs: "
            f"{', '.join(_written(shape) for shape in one.shapes if shape)}.",
        )
    return Why(
        "unknown",
        f"Not known: {input_dtype or 'no dtype'}, and the profile has no shapes. Record shapes: "
        f"dimensions that are not multiples of {multiple}, or the library's choice.",
    )


def _written(shape: Shape) -> str:
    return " x ".join(map(str, shape))
