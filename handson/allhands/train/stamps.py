"""When did the device get there? Time stamps that do not hold the device up.

A GPU works behind the program's back: the program's own clock says when work was asked for, not
when it was done. So on a GPU a stamp is a CUDA event, put into the stream like any other work, and
read later, all together, when the step is over. On a CPU a stamp is the time.

Conventions: seconds of `time.perf_counter`.
"""

import time
from collections.abc import Sequence
from typing import Protocol

import torch


class Stamps(Protocol):
    def mark(self) -> object:
        """Take a stamp now, after all work that was given to the device before."""

    def read(self, marks: Sequence[object]) -> list[float]:
        """Return the seconds of these stamps, (n,); waits until the device has reached them."""


class CPUStamps:
    """The program and the device are the same."""

    def mark(self) -> float:
        return time.perf_counter()

    def read(self, marks: Sequence[float]) -> list[float]:
        return list(marks)


class CUDAStamps:
    """CUDA events on the current stream of one device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        torch.cuda.synchronize(device)
        self._zero = self.mark()
        self._zero.synchronize()
        self._zero_s = time.perf_counter()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def read(self, marks: Sequence[torch.cuda.Event]) -> list[float]:
        for mark in marks:
            mark.synchronize()
        times_s = [self._zero_s + 1e-3 * self._zero.elapsed_time(mark) for mark in marks]
        if times_s:  # elapsed_time is a 32-bit float: keep the distance short
            i = max(range(len(times_s)), key=times_s.__getitem__)
            self._zero, self._zero_s = marks[i], times_s[i]
        return times_s


def stamps_for(device: torch.device | str) -> Stamps:
    """Return the stamps of a device."""
    device = torch.device(device)
    return CUDAStamps(device) if device.type == "cuda" else CPUStamps()
