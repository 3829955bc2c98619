"""Who sees to it that a box leaves nothing? A process outside of it, that started it.

    python -m allhands.box.keeper JSON          (what was asked for: asked.py)

It claims the box's folder, makes the namespaces and the box's first process (`inside`), waits for
that one's end, and removes the folder. Process ids are numbered anew in there, so that the end of
the first process is the end of all: the kernel sees to that. Mounts and interfaces go with the
namespaces.

`up` holds the other end of our standard input. Until `up` says KEEP there, the box ends with it;
if we end ourselves, the box does too. To standard output go lines of JSON: the first process's id,
then what `inside` reports, or {"error": "..."}.
"""

import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import NoReturn

from allhands.box import inside, kernel, place
from allhands.box.asked import KEEP, Asked, BoxError

LOG = "keeper.log"
NAMESPACES = (
    kernel.NEW_MOUNTS | kernel.NEW_NAMES | kernel.NEW_IPC | kernel.NEW_PIDS | kernel.NEW_NETWORK
)


def tell(**report: object) -> None:
    os.write(1, json.dumps(report).encode() + b"\n")


def start(asked: Asked, folder: Path) -> int:
    """Make the first process, in new namespaces; return its id. We stay where we are."""
    homes = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in ("uts", "ipc", "net", "mnt")]
    kernel.unshare(NAMESPACES)
    first = os.fork()
    if first == 0:
        kernel.die_with_parent()
        for home in homes:
            os.close(home)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        inside.main(asked, folder)
    for home in homes:
        kernel.join(home)
        os.close(home)
    return first


def wait(first: int) -> None:
    """Return when the box's first process has ended; end it if `up` goes away before KEEP."""
    ended = os.pidfd_open(first)
    ready, _, _ = select.select([0, ended], [], [])
    if ended not in ready and os.read(0, len(KEEP)) != KEEP:
        os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)


def main() -> None:
    asked = Asked.from_json(sys.argv[1])
    try:
        folder, _ = place.claim(asked.name)  # the lock is held as long as we live, or the box does
    except BoxError as error:
        refuse(str(error))
    except OSError as error:
        refuse(place.unwritten(error))
    try:
        begin_files(asked, folder)
        first = start(asked, folder)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: os.kill(first, signal.SIGKILL))
        tell(init_pid=first)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)  # the end of the first process closes it
        wait(first)
    finally:
        place.remove(folder)


def refuse(sentence: str) -> NoReturn:
    tell(error=sentence)
    sys.exit(1)


def begin_files(asked: Asked, folder: Path) -> None:
    """Keep what was asked for, and send what this process says to the log from now on."""
    try:
        (folder / place.ASKED).write_text(asked.to_json() + "\n", encoding="utf-8")
        log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        refuse(place.unwritten(error))
    os.dup2(log, 2)


if __name__ == "__main__":
    main()
