"""How fast is the chip at hand really? Measured rates, and products against their prediction.

    from allhands.train import roofline_here
    here = roofline_here.measure()                 # a few seconds; "cuda:0" for a GPU
    print(here)

The peak of a format is the fastest product of square matrices that was seen, the bandwidth that of
a copy that is larger than any cache, the launch the time of the smallest product. So the roofline
is that of this machine today, as PyTorch reaches it, and not the maker's. Products that were not
used to find it are then predicted and measured.

Rounds are interleaved and the fastest counts: other work on the machine only makes things slower.
With one thread the clock is the thread's CPU time, which stands still while others run. The path
for a GPU waits for the GPU before and after each measurement (not tested in CI).
"""

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass

import torch

from allhands.precision.chips import Chip
from allhands.precision.roofline import Product, predict

TORCH = {
    **{"FP32": torch.float32, "TF32": torch.float32, "BF16": torch.bfloat16},
    **{"FP16": torch.float16, "FP64": torch.float64},
}
CPU_SIZES, GPU_SIZES = (256, 512, 768), (2048, 4096, 8192)
CPU_COPY_BYTES, GPU_COPY_BYTES = 1 << 26, 1 << 30
TINY = 8
TIMED_S = 2e-3  # a measurement repeats what is shorter than this


@dataclass(frozen=True)
class Measured:
    """A product, the time of one launch that was measured, and the one that was predicted."""

    product: Product
    measured_s: float
    predicted_s: float

    @property
    def flops_per_s(self) -> float:
        """The rate that was measured."""
        return self.product.flops / self.measured_s


@dataclass(frozen=True)
class Here:
    """The chip at hand, and products on it."""

    chip: Chip
    products: tuple[Measured, ...]

    def as_dict(self) -> dict:
        """The measurement as JSON takes it."""
        chip = {
            "name": self.chip.name,
            "flops_per_s": dict(self.chip.flops_per_s),
            "bytes_per_s": self.chip.bytes_per_s,
            "memory_bytes": self.chip.memory_bytes,
            "launch_s": self.chip.launch_s,
            "source": self.chip.source,
        }
        products = [
            {
                **asdict(one.product),
                "flops": one.product.flops,
                "n_bytes": one.product.n_bytes,
                "measured_s": one.measured_s,
                "predicted_s": one.predicted_s,
            }
            for one in self.products
        ]
        return {"chip": chip, "products": products}

    def __str__(self) -> str:
        rates = ", ".join(f"{d} {r / 1e9:.4g}" for d, r in self.chip.flops_per_s.items())
        lines = [
            f"{self.chip.name}: {rates} GFLOP/s, {self.chip.bytes_per_s / 1e9:.3g} GB/s, "
            f"launch {1e6 * self.chip.launch_s:.3g} us ({self.chip.source})",
            f"{'product':20} {'M x N x K':>18} {'dtype':5} {'FLOP/byte':>9} "
            f"{'predicted (us)':>14} {'measured (us)':>13} {'ratio':>6}",
        ]
        for one in self.products:
            product = one.product
            sizes = f"{product.m} x {product.n} x {product.k}"
            lines.append(
                f"{product.name:20} {sizes:>18} {product.dtype:5} {product.intensity:9.1f} "
                f"{1e6 * one.predicted_s:14.2f} {1e6 * one.measured_s:13.2f} "
                f"{one.measured_s / one.predicted_s:6.2f}"
            )
        return "\n".join(lines)


def others(dtype: str = "FP32") -> tuple[Product, ...]:
    """Products to predict that the roofline was not made from: large, flat, thin and small."""
    return (
        Product("square", 640, 640, 640, dtype),
        Product("output layer", 512, 104, 512, dtype),
        Product("recurrent step", 64, 512, 128, dtype),
        Product("flat", 1024, 1024, 16, dtype),
        Product("thin", 16, 1024, 1024, dtype),
        Product("with a vector", 1, 2048, 2048, dtype),
        Product("small", 32, 32, 32, dtype),
    )


def measure(
    device: str = "cpu",
    dtypes: Sequence[str] = ("FP32",),
    products: Iterable[Product] | None = None,
    *,
    rounds: int = 5,
    sizes: Sequence[int] | None = None,
    copy_bytes: int | None = None,
) -> Here:
    """Measure the roofline of `device` and some products on it, each with one launch.

    dtypes: FP32, TF32 (a GPU since Ampere), BF16, FP16 or FP64. products: default `others` in each
    format. Raises ValueError for a format or a device that is not there.
    """
    _check(device, dtypes, rounds)
    gpu = device.startswith("cuda")
    sizes = sizes or (GPU_SIZES if gpu else CPU_SIZES)
    copy_bytes = copy_bytes or (GPU_COPY_BYTES if gpu else CPU_COPY_BYTES)
    if products is None:
        products = [one for dtype in dtypes for one in others(dtype)]
    products = list(products)
    _check(device, [one.dtype for one in products], rounds)
    if any(one.count != 1 for one in products):
        raise ValueError("A product is measured with one launch: give it count=1.")
    if missing := {one.dtype for one in products} - set(dtypes):
        raise ValueError(f"Products in {', '.join(missing)} need that format among dtypes.")
    squares = [Product("peak", n, n, n, dtype) for dtype in dtypes for n in sizes]
    tiny = Product("launch", TINY, TINY, TINY, dtypes[0])
    wait = torch.cuda.synchronize if gpu else _nothing
    alone = not gpu and torch.get_num_threads() == 1
    clock = time.thread_time if alone else time.perf_counter
    works = [_product(one, device) for one in (*squares, tiny, *products)]
    works.append(_copy(copy_bytes, device))
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for index, work in enumerate(works):
            best[index] = min(best[index], _time_s(work, wait, clock))
    peaks: dict[str, float] = {}
    for product, seconds in zip(squares, best, strict=False):
        rate = product.flops / seconds
        peaks[product.dtype] = max(peaks.get(product.dtype, 0.0), rate)
    launch_s = best[len(squares)]
    chip = Chip(
        _name(device), peaks, 2 * copy_bytes / best[-1], _memory_bytes(device), launch_s, _source()
    )
    times = best[len(squares) + 1 : -1]
    measured = (
        Measured(one, seconds, predict(one, chip).time_s)
        for one, seconds in zip(products, times, strict=True)
    )
    return Here(chip, tuple(measured))


def _check(device: str, dtypes: Iterable[str], rounds: int) -> None:
    if unknown := [dtype for dtype in dtypes if dtype not in TORCH]:
        raise ValueError(f"There is no dtype {unknown[0]!r} here. There is: {', '.join(TORCH)}.")
    if rounds < 1:
        raise ValueError(f"It takes 1 round or more, saw {rounds}.")
    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            raise ValueError(f"{device}: PyTorch sees no GPU here. Take device='cpu'.")
    elif device != "cpu":
        raise ValueError(f"The device is cpu or cuda:N, saw {device!r}.")
    elif "TF32" in dtypes:
        raise ValueError("A CPU has no TF32: take FP32, BF16 or FP64.")


def _product(product: Product, device: str) -> Callable[[], object]:
    dtype = TORCH[product.dtype]
    batch = (product.batch,) if product.batch > 1 else ()
    generator = torch.Generator().manual_seed(0)
    left = torch.rand(*batch, product.m, product.k, generator=generator).to(device, dtype)
    right = torch.rand(*batch, product.k, product.n, generator=generator).to(device, dtype)
    out = torch.empty(*batch, product.m, product.n, device=device, dtype=dtype)
    if not device.startswith("cuda"):
        return lambda: torch.matmul(left, right, out=out)

    def multiply() -> None:
        torch.backends.cuda.matmul.allow_tf32 = product.dtype == "TF32"
        torch.matmul(left, right, out=out)

    return multiply


def _copy(n_bytes: int, device: str) -> Callable[[], object]:
    source = torch.ones(n_bytes, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)  # touched, so that its pages are there
    return lambda: target.copy_(source)


def _time_s(
    work: Callable[[], object], wait: Callable[[], object], clock: Callable[[], float]
) -> float:
    """Return the time of one call, as the mean over as many calls as TIMED_S takes."""
    work()
    wait()
    repeats = 1
    while True:
        start = clock()
        for _ in range(repeats):
            work()
        wait()
        passed = clock() - start
        if passed >= TIMED_S:
            return passed / repeats
        repeats = max(repeats + 1, int(1.3 * repeats * TIMED_S / max(passed, 1e-7)))


def _nothing() -> None:
    """A CPU has finished when the call returns."""


def _name(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} thread(s))"


def _memory_bytes(device: str) -> float:
    if device.startswith("cuda"):
        return float(torch.cuda.get_device_properties(device).total_memory)
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _source() -> str:
    return f"measured here with PyTorch {torch.__version__}"
