"""How fast is a chip on paper? Peak rates by number format, bandwidth and memory, as data.

The figures are the makers' own for dense matrices. Makers also print rates for matrices in which
half of the values are zero ("with sparsity"), twice as high: they are not these. A format that a
chip has no matrix unit for is not in its table: BF16 on a V100 or a T4. TF32 is FP32 in memory,
multiplied with ten bits of fraction.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

T, G = 1e12, 1e9
GB = 1e9
LAUNCH_S = 5e-6  # a kernel's launch, seen from the host; NVIDIA, "Getting Started with CUDA Graphs"
#                  (2019): 3.8 us a kernel on a V100 with overlap, 9.6 us without

VALUE_BYTES = MappingProxyType(
    {"FP64": 8, "FP32": 4, "TF32": 4, "BF16": 2, "FP16": 2, "INT8": 1, "FP8": 1}
)


@dataclass(frozen=True)
class Chip:
    """What a roofline needs of a chip.

    flops_per_s: dense matrix rate by format. launch_s: time of a launch that does nothing.
    source: where the figures are from.
    """

    name: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    memory_bytes: float
    launch_s: float
    source: str

    def peak(self, dtype: str) -> float:
        """Return the matrix rate in FLOP/s; ValueError if the chip does not multiply `dtype`."""
        if dtype not in self.flops_per_s:
            known = ", ".join(self.flops_per_s)
            raise ValueError(f"{self.name} has no rate for {dtype!r}. It has: {known}.")
        return self.flops_per_s[dtype]

    def ridge(self, dtype: str) -> float:
        """Return the intensity in FLOP/byte from which on the arithmetic is the limit."""
        return self.peak(dtype) / self.bytes_per_s


def _hopper(name: str, bytes_per_s: float, memory_bytes: float, source: str) -> Chip:
    rates = {"FP64": 67 * T, "FP32": 67 * T, "TF32": 494.5 * T, "BF16": 989.5 * T}
    rates |= {"FP16": 989.5 * T, "INT8": 1979 * T, "FP8": 1979 * T}
    return Chip(name, MappingProxyType(rates), bytes_per_s, memory_bytes, LAUNCH_S, source)


CHIPS = (
    Chip(
        "V100",
        MappingProxyType({"FP64": 7.8 * T, "FP32": 15.7 * T, "FP16": 125 * T}),
        900 * G,
        16 * GB,
        LAUNCH_S,
        "NVIDIA V100 datasheet (SXM2 16 GB)",
    ),
    Chip(
        "T4",
        MappingProxyType({"FP32": 8.1 * T, "FP16": 65 * T, "INT8": 130 * T}),
        320 * G,
        16 * GB,
        LAUNCH_S,
        "NVIDIA T4 datasheet",
    ),
    Chip(
        "A100",
        MappingProxyType(
            {
                **{"FP64": 19.5 * T, "FP32": 19.5 * T, "TF32": 156 * T},
                **{"BF16": 312 * T, "FP16": 312 * T, "INT8": 624 * T},
            }
        ),
        1555 * G,
        40 * GB,
        LAUNCH_S,
        "NVIDIA A100 datasheet (SXM4 40 GB)",
    ),
    _hopper(
        "H100",
        3350 * G,
        80 * GB,
        "NVIDIA H100 datasheet (SXM5 80 GB), half of the rates with sparsity",
    ),
    _hopper(
        "H200",
        4800 * G,
        141 * GB,
        "NVIDIA H200 datasheet (SXM 141 GB), half of the rates with sparsity",
    ),
)


def chip(name: str) -> Chip:
    """Return a chip by its name, or by a longer one that holds it: "Tesla V100-SXM2-16GB"."""
    for one in CHIPS:
        if one.name.lower() in name.lower():
            return one
    known = ", ".join(one.name for one in CHIPS)
    raise ValueError(
        f"There is no chip {name!r} in the table. It has: {known}. The chip at hand can be "
        f"measured: allhands.train.roofline_here."
    )
