"""How much memory does a training need, in FP32 and in mixed precision, and which batch fits?

For each parameter (Rajbhandari et al., "ZeRO", SC 2020, section 3.1, with Adam):

    FP32:  weight 4 + gradient 4 + two moments 4 + 4                    = 16 bytes
    mixed: FP16 weight 2 + FP16 gradient 2 + master weight 4 + moments 8 = 16 bytes
    pure FP16: everything in two bytes                                   =  8 bytes

So mixed precision saves no memory on the weights. It saves on the activations: what the forward
pass keeps for the backward pass, which grows with the batch and halves in FP16. The softmax stays
in FP32. All bytes are what the arithmetic needs; a framework needs more (workspaces, fragments,
copies), so a measured figure is higher.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from allhands.precision.roofline import Size

ADAM_MOMENTS = 2


@dataclass(frozen=True)
class Holding:
    """What a recipe holds: bytes of a value of each kind.

    master: 0 where the weights are their own master.
    """

    name: str
    weight: int
    gradient: int
    master: int
    moment: int
    activation: int

    @property
    def parameter_bytes(self) -> int:
        """Bytes for each parameter, with Adam."""
        return self.weight + self.gradient + self.master + ADAM_MOMENTS * self.moment


HOLDINGS: Mapping[str, Holding] = MappingProxyType(
    {
        "fp32": Holding("fp32", weight=4, gradient=4, master=0, moment=4, activation=4),
        "mixed": Holding("mixed", weight=2, gradient=2, master=4, moment=4, activation=2),
        "fp16": Holding("fp16", weight=2, gradient=2, master=0, moment=2, activation=2),
    }
)


def holding(name: str) -> Holding:
    """Return what the recipe `name` holds: fp32, mixed or fp16 (which lab 3 shows to fail)."""
    if name not in HOLDINGS:
        raise ValueError(f"There is no recipe {name!r}. There is: {', '.join(HOLDINGS)}.")
    return HOLDINGS[name]


def n_parameters(size: Size) -> int:
    """Return the number of parameters of lab 1's translator."""
    embed, hidden = size.n_embed, size.n_hidden
    lstm = 4 * hidden * (embed + hidden) + 4 * hidden
    embeddings = (size.n_source + size.n_target) * embed
    key, combine = hidden * hidden, 2 * hidden * hidden + hidden
    return embeddings + 2 * lstm + key + combine + size.n_target * (hidden + 1)


def kept_values(size: Size, source_length: int, target_length: int) -> tuple[int, int]:
    """Return how many values the forward pass of one sentence keeps for the backward pass.

    The first number is of values in the recipe's format, the second of those that stay in FP32
    (the softmax over the vocabulary). For each step an LSTM keeps its input, four gates, the cell
    and the hidden state; the attention its keys, the encoder's states, scores and weights; the
    output layer the context beside the hidden state, their combination, and the logits.
    """
    embed, hidden = size.n_embed, size.n_hidden
    lstm = (source_length + target_length) * (embed + 6 * hidden)
    attention = 2 * source_length * hidden + 2 * source_length * target_length
    last = target_length * (3 * hidden + size.n_target)
    return lstm + attention + last, target_length * size.n_target


@dataclass(frozen=True)
class Need:
    """Bytes that a training needs: for the parameters, and for each sentence of a batch."""

    weights: float
    gradients: float
    master: float
    moments: float
    activations_per_sentence: float

    @property
    def fixed(self) -> float:
        """What does not grow with the batch."""
        return self.weights + self.gradients + self.master + self.moments

    def total(self, batch_size: int) -> float:
        """Bytes of a whole training step."""
        return self.fixed + batch_size * self.activations_per_sentence

    def batch_that_fits(self, memory_bytes: float, reserve_bytes: float = 0.0) -> int:
        """Return the largest batch for a memory; 0 if not even one sentence fits.

        reserve_bytes: for the driver, the framework and its workspaces.
        """
        if not memory_bytes > 0 or not reserve_bytes >= 0:
            raise ValueError(
                f"A memory has more than 0 bytes and a reserve 0 or more, saw {memory_bytes} and "
                f"{reserve_bytes}."
            )
        left = memory_bytes - reserve_bytes - self.fixed
        return max(0, int(left // self.activations_per_sentence))


def need(size: Size, source_length: int, target_length: int, name: str = "fp32") -> Need:
    """Return what training lab 1's translator needs. name: fp32, mixed or fp16."""
    of = holding(name)
    n = n_parameters(size)
    values, fp32_values = kept_values(size, source_length, target_length)
    return Need(
        n * of.weight,
        n * of.gradient,
        n * of.master,
        n * ADAM_MOMENTS * of.moment,
        values * of.activation + 4 * fp32_values,
    )


def table(size: Size, source_length: int, target_length: int, memory_bytes: float) -> str:
    """Return the need of every recipe as text, in MB, and the batch that fits."""
    lines = [
        f"{'recipe':7} {'weights':>8} {'gradients':>9} {'master':>7} {'moments':>8} "
        f"{'a sentence':>10} {'batch that fits':>15}"
    ]
    for name in HOLDINGS:
        one = need(size, source_length, target_length, name)
        lines.append(
            f"{name:7} {one.weights / 1e6:8.2f} {one.gradients / 1e6:9.2f} {one.master / 1e6:7.2f} "
            f"{one.moments / 1e6:8.2f} {one.activations_per_sentence / 1e6:10.3f} "
            f"{one.batch_that_fits(memory_bytes):15,}"
        )
    return "\n".join(lines)
