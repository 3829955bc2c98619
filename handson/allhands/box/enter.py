"""How does a command run on a host of a box, as if it had been started there?

    python -m allhands.box.enter NAME HOST [--user UID] -- COMMAND...

The command keeps folder, standard input and output. Its exit code is ours. A signal to us, or to
our group, reaches it once, and Ctrl-C reaches it alone; Ctrl-Z stops both. If we are killed, it is
too. `nsenter` does the first of these only: it would leave the command running.

A process cannot move to other process ids: only its children can. So the command is a child, in a
process group of its own, as a shell starts a job.
"""

import argparse
import contextlib
import os
import pwd
import signal
import sys
from pathlib import Path
from typing import NoReturn

from allhands.box import kernel
from allhands.box.asked import BoxError
from allhands.box.hosts import LOGIN

FORWARDED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH),
)
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # a shell's exit codes


def namespaces(box, host: str) -> list[int]:
    """Open the namespaces of a host, in the order in which to enter them."""
    first = Path("/proc", str(box.init_pid))
    of = first if host == LOGIN else first / "root" / "proc" / str(box.host_pids[host])
    names = ["uts", "ipc", "net", "mnt"]
    paths = [of / "ns" / name for name in names]
    if os.readlink("/proc/self/ns/pid") != os.readlink(first / "ns" / "pid"):
        paths.insert(0, first / "ns" / "pid")
    return [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]


def working_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise BoxError("This folder has been removed. Go into another one: cd") from None


def run(box, host: str, words: list[str], user: int | None) -> int:
    """Run the command and return its exit code; 128 + the signal's number if that ended it."""
    folder = working_folder()
    for namespace in namespaces(box, host):
        kernel.join(namespace)
    try:
        os.chdir(folder)
    except OSError as error:
        raise BoxError(f"The folder {folder} is not there on host {host}: {error}.") from None
    terminal = 0 if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp() else None
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        if terminal is not None:
            take(terminal, os.getpgrp())
        begin(words, user)
    with contextlib.suppress(OSError):  # the child may have done it, or have ended
        os.setpgid(child, child)
    code = attend(child, terminal)
    if terminal is not None:
        take(terminal, os.getpgrp())
    return code


def take(terminal: int, group: int) -> None:
    """Give the terminal to a process group; a group in the background may do so too."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # the group, or the terminal, is gone
        os.tcsetpgrp(terminal, group)
    signal.signal(signal.SIGTTOU, before)


def begin(words: list[str], user: int | None) -> NoReturn:
    """Become the command."""
    if user is not None:
        become(user)
    kernel.die_with_parent()  # after the change of user, which forgets it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(words[0], words)
    except (OSError, ValueError) as error:  # ValueError: an empty name
        said = getattr(error, "strerror", None) or "not a command"
        print(f"allhands: {words[0]}: {said}", file=sys.stderr, flush=True)
        missing = isinstance(error, FileNotFoundError | ValueError)
        os._exit(NOT_FOUND if missing else NOT_EXECUTABLE)


def become(user: int) -> None:
    """Be that user from now on, in an environment that says so."""
    entry = pwd.getpwuid(user)
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(user)
    os.environ |= {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}


def attend(child: int, terminal: int | None) -> int:
    """Pass signals on until the command has ended; stop when it stops. Return its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        ended, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status):
            if terminal is not None:
                take(terminal, os.getpgrp())
            os.kill(os.getpid(), signal.SIGSTOP)  # until the caller's shell lets us go on
            if terminal is not None and os.tcgetpgrp(terminal) == os.getpgrp():
                take(terminal, child)
            os.killpg(child, signal.SIGCONT)
        elif ended:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        number = signal.sigwait([*FORWARDED, signal.SIGCHLD])
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, number)


def main() -> None:
    from allhands.box import box

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name")
    parser.add_argument("host")
    parser.add_argument("--user", type=int, metavar="UID")
    cut = sys.argv.index("--")  # by hand: argparse would take a second -- out of the command
    asked, words = parser.parse_args(sys.argv[1:cut]), sys.argv[cut + 1 :]
    try:
        sys.exit(run(box.find(asked.name), asked.host, words, asked.user))
    except (OSError, BoxError) as error:
        sys.exit(f"allhands: {error}")


if __name__ == "__main__":
    main()
