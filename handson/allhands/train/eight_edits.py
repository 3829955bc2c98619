"""Which program do the eight edits of lab 2 make of lab 1's? Both as loops, to read and to run.

    mpiexec -n 2 python -m allhands.train.eight_edits FILE.py --epochs 2 --out FOLDER [--resume]

trains a small translator with the functions of FILE.py, such as a notebook has written (`write`),
and with the package's for those that FILE.py has not. The numbers in `many_ranks` are those of the
edits. Two ranks with batch B repeat what one device does with batch 2B and twice the rate.
"""

import argparse
import runpy
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

import chainer
import numpy as np

from allhands import config as configs
from allhands import launch
from allhands.config import TrainConfig
from allhands.data.batch import batch_of
from allhands.train import device as devices
from allhands.train import parallel
from allhands.train.build import open_corpus
from allhands.train.excepthook import end_job_on_error
from allhands.train.translator import Translator

SIZES = ("n_embed=16", "n_hidden=32", "batch_size=50", "evaluate_pairs=61")


def small() -> TrainConfig:
    """Lab 1's translator, small: two epochs take some seconds. `batch_size` is of one rank."""
    return configs.override(configs.lab1_cpu(), SIZES)


def one_device(config: TrainConfig, epochs: int, out: Path) -> None:
    """Lab 1's program: train, say the loss per token of each epoch, leave the model in `out`."""
    corpus = open_corpus(config)
    translator = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
    model = translator.model
    optimizer = chainer.optimizers.Adam(config.learning_rate)
    optimizer.setup(model)
    for epoch in range(epochs):
        order = np.random.default_rng(epoch).permutation(len(corpus.train))
        for numbers in np.array_split(order, len(order) // config.batch_size):
            loss = model.loss(batch_of(corpus.train, numbers))
            model.cleargrads()
            loss.backward()
            optimizer.update()
        counts = translator.count(corpus.valid)
        print(f"epoch {epoch}: loss per token {counts['loss'] / counts['n_tokens']:.3f}")
    out.mkdir(parents=True, exist_ok=True)
    chainer.serializers.save_npz(out / "model.npz", model)


def many_ranks(edits: "Edits", config: TrainConfig, epochs: int, out: Path, resume: bool) -> None:
    """The same program on all ranks; with `resume` it goes on from the files in `out`."""
    comm = edits.communicator()  # 1
    config = replace(config, device=edits.device_of(comm))  # 2
    corpus = open_corpus(config)
    translator = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
    model = translator.model
    rate = config.learning_rate * edits.rate_factor("linear", comm.size)  # 7
    optimizer = edits.multi_node(chainer.optimizers.Adam(rate), comm)  # 4
    optimizer.setup(model)
    optimizer.update()  # the first one learns nothing: rank 0's parameters go to all
    if resume:
        edits.load(out, {"model": model, "optimizer": optimizer}, comm)  # 8
    for epoch in range(optimizer.epoch, epochs):
        mine = edits.shard(len(corpus.train), comm, seed=epoch)  # 3
        for numbers in np.array_split(mine, len(corpus.train) // (config.batch_size * comm.size)):
            batch = devices.send(batch_of(corpus.train, numbers), translator.device)
            loss = parallel.weight(len(numbers), comm) * model.loss(batch)
            model.cleargrads()
            loss.backward()
            optimizer.update()
        counts = edits.total(translator.count(corpus.valid[comm.rank :: comm.size]), comm)  # 5
        if edits.speaks(comm):  # 6
            print(f"epoch {epoch}: loss per token {counts['loss'] / counts['n_tokens']:.3f}")
        optimizer.new_epoch()
    edits.save(out, {"model": model, "optimizer": optimizer}, comm)  # 8


def save(folder: Path, things: Mapping[str, object], comm) -> None:
    """Edit 8. Rank 0 writes each of `things` to folder/name.npz; all ranks wait until it has.

    things: what Chainer can serialise, by name: {"model": model, "optimizer": optimizer}. An
    optimizer holds the numbers of updates and of epochs, too.
    """
    if comm.rank == 0:
        for name, thing in things.items():
            chainer.serializers.save_npz(folder / f"{name}.npz", thing)
    comm.mpi_comm.Barrier()


def load(folder: Path, things: Mapping[str, object], comm) -> None:
    """Edit 8. Every rank puts into `things` what `save` has written."""
    for name, thing in things.items():
        chainer.serializers.load_npz(folder / f"{name}.npz", thing)


@dataclass(frozen=True)
class Edits:
    """The eight edits; the package's unless others come. 1, 2, ... are the numbers in the lab."""

    communicator: Callable = parallel.communicator
    device_of: Callable = parallel.device_of
    shard: Callable = parallel.shard
    multi_node: Callable = parallel.multi_node
    total: Callable = parallel.total
    speaks: Callable = parallel.speaks
    rate_factor: Callable = parallel.rate_factor
    save: Callable = save
    load: Callable = load

    @classmethod
    def from_file(cls, path: Path) -> "Edits":
        """Take the functions that the file defines; the package's for the rest."""
        defined = runpy.run_path(str(path))
        names = [field.name for field in fields(cls)]
        return cls(**{name: defined[name] for name in names if name in defined})


def write(path: Path, *functions: Callable) -> Path:
    """Write the participant's among `functions` to a file; the package's need not be written.

    Returns `path`. Errors: those of `parallel.write_edits`.
    """
    theirs = [each for each in functions if not str(each.__module__).startswith("allhands.")]
    return parallel.write_edits(path, *theirs)


def ready(file: Path, out: Path, resume: bool) -> None:
    """Make `out`. ValueError, in a sentence, if the program could not begin with them."""
    if not file.is_file():
        raise ValueError(
            f"There is no file {file}. Give a .py file with some of the functions of the edits: "
            f"{', '.join(field.name for field in fields(Edits))}."
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise ValueError(
            f"The folder {out} cannot be written ({error.strerror}). Give another --out."
        ) from error
    missing = [name for name in ("model.npz", "optimizer.npz") if not (out / name).is_file()]
    if resume and missing:
        raise ValueError(
            f"--resume goes on from what is in {out}, and {' and '.join(missing)} cannot be found "
            f"there. Leave --resume away to begin."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="a file with some of the edits' functions")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="a folder for the model")
    parser.add_argument("--resume", action="store_true", help="go on from what is in --out")
    asked = parser.parse_args()
    try:
        ready(asked.file, asked.out, asked.resume)
    except ValueError as error:  # before MPI starts: each rank ends by itself
        if launch.place()[0] == 0:
            print(f"eight_edits: {error}", file=sys.stderr)
        sys.exit(2)
    from mpi4py import MPI

    end_job_on_error(MPI.COMM_WORLD)
    launch.expect_world(MPI.COMM_WORLD)
    many_ranks(Edits.from_file(asked.file), small(), asked.epochs, asked.out, asked.resume)


if __name__ == "__main__":
    main()
