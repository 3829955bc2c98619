"""Which stage of the comparison has each rank reached, and do they all wait for each other?

Every rank keeps a record, `rankN.where` in the comparison's folder: the stage that it is in, the
one that it has left, and the line of the program where it stands. A thread beside the program
looks, ten times a second, where the main thread is. Ranks hang if all of them stand in a call that
waits for others, each at one place, for PATIENCE_S seconds: nobody is left who could send. Then one
rank writes `hang`, and ends. A rank that computes, however long, is never taken for one that waits.
"""

import json
import linecache
import os
import re
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from allhands.train.compare_records import Records

PATIENCE_S = 4.0
LOOK_S = 0.1
EXIT_HANG = 70
# Names of calls that wait for other ranks: allreduce_obj, Allreduce, bcast_data, Recv, Wait ...
WAITING = re.compile(
    r"\b(multi_node_\w+|all_?reduce|i?b?cast\w*|all_?gather|gather|scatter|all_?to_?all|reduce"
    r"|send_?recv|sendrecv|send|recv|probe|barrier|wait\w*|scan|exscan)\w*\(",
    re.IGNORECASE,
)
PACKAGE = Path(__file__).parents[1]
STDLIB = sysconfig.get_paths()["stdlib"]


class Watch:
    """The record of one rank. Stages follow each other; `with watch.stage("evaluate"): ...`."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.records, self.rank, self.size = Records(folder), rank, size
        self.now: str | None = None
        self.left: str | None = None
        self._main = threading.get_ident()
        self._stack: tuple = ()
        self._since_s = time.monotonic()
        self._lock = threading.Lock()
        self._over = False
        threading.Thread(target=self._look_on, daemon=True).start()

    @contextmanager
    def stage(self, name: str):
        """What runs inside belongs to the stage `name`; the record says so at once."""
        self._note(name, self.left)
        yield
        self._note(None, name)

    def over(self) -> None:
        """The comparison is over on this rank: it waits for nobody any more."""
        self._over = True
        self._note(None, "end")

    def _note(self, now: str | None, left: str | None) -> None:
        self.now, self.left = now, left
        self._stack, self._since_s = (), time.monotonic()
        self._write("", False)

    def _write(self, place: str, waits: bool) -> None:
        still_s = time.monotonic() - self._since_s
        record = {"now": self.now, "left": self.left, "place": place, "waits": waits}
        with self._lock:
            part = self.records.folder / f"rank{self.rank}.where.part"
            part.write_text(json.dumps(record | {"still_s": still_s}), encoding="utf-8")
            part.replace(self.records.folder / f"rank{self.rank}.where")

    def _look_on(self) -> None:
        while not self._over:
            time.sleep(LOOK_S)
            frame = sys._current_frames().get(self._main)
            if frame is None:
                return
            stack = stack_of(frame)
            if stack != self._stack:
                self._stack, self._since_s = stack, time.monotonic()
            self._write(place(frame), waits(frame))
            if not self._over and all_wait([self.records.where(r) for r in range(self.size)]):
                (self.records.folder / "hang").touch()
                os._exit(EXIT_HANG)


def all_wait(records: Iterable[dict | None]) -> bool:
    """Have all ranks stood in a call that waits for PATIENCE_S seconds, by their records?"""
    return all(one and one["waits"] and one["still_s"] >= PATIENCE_S for one in records)


def stack_of(frame: FrameType | None) -> tuple[tuple[str, int], ...]:
    """(file, line) of all frames, innermost first. What polls stands still at its caller's line."""
    stack = []
    while frame is not None:
        if frame.f_code.co_name != "wait_politely":
            stack.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(stack)


def waits(frame: FrameType) -> bool:
    """Is the innermost line inside ChainerMN's communicators, or a call that waits for others?"""
    name = frame.f_code.co_filename
    line = linecache.getline(name, frame.f_lineno)
    in_chainermn = f"chainermn{os.sep}communicators" in name
    return frame.f_code.co_name == "wait_politely" or in_chainermn or bool(WAITING.search(line))


def place(frame: FrameType | None) -> str:
    """`line 41 of program.py: total = comm.allreduce_obj(n)`: the innermost line of the program."""
    stack = stack_of(frame)
    found = innermost(stack)
    if found is None:  # in a library that the comparison called, such as the optimizer
        calls = [entry for entry in stack if Path(entry[0]).name == "compare_rank.py"]
        return f"`{linecache.getline(*calls[0]).strip()}`" if calls else ""
    name, number = found
    return f"line {number} of {Path(name).name}: {linecache.getline(name, number).strip()}"


def innermost(stack: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """The first (file, line) that is the program's own; else the first of this package.

    stack: innermost first. Lines of libraries and of the comparison itself never count.
    """
    stack = [entry for entry in stack if not is_machinery(Path(entry[0]))]
    own = [entry for entry in stack if not Path(entry[0]).is_relative_to(PACKAGE)]
    return next(iter(own + stack), None)


def is_machinery(path: Path) -> bool:
    library = {"site-packages", "dist-packages"} & set(path.parts)
    library = (
        library or path.is_relative_to(STDLIB) or str(path).startswith("<") or path.suffix == ".pyx"
    )
    launching = path.parent.name == "launch" or path.name.startswith("compare")
    return bool(library) or (path.is_relative_to(PACKAGE) and launching)
