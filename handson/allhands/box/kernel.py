"""Which calls of Linux does the box need that Python 3.11 does not have? Namespaces and mounts.

Each raises OSError with the kernel's reason.
"""

import ctypes
import os
import signal

NEW_MOUNTS, NEW_NAMES, NEW_IPC = 0x00020000, 0x04000000, 0x08000000  # CLONE_NEWNS, NEWUTS, NEWIPC
NEW_PIDS, NEW_NETWORK = 0x20000000, 0x40000000  # CLONE_NEWPID, CLONE_NEWNET

BIND, RECURSIVE, SLAVE = 1 << 12, 1 << 14, 1 << 19  # MS_BIND, MS_REC, MS_SLAVE
_MNT_DETACH = 2
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29


def _call(name: str, *arguments) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(what: int) -> None:
    """Leave the namespaces `what` for new ones; new process ids are for the next child."""
    _call("unshare", what)


def join(namespace: str | int) -> None:
    """Enter a namespace: a path such as /proc/PID/ns/net, or its open file."""
    if isinstance(namespace, int):
        _call("setns", namespace, 0)
        return
    file = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", file, 0)
    finally:
        os.close(file)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    words = (text.encode() for text in (source, target, kind))
    _call("mount", *words, ctypes.c_ulong(flags), options.encode() or None)


def unmount(target: str) -> None:
    """Take the mount, and those below it, out of this process's view."""
    _call("umount2", target.encode(), _MNT_DETACH)


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process the signal when its parent ends."""
    _call("prctl", _PR_SET_PDEATHSIG, number, 0, 0, 0)


def wake_on_time() -> None:
    """Let a sleep end when it was asked to, not up to 50 us later."""
    _call("prctl", _PR_SET_TIMERSLACK, 1, 0, 0, 0)
