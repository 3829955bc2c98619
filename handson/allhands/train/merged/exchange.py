"""Over what are gradients summed? Over torch.distributed, or over an emulated link: one interface.

An exchange starts an all-reduce (a sum over the ranks, in place) and returns at once; its `Pending`
is waited for later. It also says what ranks must agree on before they start: `all_max` makes one
list of numbers of many, and `refuse_different` is an error on every rank when they differ.

Times are seconds of `time.perf_counter`.
"""

import hashlib
import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist

from allhands.mgwfbp.link import EmulatedLink, WallClock
from allhands.train.stamps import CPUStamps, stamps_for


class RanksDisagree(RuntimeError):
    """What the ranks disagree about, and which rank has what, in one sentence."""


class Pending(Protocol):
    """An all-reduce on its way."""

    def wait(self) -> None:
        """Wait for the sum. On a GPU, later work of the current stream waits, not the program."""

    def times_s(self) -> tuple[float, float]:
        """Return when it started at the earliest and when it ended; only if timed, after `wait`."""


class Exchange(Protocol):
    world_size: int

    def all_reduce(self, buffer: torch.Tensor, *, name: str, timed: bool = False) -> Pending:
        """Start the sum of `buffer` (n,) over all ranks, in place, after those started before."""

    def all_max(self, values: Sequence[float]) -> list[float]:
        """Return the largest value over the ranks, each on its own, (n,): the same on all ranks."""

    def refuse_different(self, what: str, text: str) -> None:
        """Raise RanksDisagree on all ranks, unless all of them call this with the same text."""


class DistributedExchange:
    """The exchange of a torch.distributed process group (gloo, NCCL, ...); None is the default one.

    device: where the gradients are. NCCL runs one all-reduce after the other. gloo runs two at
    once, so that its times are not those of one link.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, device: torch.device | str = "cpu"
    ) -> None:
        if not dist.is_initialized():
            raise RuntimeError(
                "There is no process group: call torch.distributed.init_process_group first, in a "
                "program that torchrun starts."
            )
        self.group = group
        self.device = torch.device(device)
        self.world_size = dist.get_world_size(group)
        self._stamps = None

    def all_reduce(self, buffer: torch.Tensor, *, name: str, timed: bool = False) -> Pending:
        if not timed:
            return _Work(dist.all_reduce(buffer, group=self.group, async_op=True))
        if buffer.is_cuda:
            if self._stamps is None:
                self._stamps = stamps_for(self.device)
                self._beside = torch.cuda.Stream(self.device)
            return _WorkOnGPU(self, buffer)
        return _TimedWork(self, buffer)

    def all_max(self, values: Sequence[float]) -> list[float]:
        both = torch.tensor(list(values), dtype=torch.float64, device=self.device)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self.group)
        return both.tolist()

    def refuse_different(self, what: str, text: str) -> None:
        digest = hashlib.sha256(text.encode()).digest()
        mine = torch.tensor(list(digest), dtype=torch.uint8, device=self.device)
        gathered = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(gathered, mine, group=self.group)
        ranks_with = defaultdict(list)
        for rank, theirs in enumerate(gathered):
            ranks_with[bytes(theirs.tolist()).hex()[:8]].append(rank)
        if len(ranks_with) > 1:
            has = "; ".join(f"{_named(ranks)} {name}" for name, ranks in ranks_with.items())
            raise RanksDisagree(
                f"All ranks must have the same {what}, but their hashes differ: {has}. Make it "
                "from numbers that all ranks share: see probe.agree."
            )


class _Work:
    def __init__(self, work: dist.Work) -> None:
        self._work = work

    def wait(self) -> None:
        self._work.wait()


class _TimedWork:
    """On a CPU: the end is stamped by the thread that reaches it."""

    def __init__(self, exchange: DistributedExchange, buffer: torch.Tensor) -> None:
        self._clock = CPUStamps()
        self._start_s = self._clock.mark()
        self._ended = threading.Event()
        self._work = dist.all_reduce(buffer, group=exchange.group, async_op=True)
        self._work.get_future().add_done_callback(self._end)

    def _end(self, _) -> None:
        self._end_s = self._clock.mark()
        self._ended.set()

    def wait(self) -> None:
        self._work.wait()
        self._ended.wait()  # else the callback could outlive the process group

    def times_s(self) -> tuple[float, float]:
        return self._start_s, self._end_s


class _WorkOnGPU:
    """On a GPU: a second stream waits for the end and stamps it; nothing else waits there."""

    def __init__(self, exchange: DistributedExchange, buffer: torch.Tensor) -> None:
        self._stamps, beside = exchange._stamps, exchange._beside
        start = self._stamps.mark()
        self._work = dist.all_reduce(buffer, group=exchange.group, async_op=True)
        with torch.cuda.stream(beside):
            self._work.wait()
            self._marks = [start, self._stamps.mark()]

    def wait(self) -> None:
        self._work.wait()

    def times_s(self) -> tuple[float, float]:
        start_s, end_s = self._stamps.read(self._marks)
        return start_s, end_s


class EmulatedExchange:
    """One real process; its messages take the time that the emulated link says.

    All emulated ranks have the same gradient, so the mean is this one: nothing is changed.
    """

    world_size = 1

    def __init__(self, link: EmulatedLink) -> None:
        if not isinstance(link.clock, WallClock):
            raise TypeError("A real backward pass needs a link on the WallClock.")
        self.link = link

    def all_reduce(self, buffer: torch.Tensor, *, name: str, timed: bool = False) -> Pending:
        if buffer.is_cuda:
            raise ValueError(
                "The emulated link works under a backward pass on a CPU: a GPU has the gradient "
                "later than the program asks for it. Move the model to the CPU."
            )
        return _OnLink(self.link.send(buffer.numel() * buffer.element_size(), name=name))

    def all_max(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def refuse_different(self, what: str, text: str) -> None:
        pass


class _OnLink:
    def __init__(self, future) -> None:
        self._future = future

    def wait(self) -> None:
        self._future.result()

    def times_s(self) -> tuple[float, float]:
        delivery = self._future.result()
        return delivery.start_s, delivery.end_s


def _named(ranks: Sequence[int]) -> str:
    plural = "s" if len(ranks) > 1 else ""
    return f"rank{plural} {', '.join(map(str, ranks))} {'have' if plural else 'has'}"
