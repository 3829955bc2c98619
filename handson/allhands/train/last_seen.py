"""Where does a job hang, and which rank left the path of the others? Ask for the last collective.

    comm = Noted(MPI.COMM_WORLD, folder)     # in the program, on every rank; then use comm as ever
    print(table(read(folder)))               # when it hangs, or later: a line a rank

`Noted` writes a line into a file of this rank before each call that other ranks must answer, and
another when the call has ended. It needs no thread and no signal, so the file is true even for a
rank that was killed. A rank whose last line says "began" waits in that call.

For a program that was not prepared: `py-spy dump --pid PID` shows the stack of any Python process
of yours. For one that can have a line more: `dump_stack_after`.
"""

import faulthandler
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from allhands.launch import where


@dataclass(frozen=True)
class Call:
    """One call on one rank: its name, the line of the program, and whether it has ended."""

    name: str
    line: str
    ended: bool

    def __str__(self) -> str:
        return f"{self.name} in `{self.line}`"


class Noted:
    """A communicator that notes its calls in `folder`/rankN.calls; all else is `comm`'s own.

    comm: an mpi4py communicator, or one of ChainerMN. A note takes some 0.02 ms.
    """

    def __init__(self, comm, folder: Path | str) -> None:
        self.comm = comm
        Path(folder).mkdir(parents=True, exist_ok=True)
        self._file = (Path(folder) / f"rank{comm.rank}.calls").open("w", encoding="utf-8")

    def __getattr__(self, name: str):
        found = getattr(self.comm, name)
        if not where.waits_for_others(name):
            return found

        def noted(*args, **kwargs):
            self._note(began=name, line=line_of(sys._getframe(1)))
            result = found(*args, **kwargs)
            self._note(ended=name)
            return result

        return noted

    def _note(self, **record: str) -> None:
        self._file.write(json.dumps(record | {"at_s": time.monotonic()}) + "\n")
        self._file.flush()


def line_of(frame: FrameType | None) -> str:
    """The innermost line that is neither a library's nor Python's own, as text."""
    stack = where.stack_of(frame)
    return where.text_of(where.innermost(stack, lambda file: not where.is_library(file)))


def read(folder: Path | str) -> list[list[Call]]:
    """The calls of each rank in their order, rank 0 first. A rank without a file has none."""
    calls: dict[int, list[Call]] = {}
    for path in Path(folder).glob("rank*.calls"):
        calls[int(path.stem.removeprefix("rank"))] = _calls(path.read_text(encoding="utf-8"))
    return [calls.get(rank, []) for rank in range(max(calls, default=-1) + 1)]


def _calls(text: str) -> list[Call]:
    found: list[Call] = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # the rank was killed while it wrote
            break
        if "began" in record:
            found.append(Call(record["began"], record["line"], False))
        elif found:
            found[-1] = Call(found[-1].name, found[-1].line, True)
    return found


def table(calls_by_rank: Sequence[Sequence[Call]]) -> str:
    """A line a rank: how many calls it began, and the last one."""
    lines = []
    for rank, calls in enumerate(calls_by_rank):
        if not calls:
            lines.append(f"rank {rank}: no call")
            continue
        state = "has left" if calls[-1].ended else "WAITS IN"
        lines.append(f"rank {rank}: call {len(calls):2}, {state} {calls[-1]}")
    return "\n".join(lines)


def first_difference(calls_by_rank: Sequence[Sequence[Call]]) -> int | None:
    """The number (from 0) of the first call that is not the same on all ranks, or not there on all.

    Two calls are the same if name and line are. None if there is no difference. MPI pairs the
    calls by their order alone: it does not see that they come from different lines.
    """
    for number in range(max(map(len, calls_by_rank), default=0)):
        if len(_ranks_by_call(calls_by_rank, number)) > 1:
            return number
    return None


def difference(calls_by_rank: Sequence[Sequence[Call]]) -> str:
    """The same in words: which ranks made which call there."""
    number = first_difference(calls_by_rank)
    if number is None:
        return "All ranks made the same calls from the same lines, in the same order."
    parts = [f"Call {number + 1} is the first that differs:"]
    for call, ranks in _ranks_by_call(calls_by_rank, number).items():
        who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
        parts.append(f"  {who}: {call or 'no call any more'}")
    return "\n".join(parts)


def _ranks_by_call(calls_by_rank: Sequence[Sequence[Call]], number: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for rank, calls in enumerate(calls_by_rank):
        found.setdefault(str(calls[number]) if number < len(calls) else "", []).append(rank)
    return found


def dump_stack_after(seconds: float, folder: Path | str, rank: int) -> None:
    """Write the stack of this rank to `folder`/rankN.stack if it still runs after `seconds`.

    Python's own `faulthandler` does it, in a thread of C: it works while Python waits in a call of
    MPI. The program goes on. At its end, call `faulthandler.cancel_dump_traceback_later()`.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(Path(folder) / f"rank{rank}.stack", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    faulthandler.dump_traceback_later(seconds, file=descriptor)
