"""Which few functions make lab 1's program data-parallel? One for each numbered edit of lab 2.

Every rank runs the same program on its own pairs, with its own copy of the model. After each
backward pass the gradients are averaged over the ranks, so that all copies make the same update.
The trainer itself is built from these functions (`build.py`, `run.py`).

`comm` is a communicator of ChainerMN, or has its `rank`, `size`, `intra_rank` and the methods that
a function names. A function that communicates must be called on all ranks, in the same order.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType

import chainer
import chainermn
import numpy as np

from allhands.config import TrainConfig
from allhands.train import device as devices
from allhands.train.written import source_of


def communicator(name: str = "auto", **options):
    """Edit 1. Return the communicator of all ranks that were started together.

    name: a communicator of ChainerMN, or `auto`: `pure_nccl` where there is a GPU, else `naive`.
    options: those of `chainermn.create_communicator`, such as allreduce_grad_dtype="float16".

    Raises ValueError if this machine cannot have it, or not with these options.
    """
    if name == "auto":
        name = "pure_nccl" if devices.gpu_is_usable() else "naive"
    try:
        return chainermn.create_communicator(name, **options)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"ChainerMN has no communicator {name!r} here ({str(error).rstrip('.')}). pure_nccl "
            f"needs GPUs, NCCL and CuPy; on CPUs give naive, without options."
        ) from error


def communicator_of(config: TrainConfig, **options):
    """Return the communicator that `config` asks for; options: more ones of ChainerMN's.

    Raises ValueError if this machine cannot have it, or if it does not fit the device.
    """
    name = config.communicator
    if config.device == "@numpy" and name == "pure_nccl":
        raise ValueError(
            "pure_nccl speaks between GPUs, and this run computes on @numpy. Give "
            "--set communicator=naive, or --device auto on a machine with GPUs."
        )
    if config.device == "@numpy" and name == "auto":
        name = "naive"
    if config.allreduce_dtype != "float32":
        options["allreduce_grad_dtype"] = config.allreduce_dtype
    return communicator(name, **options)


def device_of(comm) -> str:
    """Edit 2. Return the device of this rank: "@cupy:<intra_rank>", or "@numpy" without a GPU.

    The ranks of one node count their GPUs by `intra_rank`. Where the scheduler shows each rank one
    GPU alone, that one is GPU 0. Choose the device before any array is made.

    Raises ValueError on a node of several GPUs that are fewer than its ranks. With one GPU nothing
    tells whether each rank has its own, so that is not checked.
    """
    if not devices.gpu_is_usable():
        return "@numpy"
    n_gpus = chainer.backends.cuda.cupy.cuda.runtime.getDeviceCount()
    if n_gpus > 1 and comm.intra_rank >= n_gpus:
        raise ValueError(
            f"Rank {comm.rank} is number {comm.intra_rank} of its node, which has {n_gpus} GPUs. "
            f"Start at most {n_gpus} ranks on a node."
        )
    return f"@cupy:{comm.intra_rank if n_gpus > 1 else 0}"


def shard(n_samples: int, comm, seed: int) -> np.ndarray:
    """Edit 3. Return the numbers of this rank's samples, shuffled, (about n_samples / size,) int.

    All ranks shuffle 0 .. n_samples - 1 with the same seed, and each takes every size-th of them
    from its rank on. So each sample is on exactly one rank, the shares differ by one sample at
    most, and nothing is communicated. Nothing is repeated to make the shares equal.
    """
    order = np.random.default_rng(seed).permutation(n_samples)
    return order[comm.rank :: comm.size]


def multi_node(optimizer, comm, *, double_buffering: bool = False):
    """Edit 4. Return `optimizer` such that its update averages the gradients of all ranks first.

    Call `setup(model)` on what comes back. Its first `update()` only hands rank 0's parameters to
    all ranks: `t` stays 0, and nothing is learned in it.
    double_buffering: needs pure_nccl; updates with gradients that are one step old.
    """
    return chainermn.create_multi_node_optimizer(optimizer, comm, double_buffering=double_buffering)


def total(counts: Mapping[str, float], comm) -> dict[str, float]:
    """Edit 5. Return the sum of `counts` over the ranks, name by name: the same on all ranks.

    counts: what each rank counted on its part of the held-out pairs: numerators and denominators
    (sentences, tokens, summed loss, hits, n-grams), the same names on all ranks. Ratios such as the
    loss per token and BLEU are made of the sums: a mean of the ranks' ratios is another number.
    Uses `comm.allreduce_obj`.
    """
    names = sorted(counts)
    sums = comm.allreduce_obj(np.array([counts[name] for name in names], dtype=float))
    return dict(zip(names, sums.tolist(), strict=True))


def speaks(comm) -> bool:
    """Edit 6. True on the one rank that prints, and writes files: rank 0.

    No communication may depend on it, or the other ranks wait for ever.
    """
    return comm.rank == 0


def rate_factor(scaling: str, ranks: int) -> float:
    """Edit 7. Return what the learning rate of one rank is multiplied by for `ranks` ranks.

    A step's batch is `ranks` times as large, and an epoch has that many fewer steps. "linear":
    `ranks` (Goyal et al. 2017); "sqrt": its square root (Krizhevsky 2014); "none": 1. ValueError
    for another name.
    """
    factors = {"none": 1.0, "sqrt": math.sqrt(ranks), "linear": float(ranks)}
    if scaling not in factors:
        raise ValueError(f"rate_scaling must be one of {', '.join(factors)}: it is {scaling!r}.")
    return factors[scaling]


def weight(n_mine: int, comm) -> float:
    """Return what this rank's mean loss is multiplied by, so that the mean gradient is right.

    n_mine: the samples in this rank's batch; it may be 0. The mean over the ranks of weight * loss
    is then the mean loss over the samples of all ranks. It is 1 if all have as many. Uses
    `comm.allreduce_obj`.
    """
    n_all = comm.allreduce_obj(n_mine)
    return n_mine * comm.size / n_all


def of_all(thing: object, comm) -> list:
    """Return what each rank gave, by rank: the same list on all. Uses `comm.allreduce_obj`."""
    things = comm.allreduce_obj([(comm.rank, thing)])  # the sum of lists is one list
    return [thing for _, thing in sorted(things, key=lambda pair: pair[0])]


def of_first(thing: object, comm) -> object:
    """Return what rank 0 gave, on all ranks. Uses `comm.bcast_obj`, which takes no bare None."""
    return comm.bcast_obj((thing,) if comm.rank == 0 else None)[0]


def begin(optimizer) -> None:
    """Spend the first update of a multi-node optimizer: the broadcast. No step of training is lost.

    With `double_buffering` one step more is lost: its gradients are on their way.
    """
    if hasattr(optimizer, "actual_optimizer"):
        optimizer.update()


def n_steps(n_samples: int, batch_size: int, ranks: int) -> int:
    """Return how many steps an epoch has on every rank: what the largest share needs."""
    return math.ceil(math.ceil(n_samples / ranks) / batch_size)


@dataclass(frozen=True)
class Edits:
    """The functions that a data-parallel program is made of; the right ones unless others come."""

    device_of: Callable = device_of
    shard: Callable = shard
    multi_node: Callable = multi_node
    total: Callable = total
    speaks: Callable = speaks
    rate_factor: Callable = rate_factor

    @classmethod
    def from_module(cls, module: ModuleType) -> "Edits":
        """Take those that `module` has; the right ones for the rest."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: getattr(module, name) for name in names if hasattr(module, name)})


RIGHT = Edits()
IMPORTS = "import math\n\nimport chainer\nimport chainermn\nimport numpy as np\n"


def write_edits(path: Path, *functions: Callable) -> Path:
    """Write the sources of `functions`, such as those of a notebook's cells, as a file to import.

    The file imports math, chainer, chainermn and numpy (as np); what else a function needs it must
    import itself. Returns `path`. ValueError for what is not a function with a source.
    """
    sources = [source_of(function) for function in functions]
    path = Path(path)
    path.write_text("\n\n".join([IMPORTS, *sources]), encoding="utf-8")
    return path
