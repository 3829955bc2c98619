"""Does this machine let root make what a box is made of? Tries it, in namespaces that end with it.

python -m allhands.box.attempt       # exit code 1 and one line: what failed, and why
"""

import os
import shutil
import subprocess
from collections.abc import Callable

from allhands.box import kernel

NAMESPACES = {
    "mount": kernel.NEW_MOUNTS,
    "host name (UTS)": kernel.NEW_NAMES,
    "IPC": kernel.NEW_IPC,
    "network": kernel.NEW_NETWORK,
    "process id": kernel.NEW_PIDS,
}


def try_all() -> None:
    """Make new namespaces and use them as a box does. Raises OSError: what failed, and why."""
    for name, flag in NAMESPACES.items():
        _try(f"new {name} namespaces", lambda flag=flag: kernel.unshare(flag))
    child = os.fork()  # the first process of the new process ids
    if child:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    keep_inside = kernel.SLAVE | kernel.RECURSIVE
    _try("mounts of its own", lambda: kernel.mount("none", "/", flags=keep_inside))
    for kind, target in (("proc", "/proc"), ("tmpfs", "/dev/shm"), ("sysfs", "/sys")):
        _try(f"a {target} of its own", lambda k=kind, t=target: kernel.mount(k, t, k))
    _try("virtual cables (veth)", lambda: _ip("add", "try0", "type", "veth", "peer", "try1"))
    _try("a network bridge", lambda: _ip("add", "try2", "type", "bridge"))


def _try(what: str, step: Callable[[], None]) -> None:
    try:
        step()
    except OSError as error:
        raise OSError(f"{what}, and this machine does not allow them ({error})") from error


def _ip(*words: str) -> None:
    tool = shutil.which("ip")
    if tool is None:  # another sentence says that
        return
    done = subprocess.run([tool, "link", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())


if __name__ == "__main__":
    try:
        try_all()
    except OSError as error:
        print(error, flush=True)
        os._exit(1)
