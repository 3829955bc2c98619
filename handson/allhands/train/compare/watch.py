"""Which stage of the comparison has each rank reached, and do they all wait for each other?

Every rank keeps a record, `rankN.where` in the comparison's folder: the stage that it is in, the
one that it has left, and the line of the program where it stands. A thread beside the program
looks, ten times a second, where the main thread is. Ranks hang if all of them stand in a call that
waits for others, each at one place, for PATIENCE_S seconds: nobody is left who could send. Then one
rank writes `hang`, and ends. A rank that computes, however long, is never taken for one that waits.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from allhands.launch import where
from allhands.train.compare.records import Records
from allhands.train.waiting import nap_until_all_are_here

PATIENCE_S = 4.0
LOOK_S = 0.1
EXIT_HANG = 70
PACKAGE = Path(__file__).parents[2]
RANK = Path(__file__).with_name("rank.py")
POLLING = nap_until_all_are_here.__code__  # what polls stands still, whatever its line


class Watch:
    """The record of one rank. Stages follow each other; `with watch.stage("evaluate"): ...`."""

    def __init__(self, folder: Path, rank: int, size: int) -> None:
        self.records, self.rank, self.size = Records(folder), rank, size
        self.now: str | None = None
        self.left: str | None = None
        self._main = threading.get_ident()
        self._stack: list[where.Place] = []
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
        self._stack, self._since_s = [], time.monotonic()
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
            stack = where.stack_of(frame, [POLLING])
            if stack != self._stack:
                self._stack, self._since_s = stack, time.monotonic()
            self._write(place(frame), waits(frame))
            if not self._over and all_wait([self.records.where(r) for r in range(self.size)]):
                (self.records.folder / "hang").touch()
                os._exit(EXIT_HANG)


def all_wait(records: Iterable[dict | None]) -> bool:
    """Have all ranks stood in a call that waits for PATIENCE_S seconds, by their records?"""
    return all(one and one["waits"] and one["still_s"] >= PATIENCE_S for one in records)


def waits(frame: FrameType) -> bool:
    """Is the innermost frame in ChainerMN's communicators, or in a call that waits for others?"""
    in_chainermn = f"chainermn{os.sep}communicators" in frame.f_code.co_filename
    return frame.f_code is POLLING or in_chainermn or where.waits(frame)


def place(frame: FrameType | None) -> str:
    """`line 41 of program.py: total = comm.allreduce_obj(n)`: the innermost line of the program.

    If it waits in a link of a library, such as a batch normalisation over all ranks, its name too.
    """
    stack = where.stack_of(frame, [POLLING])
    found = innermost(stack)
    if found is None:  # in a library that the comparison called, such as the optimizer
        calls = [entry for entry in stack if Path(entry[0]) == RANK]
        return f"`{where.text_of(calls[0])}`" if calls else ""
    layer = link_of(frame)
    inside = f" (in {layer})" if layer else ""
    return f"{where.told(found)}: {where.text_of(found)}{inside}"


def link_of(frame: FrameType | None) -> str:
    """The innermost link (layer) of ChainerMN that a frame is in, by its class; or nothing."""
    while frame is not None:
        one = frame.f_locals.get("self")
        if type(one).__module__.startswith("chainermn.links"):
            return type(one).__name__
        frame = frame.f_back
    return ""


def innermost(stack: Iterable[where.Place]) -> where.Place | None:
    """The first (file, line) that is the program's own; else the first of this package.

    stack: innermost first. Lines of libraries and of the comparison itself never count.
    """
    stack = [entry for entry in stack if not is_machinery(Path(entry[0]))]
    outside = where.innermost(stack, lambda file: not Path(file).is_relative_to(PACKAGE))
    return outside or next(iter(stack), None)


def is_machinery(path: Path) -> bool:
    launching = path.is_relative_to(PACKAGE) and path.parent.name in ("launch", "compare")
    return where.is_library(str(path)) or str(path).startswith("<") or launching
