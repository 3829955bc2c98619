"""Snapshots of a run: written whole or not at all, found again, and the newest two kept.

A snapshot is Chainer's `.npz` of the whole trainer: parameters, optimizer, position in the epoch,
triggers. It is written beside its place and then renamed, so a run that is killed while it writes
leaves the one before.
"""

import io
import os
import pickle
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import chainer
import numpy as np

NAME = re.compile(r"snapshot_iter_(\d+)$")
KEPT = 2
MODEL = "updater/model:main/"  # where a trainer's snapshot holds its parameters
UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, pickle.UnpicklingError),
)


def save(folder: Path, trainer: chainer.training.Trainer) -> Path:
    """Write `snapshot_iter_N` for the trainer's update N; remove all but the newest `KEPT`."""
    path = folder / f"snapshot_iter_{trainer.updater.iteration}"
    write_npz(path, trainer)
    for old in find(folder)[:-KEPT]:
        old.unlink()
    return path


def write_npz(path: Path, target: object) -> None:
    """Write what Chainer can serialise to `path`, at once or not at all.

    It is made in memory first, so that a disk that is full cannot leave half an archive.
    """
    archive = io.BytesIO()
    chainer.serializers.save_npz(archive, target)
    unfinished = path.with_name(f"unfinished_{path.name}")
    try:
        with writing(path):
            with open(unfinished, "wb") as file:
                file.write(archive.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path`, at once or not at all."""
    unfinished = path.with_name(f"unfinished_{path.name}")
    try:
        with writing(path):
            unfinished.write_text(text, encoding="utf-8")
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError within the block into one that names `path` in a sentence."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{path} cannot be written: {error.strerror or error}. Make room on the disk or check "
            f"the folder; --resume then goes on from the newest snapshot."
        ) from error


def find(folder: Path) -> list[Path]:
    """Return the snapshots in `folder`, the newest last."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_file()]
    return sorted(found, key=number)


def number(path: Path) -> int:
    """Return the update at which a snapshot was taken."""
    return int(NAME.fullmatch(path.name)[1])


def load(path: Path, trainer: chainer.training.Trainer, archive: bytes | None = None) -> None:
    """Put the snapshot at `path` into `trainer`, or its content `archive`, if another rank read it.

    Raises ValueError if it cannot be read into this trainer.
    """
    model = trainer.updater.get_optimizer("main").target
    _load(path, trainer, model, MODEL, archive=archive)


def load_model(folder: Path, model: chainer.Link) -> None:
    """Put into `model` what a run left: `model.npz`, or else the newest snapshot's parameters.

    Raises ValueError if there is neither, or if it cannot be read into this model.
    """
    if (folder / "model.npz").exists():
        _load(folder / "model.npz", model, model)
    elif snapshots := find(folder):
        _load(snapshots[-1], model, model, MODEL, MODEL)
    else:
        raise ValueError(f"{folder} holds no model yet: the run has saved no snapshot.")


def _load(
    path: Path,
    target: object,
    model: chainer.Link,
    inside: str = "",
    at: str = "",
    archive: bytes | None = None,
) -> None:
    """Read `target` from `path` at `at`, if the parameters there, `inside`, fit `model`."""
    try:
        file = path if archive is None else io.BytesIO(archive)
        with np.load(file) as saved:
            named = [(name, p.shape) for name, p in model.namedparams()]
            others = [name for name, shape in named if saved[inside + name[1:]].shape != shape]
        if not others:
            file = path if archive is None else io.BytesIO(archive)
            chainer.serializers.load_npz(file, target, path=at)
    except UNREADABLE as error:
        raise ValueError(
            f"Cannot read {path}, which is damaged or cut short: {error}. Remove that file to go "
            f"on from the snapshot before it, or start anew in another folder."
        ) from error
    if others:
        raise ValueError(
            f"{path} holds a model of another size (see {', '.join(others)}), so source.vocab or "
            f"target.vocab is not the one that the run wrote. Put that vocabulary back whole, or "
            f"start anew in another folder."
        )
