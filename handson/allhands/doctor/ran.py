"""How is a command run so that nothing of it stays, whatever it does?"""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 2.0  # between the polite and the hard stop of a command that takes too long


@dataclass(frozen=True)
class Ran:
    """A command that was run. `code` is None if it was ended because its time was up."""

    code: int | None
    output: str  # stdout and stderr together

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in self.output.splitlines() if line.strip()]

    @property
    def last_line(self) -> str:
        return self.lines[-1] if self.lines else "no output"


def run(
    command: Sequence[str], time_limit_s: float, environ: Mapping[str, str] | None = None
) -> Ran:
    """Run a command. When its time is up, it and all that it started are ended."""
    # A file, not a pipe: a pipe stays open as long as any grandchild lives.
    with output_file() as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environ,
            )
        except OSError as error:
            return Ran(127, str(error))
        try:
            code = process.wait(time_limit_s)
        except subprocess.TimeoutExpired:
            code = None
            _end(process)
        output.seek(0)
        return Ran(code, output.read().decode(errors="replace"))


def output_file():
    """A nameless file, in memory where the system can: a full or read-only /tmp is no hindrance."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("output"), "w+b")
    return tempfile.TemporaryFile()


def _end(process: subprocess.Popen) -> None:
    """End a process and all that it started: TERM, so that launchers clean up, then KILL.

    MPI launchers give their ranks sessions of their own. So the family is read from /proc; where
    there is none (macOS), the launcher must end its ranks itself.
    """
    family, more = set(), {key for key in processes() if key[0] == process.pid}
    while more:
        family |= more
        parents = {pid for pid, _ in family}
        more = {key for key, parent in processes().items() if parent in parents} - family
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        for pid, _ in family & set(processes()) if number == signal.SIGKILL else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        end_s = time.monotonic() + GRACE_S
        while time.monotonic() < end_s:
            if process.poll() is not None and not family & set(processes()):
                return
            time.sleep(0.02)


def processes() -> dict[tuple[int, str], int]:
    """{(pid, start time): parent} of all that run; the start time tells reused pids apart."""
    table = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has just ended
            continue
        fields = text.rpartition(")")[2].split()
        if fields and fields[0] != "Z":  # Z: ended, not yet collected by its parent
            table[int(folder.name), fields[19]] = int(fields[1])
    return table
