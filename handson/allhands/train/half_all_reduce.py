"""What becomes of gradients when the ranks add them in 16 bits?

    mpiexec -n 2 python -m allhands.train.half_all_reduce --out outcomes.json

Four ways to the mean of the ranks' gradients, all over the ring of all_reduce.py: in FP32; in FP16,
first the sum and then the division; in FP16, first the division; in BF16. FP16 ends at 65504 and
loses what is below 3e-8: the sum can pass the one, a division the other. BF16 has the range of FP32
and 8 significant bits.

Half of the bytes are sent, in as many messages: the time of the bytes halves, the start-up stays.
Conventions: gradients and means are FP32 arrays. On the way a number is its 16 bits, an unsigned
integer, because MPI has no type for FP16; each sum of two numbers is rounded to 16 bits.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from allhands import launch
from allhands.mgwfbp.cost import Cost
from allhands.train.all_reduce import ring
from allhands.train.traffic import Counted, traffic


@dataclass(frozen=True)
class Half:
    """A 16-bit format: `pack` rounds FP32 to its bits (uint16), `unpack` makes FP32 of them."""

    pack: Callable[[np.ndarray], np.ndarray]
    unpack: Callable[[np.ndarray], np.ndarray]

    def round(self, values: np.ndarray) -> np.ndarray:
        """Return the numbers of this format that are nearest to `values`, as FP32."""
        return self.unpack(self.pack(values))


def _pack_fp16(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # to infinity: that is what we want to see
        return values.astype(np.float16).view(np.uint16)


def _unpack_fp16(bits: np.ndarray) -> np.ndarray:
    return bits.view(np.float16).astype(np.float32)


def _pack_bf16(values: np.ndarray) -> np.ndarray:
    """The upper 16 bits of FP32, rounded to nearest, halves to even."""
    bits = values.astype(np.float32).view(np.uint32)
    odd = (bits >> 16) & 1
    rounded = ((bits + 0x7FFF + odd) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)  # rounding may carry a nan to inf


def _unpack_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


FP16 = Half(_pack_fp16, _unpack_fp16)
BF16 = Half(_pack_bf16, _unpack_bf16)


class HalfWire:
    """A communicator whose messages are 16 bits a number: FP32 arrays are rounded when sent.

    So each partial sum of two numbers is rounded once, as on a chip that adds in this format: FP32
    has room for the exact sum, or rounds it so finely that rounding again changes nothing.
    """

    def __init__(self, comm, half: Half) -> None:
        self.comm, self.half = comm, half
        self.rank, self.size = comm.rank, comm.size

    def Sendrecv(self, sendbuf: np.ndarray, dest: int, *, recvbuf: np.ndarray, source: int) -> None:
        bits = np.empty(recvbuf.shape, np.uint16)
        self.comm.Sendrecv(self.half.pack(sendbuf), dest=dest, recvbuf=bits, source=source)
        recvbuf[:] = self.half.unpack(bits)


def sum_over_ranks(comm, values: np.ndarray, half: Half) -> np.ndarray:
    """Return the sum of the ranks' FP32 arrays as FP32: rounded to `half`, sent and added in it."""
    with np.errstate(invalid="ignore", over="ignore"):  # inf, and inf - inf: we want to see them
        return half.round(ring(HalfWire(comm, half), half.round(values)))


def fp32(comm, gradient: np.ndarray) -> np.ndarray:
    """Return the mean of the ranks' gradients: sum in FP32, then divide. The others aim at it."""
    return ring(comm, gradient) / comm.size


def sum_then_divide(comm, gradient: np.ndarray) -> np.ndarray:
    """Return the mean: round to FP16, sum over the ranks in FP16, then divide (in FP32).

    Where the sum passes 65504 the mean is infinite, although the mean itself has room in FP16.
    """
    return sum_over_ranks(comm, gradient, FP16) / comm.size


def divide_then_sum(comm, gradient: np.ndarray) -> np.ndarray:
    """Return the mean: divide by the number of ranks, round to FP16, sum over the ranks in FP16.

    No partial sum is larger than the largest gradient. A share of 3e-8 (2^-25) or less rounds to
    0, and a sum of zeros is 0.
    """
    return sum_over_ranks(comm, gradient / comm.size, FP16)


def bf16(comm, gradient: np.ndarray) -> np.ndarray:
    """Return the mean: round to BF16, sum over the ranks in BF16, then divide (in FP32).

    The range is that of FP32. Each rounding costs up to 1/256 of the number, and there is one for
    each rank: 256 + 1 is 256 in BF16, so a sum over hundreds of ranks stops growing.
    """
    return sum_over_ranks(comm, gradient, BF16) / comm.size


WAYS: dict[str, Callable[..., np.ndarray]] = {
    "FP32": fp32,
    "FP16, sum then divide": sum_then_divide,
    "FP16, divide then sum": divide_then_sum,
    "BF16": bf16,
}
VALUES = {"large": 40_000.0, "ordinary": 0.3, "small": 2.0**-24}  # the same on every rank
N_EACH = 4096


@dataclass(frozen=True)
class Outcome:
    """What one way made of VALUES on `n_ranks` ranks, and what rank 0 sent for it."""

    way: str
    n_ranks: int
    means: dict[str, float]
    n_messages: int
    sent_bytes: int

    @property
    def relative_errors(self) -> dict[str, float]:
        """|mean - value| / value, for each of VALUES."""
        return {name: abs(self.means[name] - value) / value for name, value in VALUES.items()}

    @property
    def overflowed(self) -> list[str]:
        """The names of VALUES whose mean is infinite."""
        return [name for name, mean in self.means.items() if math.isinf(mean)]

    @property
    def lost(self) -> list[str]:
        """The names of VALUES whose mean is 0."""
        return [name for name, mean in self.means.items() if mean == 0]

    def __str__(self) -> str:
        means = " ".join(f"{self.means[name]:>12.6g}" for name in VALUES)
        return f"{self.way:24}{means}{self.n_messages:>10}{self.sent_bytes:>10,}"


def table(outcomes: list[Outcome]) -> str:
    """The outcomes below each other, with what was asked in the first line."""
    names = " ".join(f"{f'{name} {value:.6g}':>12}" for name, value in VALUES.items())
    head = f"{'mean of':24}{names}{'messages':>10}{'bytes':>10}"
    return "\n".join([head, *map(str, outcomes)])


def outcomes_of(comm) -> list[Outcome]:
    """All ways on all ranks of `comm` (or of a rehearsal), on N_EACH of each of VALUES."""
    gradient = np.repeat(np.array(list(VALUES.values()), np.float32), N_EACH)
    found = []
    for name, way in WAYS.items():
        counted = Counted(comm)
        means = way(counted, gradient).reshape(len(VALUES), N_EACH)[:, 0]
        sent = traffic(counted.calls)
        means_of = dict(zip(VALUES, means.tolist(), strict=True))
        found.append(Outcome(name, counted.size, means_of, sent.calls, sent.sent_bytes))
    return found


def gain(cost: Cost, n_bytes: float) -> float:
    """How many times as fast is an all-reduce of `n_bytes` of FP32, if it sends 16 bits a number?

    cost: that of an all-reduce. Half of the bytes, one start-up as before: almost 1 for short
    messages, almost 2 for long ones. The time to round is left out.
    """
    return float(cost(n_bytes) / cost.compressed(0.5)(n_bytes))


def run(ranks: int = 2, time_limit_s: float = 120) -> list[Outcome]:
    """Start `ranks` real ranks, try all ways, and return what rank 0 saw."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcomes.json"
        words = ("--out", path)
        launch.mpirun(
            "allhands.train.half_all_reduce", *words, ranks=ranks, time_limit_s=time_limit_s
        )
        return [Outcome(**one) for one in json.loads(path.read_text(encoding="utf-8"))]


def main() -> None:
    from mpi4py import MPI

    from allhands.train.excepthook import end_job_on_error

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    end_job_on_error(comm)
    launch.expect_world(comm)
    outcomes = outcomes_of(comm)
    if comm.rank == 0:
        text = json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n"
        options.out.write_text(text, encoding="utf-8")
        print(table(outcomes))


if __name__ == "__main__":
    main()
