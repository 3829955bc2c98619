"""Where does a box keep its files, and how does one know that it still lives?

Each box has a folder BASE/<name>. While any process of the box's keeping lives, it holds a lock on
that folder (flock on the folder itself). The kernel lets go of the lock when they end, however they
end. So a folder that nobody locks is what a crash left, and is swept away.

BASE is not in a user's runtime folder: the jobs of other users than root must be able to read it.
It is short, because the path of a Unix socket holds 107 characters.
"""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from allhands.box.asked import BoxError

BASE = Path("/run/allhands-box")
ASKED, STATE = "asked.json", "box.json"  # what was asked for; and, once it is up, its processes


def folder_of(name: str) -> Path:
    return BASE / name


def base_is_ours() -> bool:
    """Whether BASE is missing, or a real folder that this user alone can write to."""
    try:
        seen = BASE.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.getuid() and not seen.st_mode & 0o022


def unwritten(error: OSError) -> str:
    """What to say when the box's files cannot be written."""
    return (
        f"A box keeps its files in {BASE}, and they could not be written ({error.strerror}). "
        f"Look at `df -h {BASE.parent}`."
    )


def claim(name: str) -> tuple[Path, int]:
    """Make the box's folder and lock it; return it and the lock's open file.

    Raises BoxError if a box of that name lives.
    """
    with _base_locked() as base:
        _sweep()
        folder = base / name
        try:
            folder.mkdir(mode=0o755)
        except FileExistsError:
            raise BoxError(
                f"A box named '{name}' is up or coming up. Use it (allhands box sh --name {name}), "
                f"end it (allhands box down --name {name}), or give the new one another --name."
            ) from None
        folder.chmod(0o755)  # whatever the umask says
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return folder, lock


def names() -> list[str]:
    """The names of the boxes that are up. Folders that a crash left are removed if one may."""
    if not BASE.exists():
        return []
    with contextlib.suppress(OSError, BoxError), _base_locked():
        _sweep()
    return sorted(path.parent.name for path in BASE.glob(f"*/{STATE}") if lives(path.parent))


def lives(folder: Path) -> bool:
    """Whether a process of the box's keeping holds its lock."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def remove(folder: Path) -> None:
    """Remove a dead box's folder, and BASE if it was the last one."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError, BoxError), _base_locked() as base:
        base.rmdir()


def _sweep() -> None:
    for path in BASE.glob("*"):
        if not lives(path):
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _base_locked() -> Iterator[Path]:
    """Hold BASE's lock, making BASE if need be; the end of another box may remove it meanwhile."""
    if not base_is_ours():
        raise BoxError(
            f"{BASE} is not a folder that this user alone can write to. Look at it with "
            f"`ls -ld {BASE}`, and remove it."
        )
    while True:
        with contextlib.suppress(FileExistsError):
            BASE.mkdir(mode=0o755)
            BASE.chmod(0o755)  # whatever the umask says
        try:
            lock = os.open(BASE, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink > 0:  # not removed since
            break
        os.close(lock)
    try:
        yield BASE
    finally:
        os.close(lock)
