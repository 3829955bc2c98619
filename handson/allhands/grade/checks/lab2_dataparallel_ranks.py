"""What the checks of lab 2 let real ranks do: programs for `on_ranks`, with the answer as argument.

Each rank returns what it saw. Nothing here judges.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from unittest import mock

import chainer
import chainermn
import numpy as np

WORLDS = (2, 3, 4)
N_NUMBERS = (5, 260_000)  # a few bytes, and about a megabyte: MPI sends the two in different ways
SENTENCES = (10, 2)


def sums_right(comm, all_reduce: Callable) -> dict[str, bool]:
    """Compare with MPI's own all-reduce on the first 2, 3 and 4 of 4 ranks.

    The numbers are whole and small, so that FP32 adds them without rounding, in any order.
    """
    found = {}
    for n_ranks in WORLDS:
        group = comm.Split(0 if comm.rank < n_ranks else 1, comm.rank)
        if comm.rank >= n_ranks:
            continue
        for n in N_NUMBERS:
            random = np.random.default_rng([n, comm.rank])
            array = random.integers(0, 1000, n).astype(np.float32)
            right = np.empty_like(array)
            got = all_reduce(group, array.copy())
            group.Allreduce(array, right)
            found[f"{n} numbers on {n_ranks} ranks"] = bool(np.array_equal(got, right))
    return found


def metrics_of(comm, metrics: Callable) -> tuple[dict, Mapping[str, float]]:
    """The counts of this rank, drawn anew each time, and the metrics of both ranks' counts.

    Rank 0 has many sentences, nearly all right; rank 1 few, nearly all wrong.
    """
    random = np.random.default_rng()
    many = comm.rank == 0
    n_sentences = int(random.integers(10, 20) if many else random.integers(2, 5))
    n_right = n_sentences - int(random.integers(0, 2)) if many else int(random.integers(0, 2))
    n_tokens = 5 * n_sentences + int(random.integers(0, 5))
    loss = n_tokens * float(random.uniform(0.4, 0.5) if many else random.uniform(0.9, 1.2))
    counts = {"n_right": n_right, "n_sentences": n_sentences, "loss": loss, "n_tokens": n_tokens}
    return counts, metrics(dict(counts), comm)


def reported(comm, report: Callable) -> object:
    """What `report` returns for two uneven shards."""
    return report(SENTENCES[comm.rank], comm)


STEPS, STOP = 6, 3
SLOW_DISK_S = 0.3


def stopped(comm, save: Callable, load: Callable) -> dict[str, object]:
    """A small run of 6 updates, and one that saves after 3, begins anew, loads and goes on.

    Rank 0 writes to a slow disk. Returns which files this rank wrote, how many updates the new
    optimizer knew of after `load`, and the parameters after `load`, at the save, and at both ends.
    """
    comm = chainermn.create_communicator("naive", comm)
    folder = Path(comm.mpi_comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None))
    things = begun(comm, seed=0)
    train(comm, things, range(STEPS))
    straight = parameters(things)
    things = begun(comm, seed=0)
    train(comm, things, range(STOP))
    at_save, wrote = parameters(things), []
    anew = begun(comm, seed=1)  # before the save, because it lets ranks wait for each other
    with mock.patch.object(chainer.serializers, "save_npz", slowly(wrote)):
        save(folder, things, comm)
    things = anew
    load(folder, things, comm)
    updates, at_load = things["optimizer"].t, parameters(things)
    train(comm, things, range(STOP, STEPS))
    comm.mpi_comm.Barrier()
    if comm.rank == 0:
        shutil.rmtree(folder)
    return {
        "wrote": wrote,
        "updates": updates,
        "loaded": np.array_equal(at_load, at_save),
        "same": np.allclose(parameters(things), straight, rtol=1e-5, atol=1e-7),
    }


def slowly(wrote: list[str]) -> Callable:
    """Chainer's `save_npz` on a disk that takes its time; it notes what is written."""
    save_npz = chainer.serializers.save_npz

    def slow(file, *args, **kwargs):
        wrote.append(str(file))
        time.sleep(SLOW_DISK_S)
        save_npz(file, *args, **kwargs)

    return slow


def begun(comm, seed: int) -> dict[str, object]:
    """A linear model, and Adam over the ranks, after the broadcast of the parameters."""
    weights = np.random.default_rng(seed).normal(size=(3, 4)).astype(np.float32)
    model = chainer.links.Linear(4, 3, initialW=weights)
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(0.1), comm)
    optimizer.setup(model)
    optimizer.update()
    return {"model": model, "optimizer": optimizer}


def train(comm, things: Mapping[str, object], numbers: Iterable[int]) -> None:
    for number in numbers:
        x_nd = np.random.default_rng([number, comm.rank]).normal(size=(5, 4)).astype(np.float32)
        things["model"].cleargrads()
        chainer.functions.sum(things["model"](x_nd) ** 2).backward()
        things["optimizer"].update()


def parameters(things: Mapping[str, object]) -> np.ndarray:
    return np.concatenate([one.array.ravel() for _, one in sorted(things["model"].namedparams())])
