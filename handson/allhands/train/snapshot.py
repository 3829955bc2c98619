"""Snapshots of a run: written whole or not at all, found again, and the newest two kept.

A snapshot is Chainer's `.npz` of the whole trainer: parameters, optimizer, position in the epoch,
triggers. It is written beside its place and then renamed, so a run that is killed while it writes
leaves the one before.
"""

import os
import pickle
import re
import zipfile
import zlib
from pathlib import Path

import chainer

NAME = re.compile(r"snapshot_iter_(\d+)$")
KEPT = 2
UNREADABLE = (
    *(OSError, EOFError, ValueError, KeyError, TypeError),
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
    """Write what Chainer can serialise to `path`, at once or not at all."""
    unfinished = path.with_name(f"unfinished_{path.name}")
    with open(unfinished, "wb") as file:
        chainer.serializers.save_npz(file, target)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def find(folder: Path) -> list[Path]:
    """Return the snapshots in `folder`, the newest last."""
    found = [path for path in folder.iterdir() if NAME.fullmatch(path.name) and path.is_file()]
    return sorted(found, key=number)


def number(path: Path) -> int:
    """Return the update at which a snapshot was taken."""
    return int(NAME.fullmatch(path.name)[1])


def load_newest(folder: Path, trainer: chainer.training.Trainer) -> Path | None:
    """Put the newest snapshot into `trainer` and return its path; None if there is none.

    Raises ValueError if the snapshot cannot be read into this trainer.
    """
    snapshots = find(folder)
    if not snapshots:
        return None
    try:
        chainer.serializers.load_npz(snapshots[-1], trainer)
    except UNREADABLE as error:
        raise ValueError(
            f"Cannot resume from {snapshots[-1]}: {error}. Remove that file to resume from the one "
            f"before, or start anew in another folder."
        ) from error
    return snapshots[-1]
