"""How does one run this Python within a time, and leave nothing of what it started?"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from allhands.kit.verify_report import plain
from allhands.launch.job import descendants, kill

LAST_LINES = 30  # of a command that failed
POLITE_S = 20.0  # what pytest gets to write down what it has
TOO_LATE = "It was stopped after"


def run(words: list[str], limit_s: float, folder: Path) -> str:
    """Run this Python with `words`; why it is not good (its last lines), or nothing.

    After `limit_s` it is interrupted, as by Ctrl-C, and then all is killed that it has started.
    """
    with tempfile.TemporaryFile() as said:  # a pipe would be held open by what it leaves behind
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            end(process)
            return f"{TOO_LATE} {limit_s:.0f} s: the time was over."
        except BaseException:  # we are ended ourselves
            end(process)
            raise
        if code == 0:
            return ""
        said.seek(0)
        last = plain(said.read().decode(errors="replace")).splitlines()[-LAST_LINES:]
    return "\n".join([f"It ended with exit code {code}.", *last])


def end(process: subprocess.Popen) -> None:
    """Interrupt a process; then kill it and all that it had started."""
    family = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    try:
        process.wait(POLITE_S)
    except subprocess.TimeoutExpired:
        family |= descendants(process.pid)
        process.kill()
        process.wait()
    kill(family, signal.SIGKILL)
