"""How does one end a program and everything that it started? Also what has a session of its own.

An MPI launcher gives its ranks sessions of their own, so a signal to the launcher's group does not
reach them. Who belongs together is read from /proc (Linux). Python 3.6 or later, no package.
"""

import contextlib
import os
import signal
import time


def processes():
    """{(pid, start time): parent's pid} of all that run; empty where there is no /proc (macOS).

    The start time tells reused pids apart.
    """
    table = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            with open(f"/proc/{int(name)}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except (ValueError, OSError):  # not a process, or one that has just ended
            continue
        if fields[0] != "Z":  # ended, and not yet collected by its parent
            table[int(name), fields[19]] = int(fields[1])
    return table


def family(pid):
    """The (pid, start time) of a process and of all its descendants."""
    table = processes()
    found, more = set(), {key for key in table if key[0] == pid}
    while more:
        found |= more
        pids = {key[0] for key in found}
        more = {key for key, parent in table.items() if parent in pids} - found
    return found


def end(process, grace_s):
    """End a `subprocess.Popen` that leads its own group, and its family.

    First TERM to the group, so that launchers and trainers can clean up; KILL after `grace_s`.
    """
    members = family(process.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    if not ended(process, members, grace_s):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid, _ in members & set(processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended(process, members, grace_s)


def ended(process, members, limit_s):
    """Wait until the process and the members have ended; False if the time is up before."""
    end_s = time.time() + limit_s
    while process.poll() is None or members & set(processes()):
        if time.time() > end_s:
            return False
        time.sleep(0.02)
    return True
