"""How fast is a chip on paper? Peak rates by number format, bandwidth and memory, as data.

The figures are the makers' own for dense matrices. Makers also print rates for matrices in which
half of the values are zero ("with sparsity"), twice as high: they are not these. A format that a
chip has no matrix unit for is not in its table: BF16 on a V100 or a T4. TF32 is FP32 in memory,
multiplied with ten bits of fraction.

`CHIPS` are those that the lab speaks of. `VARIANTS` are sold under the same names with other
figures: an H100 with PCIe is a quarter slower than one with SXM.
"""

import re
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


def _chip(
    name: str, tflops: Mapping[str, float], gb_per_s: float, memory_gb: float, source: str
) -> Chip:
    rates = MappingProxyType({dtype: rate * T for dtype, rate in tflops.items()})
    return Chip(name, rates, gb_per_s * G, memory_gb * GB, LAUNCH_S, source)


_V100 = {"FP64": 7.8, "FP32": 15.7, "FP16": 125}
_V100_PCIE = {"FP64": 7.0, "FP32": 14.0, "FP16": 112}
_A100 = {"FP64": 19.5, "FP32": 19.5, "TF32": 156, "BF16": 312, "FP16": 312, "INT8": 624}
_HOPPER = {
    **{"FP64": 67, "FP32": 67, "TF32": 494.5, "BF16": 989.5},
    **{"FP16": 989.5, "INT8": 1979, "FP8": 1979},
}
_H100_PCIE = {
    **{"FP64": 51, "FP32": 51, "TF32": 378, "BF16": 756.5},
    **{"FP16": 756.5, "INT8": 1513, "FP8": 1513},
}
_HOPPER_NVL = {
    **{"FP64": 60, "FP32": 60, "TF32": 417.5, "BF16": 835.5},
    **{"FP16": 835.5, "INT8": 1670.5, "FP8": 1670.5},
}
_HALF = "half of the rates with sparsity"

CHIPS = (
    _chip("V100", _V100, 900, 16, "NVIDIA V100 datasheet (SXM2 16 GB)"),
    _chip("T4", {"FP32": 8.1, "FP16": 65, "INT8": 130}, 320, 16, "NVIDIA T4 datasheet"),
    _chip("A100", _A100, 1555, 40, "NVIDIA A100 datasheet (SXM4 40 GB)"),
    _chip("H100", _HOPPER, 3350, 80, f"NVIDIA H100 datasheet (SXM5 80 GB), {_HALF}"),
    _chip("H200", _HOPPER, 4800, 141, f"NVIDIA H200 datasheet (SXM 141 GB), {_HALF}"),
)
VARIANTS = (
    _chip("V100 SXM 32GB", _V100, 900, 32, "NVIDIA V100 datasheet (SXM2 32 GB)"),
    _chip("V100 PCIe 16GB", _V100_PCIE, 900, 16, "NVIDIA V100 datasheet (PCIe 16 GB)"),
    _chip("V100 PCIe 32GB", _V100_PCIE, 900, 32, "NVIDIA V100 datasheet (PCIe 32 GB)"),
    _chip("A100 SXM 80GB", _A100, 2039, 80, "NVIDIA A100 datasheet (SXM4 80 GB)"),
    _chip("A100 PCIe 40GB", _A100, 1555, 40, "NVIDIA A100 datasheet (PCIe 40 GB)"),
    _chip("A100 PCIe 80GB", _A100, 1935, 80, "NVIDIA A100 datasheet (PCIe 80 GB)"),
    _chip("H100 PCIe 80GB", _H100_PCIE, 2000, 80, f"NVIDIA H100 datasheet (PCIe 80 GB), {_HALF}"),
    _chip("H100 NVL 94GB", _HOPPER_NVL, 3900, 94, f"NVIDIA H100 datasheet (NVL 94 GB), {_HALF}"),
    _chip("H200 NVL 141GB", _HOPPER_NVL, 4800, 141, f"NVIDIA H200 datasheet (NVL), {_HALF}"),
)

BESIDE = ("nvidia", "tesla", "gpu", "hbm2", "hbm2e", "hbm3", "hbm3e")  # words that decide nothing
FORMS = MappingProxyType(  # how a chip is built in, which is more than a plug: the rates differ
    {
        **{"sxm": "SXM", "sxm2": "SXM", "sxm3": "SXM", "sxm4": "SXM", "sxm5": "SXM"},
        **{"pcie": "PCIe", "nvl": "NVL"},
    }
)
USUAL_FORM = MappingProxyType({"T4": "PCIe"})  # where a name does not say it; of others it is SXM
_MEMORY = re.compile(r"(?<![a-z0-9])(\d+) ?gb(?![a-z0-9])", re.IGNORECASE)


def chip(name: str) -> Chip:
    """Return a chip by its name, as people or the driver write it: "Tesla V100-SXM2-16GB".

    Every word of the name must be known and fit: an A1000, a GH200 or a part of an H100 (MIG) is
    not taken for another chip. Where a name leaves the memory or the form open, the chip of `CHIPS`
    is meant, else the first that fits. ValueError names the known chips.
    """
    found = _MEMORY.search(name)
    words = re.findall(r"[A-Za-z0-9.]+", _MEMORY.sub(" ", name))
    words = [word for word in words if word.lower() not in BESIDE]
    forms = {FORMS[word.lower()] for word in words if word.lower() in FORMS}
    names = {word.upper() for word in words if word.lower() not in FORMS}
    for one in (*CHIPS, *VARIANTS):
        family, *form = one.name.split()
        fits = names == {family} and forms <= {form[0] if form else USUAL_FORM.get(family, "SXM")}
        if fits and (not found or int(found[1]) * GB == one.memory_bytes):
            return one
    known = ", ".join(one.name for one in (*CHIPS, *VARIANTS))
    raise ValueError(
        f"There is no chip {name!r} in the table. It has: {known}. The chip at hand can be "
        f"measured: allhands.train.roofline_here."
    )
