"""How is a run's folder kept for one process at a time? By a lock that ends with its process.

The file `lock` stays behind, empty; what counts is the lock that the system holds on it.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process within the block; it must exist.

    Raises ValueError if another process holds it. Some cluster file systems have no locks: there
    the run goes on without.
    """
    with open(folder / "lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"Another process is training in {folder}. Wait for its end, or give another --out."
            ) from None
        except OSError:
            pass
        yield
