"""A link that is only played, and a job script that runs without a scheduler.

`play` calls a participant's ping-pong as rank 0 and then as rank 1, with a clock that goes on only
while a message travels. So its answer is known, and nothing can hang.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ANY = -1  # any source; MPIs have other negative numbers for it. There is one other rank here
SCRIPT_LIMIT_S = 10.0
SRUN = '#!/bin/bash\necho "$@" >> "$SRUN_CALLS"\nexit {code}\n'


class End:
    """The communicator of one of two ranks; its calls and the bytes of each are noted.

    time_s(n_bytes, i) is the time that a message of the i-th round trip takes.
    """

    size = 2

    def __init__(self, rank: int, time_s: Callable[[int, int], float]) -> None:
        self.rank, self.now_s = rank, 100.0
        self.calls: list[tuple[str, int]] = []  # ("Send", the partner)
        self.n_bytes: list[int] = []
        self._time_s = time_s

    def clock(self) -> float:
        return self.now_s

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Barrier(self) -> None:
        """Costs no time here."""

    barrier = Barrier

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        self._travel("Send", buf, dest)

    def Recv(self, buf, source: int = ANY, tag: int = 0, status=None) -> None:
        self._travel("Recv", buf, source)

    def send(self, obj, dest: int, tag: int = 0) -> None:
        self._travel("send", b"", dest)

    def recv(self, buf=None, source: int = ANY, tag: int = 0, status=None) -> None:
        self._travel("recv", b"", source)

    def _travel(self, name: str, buf, partner: int) -> None:
        array = buf[0] if isinstance(buf, list | tuple) else buf
        round_trip = len(self.calls) // 2
        self.calls.append((name, partner if partner >= 0 else 1 - self.rank))
        self.n_bytes.append(memoryview(array).nbytes)
        self.now_s += self._time_s(self.n_bytes[-1], round_trip)


def play(message_s: Callable, n_bytes: int, factors: Sequence[float], time_s: Callable) -> tuple:
    """What `message_s` returns on rank 0, and both ends.

    The i-th round trip takes factors[i] times as long as `time_s` says.
    """

    def slowed(size: int, i: int) -> float:
        return time_s(size) * factors[min(i, len(factors) - 1)]

    ends = [End(rank, slowed) for rank in (0, 1)]
    results = [message_s(end, n_bytes, len(factors), end.clock) for end in ends]
    return results[0], *ends


@dataclass(frozen=True)
class Ran:
    """A job script that ran: its exit code (None: not in time), and the calls of srun."""

    code: int | None
    calls: list[str]


def run_script(script: str, code: int) -> Ran:
    """Run a job script by bash, with a stand-in for srun that ends with `code`."""
    with tempfile.TemporaryDirectory(prefix="allhands-script-") as temporary:
        folder = Path(temporary)
        (folder / "job").write_text(script, encoding="utf-8")
        srun = folder / "srun"
        srun.write_text(SRUN.format(code=code), encoding="utf-8")
        srun.chmod(0o755)
        calls = folder / "calls"
        environ = {
            "PATH": f"{folder}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": temporary,
            "SRUN_CALLS": str(calls),
        }
        process = subprocess.Popen(
            ["bash", "job"],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(SCRIPT_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # what the script has left in the background ends too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return Ran(code, calls.read_text().splitlines() if calls.exists() else [])
