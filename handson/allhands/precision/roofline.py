"""How long must a matrix product take, and what limits it: arithmetic, memory or the launch?

A product of M x K by K x N needs 2 M N K operations and moves at least M K + K N + M N values. A
chip can do neither faster than its peak and its bandwidth allow:

    time = max(operations / peak, bytes / bandwidth) + launch

Intensity is operations per byte. Below the chip's ridge (peak / bandwidth) memory is the limit, and
a faster matrix unit gains nothing but what smaller values save. Source: Williams, Waterman and
Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009; the term for the
launch is added here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from allhands.precision.chips import VALUE_BYTES, Chip

COMPUTE, MEMORY, LAUNCH = "compute", "memory", "launch"


@dataclass(frozen=True)
class Product:
    """`count` launches, each of `batch` products of M x K by K x N matrices."""

    name: str
    m: int
    n: int
    k: int
    dtype: str = "FP32"
    count: int = 1
    batch: int = 1

    def __post_init__(self) -> None:
        sizes = {name: getattr(self, name) for name in ("m", "n", "k", "count", "batch")}
        if bad := {name: size for name, size in sizes.items() if size < 1}:
            raise ValueError(f"The sizes of a product are 1 or more, saw {bad}.")
        if self.dtype not in VALUE_BYTES:
            known = ", ".join(VALUE_BYTES)
            raise ValueError(f"There is no dtype {self.dtype!r}. There is: {known}.")

    @property
    def flops(self) -> float:
        """Operations of all `count` launches."""
        return 2.0 * self.m * self.n * self.k * self.batch * self.count

    @property
    def n_bytes(self) -> float:
        """Bytes that all launches must move, each matrix once."""
        values = self.m * self.k + self.k * self.n + self.m * self.n
        return float(values) * VALUE_BYTES[self.dtype] * self.batch * self.count

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.n_bytes

    def backward(self) -> tuple["Product", "Product"]:
        """The two products of its backward pass: for the left input's gradient, and the right's."""
        return (
            replace(self, name=f"{self.name}, d input", n=self.k, k=self.n),
            replace(self, name=f"{self.name}, d weights", m=self.k, k=self.m),
        )


@dataclass(frozen=True)
class Prediction:
    """What a roofline says of a product on a chip. All times are of all its launches."""

    product: Product
    compute_s: float
    memory_s: float
    launch_s: float

    @property
    def time_s(self) -> float:
        """The time: max(compute, memory) + launch."""
        return max(self.compute_s, self.memory_s) + self.launch_s

    @property
    def bound(self) -> str:
        """The largest of the three terms: compute, memory or launch."""
        terms = {COMPUTE: self.compute_s, MEMORY: self.memory_s, LAUNCH: self.launch_s}
        return max(terms, key=terms.get)

    @property
    def flops_per_s(self) -> float:
        """The rate that is left, with the launch."""
        return self.product.flops / self.time_s


def predict(product: Product, chip: Chip) -> Prediction:
    """Return the prediction for a product; ValueError if the chip does not multiply its dtype."""
    return Prediction(
        product,
        product.flops / chip.peak(product.dtype),
        product.n_bytes / chip.bytes_per_s,
        product.count * chip.launch_s,
    )


def gain(product: Product, chip: Chip, fast: str = "FP16", slow: str = "FP32") -> float:
    """Return how many times faster the product is in `fast` than in `slow`: 1 is no gain."""
    fast_s, slow_s = (predict(replace(product, dtype=d), chip).time_s for d in (fast, slow))
    return slow_s / fast_s


class Size(Protocol):
    """Sizes of the translator; `allhands.model.seq2seq.ModelSize` has them."""

    n_source: int
    n_target: int
    n_embed: int
    n_hidden: int


@dataclass(frozen=True)
class Translator:
    """The same sizes where no framework is installed; from a dict: `Translator(**sizes)`."""

    n_source: int
    n_target: int
    n_embed: int = 64
    n_hidden: int = 128


def translator(
    size: Size,
    batch_size: int,
    source_length: int,
    target_length: int,
    dtype: str = "FP32",
    *,
    backward: bool = False,
) -> tuple[Product, ...]:
    """Return the matrix products of lab 1's translator for one batch, with `backward` all three.

    Lengths are in tokens, padding included. A recurrent layer takes the inputs of all steps at once
    and then the hidden state step by step: many small products.
    """
    rows_in, rows_out = batch_size * source_length, batch_size * target_length
    n_embed, n_hidden = size.n_embed, size.n_hidden
    gates = 4 * n_hidden
    forward = (
        Product("encoder inputs", rows_in, gates, n_embed, dtype),
        Product("encoder step", batch_size, gates, n_hidden, dtype, count=source_length),
        Product("decoder inputs", rows_out, gates, n_embed, dtype),
        Product("decoder step", batch_size, gates, n_hidden, dtype, count=target_length),
        Product("keys", rows_in, n_hidden, n_hidden, dtype),
        Product("scores", target_length, source_length, n_hidden, dtype, batch=batch_size),
        Product("context", target_length, n_hidden, source_length, dtype, batch=batch_size),
        Product("combine", rows_out, n_hidden, 2 * n_hidden, dtype),
        Product("output", rows_out, size.n_target, n_hidden, dtype),
    )
    if not backward:
        return forward
    return tuple(one for product in forward for one in (product, *product.backward()))


def total_s(products: Iterable[Product], chip: Chip) -> float:
    """Return the predicted time of products one after the other."""
    return sum(predict(product, chip).time_s for product in products)


def table(products: Sequence[Product], chip: Chip) -> str:
    """Return the predictions as text: a product a line, times in microseconds."""
    lines = [
        f"{'product':20} {'M x N x K':>18} {'dtype':5} {'launches':>8} {'FLOP/byte':>9} "
        f"{'compute':>8} {'memory':>8} {'launch':>8} {'us':>9}  bound"
    ]
    for product in products:
        one = predict(product, chip)
        sizes = f"{product.m} x {product.n} x {product.k}"
        lines.append(
            f"{product.name:20} {sizes:>18} {product.dtype:5} {product.count:8} "
            f"{product.intensity:9.1f} {1e6 * one.compute_s:8.2f} {1e6 * one.memory_s:8.2f} "
            f"{1e6 * one.launch_s:8.2f} {1e6 * one.time_s:9.2f}  {one.bound}"
        )
    return "\n".join(lines)
