"""The sample of hack_owncode, migrated: which edits make a program for one device data-parallel?

    torchrun --nproc-per-node 2 -m allhands.train.own_program --out FOLDER [--edits FILE.py]

The program for one device is `handson/hack_owncode/one_device.py`. Here are its edits as functions;
FILE.py may define others of the same names. Batch sizes are of all ranks together, so N ranks make
the steps of one. Rank 0 leaves `record.json` in FOLDER: losses and times of all steps, in seconds.
"""

import argparse
import contextlib
import json
import os
import runpy
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from allhands.train.written import source_of

N_FEATURES, N_HIDDEN, N_CLASSES = 64, 512, 10
RATE, WARM_UP = 0.1, 3
IMPORTS = (
    "import os\nimport time\nfrom pathlib import Path\n\n"
    "import torch\nimport torch.distributed as dist\n"
    "from torch.utils.data import DataLoader, DistributedSampler\n"
)


def samples(n: int, seed: int) -> TensorDataset:
    """`n` samples of a made-up classification: features (n, 64), labels 0 .. 9."""
    teacher = torch.randn(N_FEATURES, N_CLASSES, generator=torch.Generator().manual_seed(99))
    x = torch.randn(n, N_FEATURES, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x @ teacher).argmax(1))


def network() -> nn.Module:
    """The network, with the same parameters at every call."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(N_FEATURES, N_HIDDEN),
        nn.ReLU(),
        nn.Linear(N_HIDDEN, N_HIDDEN),
        nn.ReLU(),
        nn.Linear(N_HIDDEN, N_CLASSES),
    )


@contextlib.contextmanager
def group() -> Iterator[torch.device]:
    """Edits 1 and 2. The process group, and the device of this rank, chosen before any tensor."""
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus) if gpus else "cpu"
    if gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo")
    try:
        yield torch.device(device)
    finally:
        dist.destroy_process_group()


def share(dataset: Dataset, batch_size: int, rank: int, size: int) -> DataLoader:
    """Edit 3. A loader of this rank's part of the data, in another order in each epoch.

    batch_size: of all `size` ranks together, a multiple of `size`. The loader's sampler is a
    DistributedSampler; the program calls its `set_epoch`.
    """
    sampler = DistributedSampler(dataset, num_replicas=size, rank=rank)
    return DataLoader(dataset, batch_size=batch_size // size, sampler=sampler)


def total(n_right: int, n: int, dist) -> float:
    """Edit 5. The share of right answers on all ranks together: a ratio of sums, on every rank.

    n_right, n: what this rank has counted. dist: torch.distributed.
    """
    counts = torch.tensor([n_right, n], dtype=torch.float64)
    dist.all_reduce(counts)
    return float(counts[0] / counts[1])


def save(state: dict, path: Path, dist) -> None:
    """Edit 6. Rank 0 writes `state` to `path`; no rank comes back before it is written."""
    if dist.get_rank() == 0:
        torch.save(state, path)
    dist.barrier()


def steps_per_s(
    step: Callable[[], object],
    wait: Callable[[], object],
    clock: Callable[[], float],
    n_steps: int,
    warm_up: int,
) -> float:
    """How many steps a second a device makes, once it runs well.

    step: asks for one step, and may return at once. wait: returns when all is done. clock: seconds.
    """
    for _ in range(warm_up):
        step()
    wait()
    start_s = clock()
    for _ in range(n_steps):
        step()
    wait()
    return n_steps / (clock() - start_s)


@dataclass(frozen=True)
class Edits:
    """The edits that are functions of their own; the package's unless others come."""

    share: Callable = share
    total: Callable = total
    save: Callable = save

    @classmethod
    def from_file(cls, path: Path | None) -> "Edits":
        """Take what the file defines; the package's for the rest."""
        defined = runpy.run_path(str(path)) if path else {}
        names = [each.name for each in fields(cls)]
        return cls(**{name: defined[name] for name in names if name in defined})


@dataclass(frozen=True)
class Record:
    """What a run leaves. batch_size: of all ranks. losses: of each step, over all its samples."""

    ranks: int
    batch_size: int
    losses: list[float]
    times_s: list[float]
    share_right: float

    @property
    def samples_per_s(self) -> float:
        """Of all ranks together: from the median time of a step, the first three left out.

        ValueError, a sentence, if no step is left.
        """
        if len(self.times_s) <= WARM_UP:
            raise ValueError(
                f"A run of {len(self.times_s)} steps says nothing of its speed: the first "
                f"{WARM_UP} are left out. Train longer."
            )
        return self.batch_size / statistics.median(self.times_s[WARM_UP:])


def read(folder: Path) -> Record:
    """The record in a run's folder."""
    return Record(**json.loads((Path(folder) / "record.json").read_text(encoding="utf-8")))


def write_edits(path: Path, *functions: Callable) -> Path:
    """Write the participant's among `functions` to a file; the package's need not be written."""
    theirs = [each for each in functions if not str(each.__module__).startswith("allhands.")]
    Path(path).write_text("\n\n".join([IMPORTS, *map(source_of, theirs)]), encoding="utf-8")
    return Path(path)


def train(edits: Edits, device: torch.device, options: argparse.Namespace) -> Record:
    """Train on all ranks of the process group; every rank returns the same record but for times."""
    rank, size = dist.get_rank(), dist.get_world_size()
    loader = edits.share(samples(options.samples, seed=1), options.batch, rank, size)
    model = DistributedDataParallel(network().to(device))  # edit 4
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    losses, times_s = [], []
    for epoch in range(options.epochs):
        loader.sampler.set_epoch(epoch)
        start_s = time.perf_counter()
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            losses.append(mean.item() / size)  # .item() waits for the device
            times_s.append(time.perf_counter() - start_s)
            start_s = time.perf_counter()
    held_out = samples(512, seed=2)
    mine = slice(rank, None, size)
    x, y = (tensor[mine].to(device) for tensor in held_out.tensors)
    with torch.no_grad():
        n_right = int((model.module(x).argmax(1) == y).sum())
    share_right = edits.total(n_right, len(y), dist)
    edits.save(model.module.state_dict(), options.out / "model.pt", dist)
    return Record(size, options.batch, losses, times_s, share_right)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--edits", type=Path, help="a file with share, total or save")
    parser.add_argument("--batch", type=int, default=1024, help="of all ranks together")
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with group() as device:
        record = train(Edits.from_file(options.edits), device, options)
        if dist.get_rank() == 0:
            text = json.dumps(asdict(record))
            (options.out / "record.json").write_text(text, encoding="utf-8")
            print(f"{record.ranks} ranks: loss {record.losses[0]:.4f} -> {record.losses[-1]:.4f}")


if __name__ == "__main__":
    main()
