"""What does a program of N ranks do, step by step? Try it in one process, without MPI.

    done = rehearse(ring, [np.ones(8), np.ones(8)])     # one array a rank
    done.results       # what ring(comm, array) returned, rank 0 first
    done.messages      # who sent how many bytes to whom, at which step

Ranks are threads. A message is handed over when both ends are there, as MPI does with large ones:
`Send` waits for its `Recv`. So a program that would hang with large messages hangs here with the
smallest; the rehearsal notices that nobody can go on, ends all ranks, and says who waits for whom.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from allhands.train import traffic
from allhands.train.traffic import Counted, Message, Traffic


class Deadlock(RuntimeError):
    """Every rank that has not ended waits for another."""


class _Ended(BaseException):
    """Ends a rank because the rehearsal is over."""


@dataclass(frozen=True)
class Rehearsal:
    """results: what each rank returned; traffic: what each rank sent and received."""

    results: tuple[Any, ...]
    messages: tuple[Message, ...]
    traffic: tuple[Traffic, ...]

    @property
    def n_steps(self) -> int:
        """The step in which the last message arrives."""
        return max((message.step for message in self.messages), default=0)

    def __str__(self) -> str:
        """A line a step: who sends how much to whom."""
        steps: dict[int, list[str]] = {}
        for one in self.messages:
            told = f"{one.source} to {one.dest}: {one.n_bytes:,} bytes"
            steps.setdefault(one.step, []).append(told)
        return "\n".join(f"step {step:2}   {'   '.join(told)}" for step, told in steps.items())


def rehearse(program: Callable[[Counted, Any], Any], inputs: Sequence[Any]) -> Rehearsal:
    """Run `program(comm, inputs[rank])` on len(inputs) ranks, all in this process.

    comm has `rank`, `size`, `Send`, `Recv` and `Sendrecv`, with mpi4py's arguments, for NumPy
    arrays. Raises Deadlock if nobody can go on, and what a rank raised, with its rank as a note.
    """
    world = _World(len(inputs))
    comms = [Counted(_Comm(world, rank)) for rank in range(len(inputs))]
    results: list[Any] = [None] * len(inputs)

    def live(rank: int) -> None:
        try:
            results[rank] = program(comms[rank], inputs[rank])
        except _Ended:
            pass
        except BaseException as error:
            error.add_note(f"That was rank {rank} of {len(inputs)}.")
            world.stop(error)
        finally:
            world.leave(rank)

    threads = [
        threading.Thread(target=live, args=(rank,), daemon=True) for rank in range(len(inputs))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # Ctrl-C: the ranks must not go on in the background
        world.stop(error)
        raise
    if world.error is not None:
        raise world.error
    calls = [comm.calls for comm in comms]
    return Rehearsal(
        tuple(results), tuple(traffic.messages(calls)), tuple(map(traffic.traffic, calls))
    )


@dataclass
class _Offer:
    """A message that waits to be fetched."""

    source: int
    dest: int
    tag: int
    data: np.ndarray
    taken: bool = False


@dataclass
class _World:
    """What the ranks of one rehearsal share; `news` guards it."""

    n_ranks: int
    news: threading.Condition = field(default_factory=threading.Condition)
    offers: list[_Offer] = field(default_factory=list)
    waiting: dict[int, tuple[Callable[[], bool], str]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    error: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """End the rehearsal; the first error is the one that counts."""
        with self.news:
            self.error = self.error or error
            self.news.notify_all()

    def leave(self, rank: int) -> None:
        with self.news:
            self.gone.add(rank)
            self._look_for_deadlock()

    def wait(self, rank: int, ready: Callable[[], bool], what: str) -> None:
        """Wait, holding `news`, until `ready`; `what` says what for."""
        self.waiting[rank] = (ready, what)
        self.news.notify_all()
        self._look_for_deadlock()
        while not ready() and self.error is None:
            self.news.wait()
        del self.waiting[rank]
        if self.error is not None:
            raise _Ended

    def _look_for_deadlock(self) -> None:
        if self.error is not None or len(self.waiting) + len(self.gone) < self.n_ranks:
            return
        if not self.waiting or any(ready() for ready, _ in self.waiting.values()):
            return
        who = [f"rank {rank} {what}" for rank, (_, what) in sorted(self.waiting.items())]
        who += [f"rank {rank} has ended" for rank in sorted(self.gone)]
        self.error = Deadlock(
            "Nobody can go on: " + "; ".join(who) + ". Send waits for its Recv, as MPI does with "
            "large messages. If every rank sends first, nobody receives: use Sendrecv."
        )
        self.news.notify_all()


class _Comm:
    """A rank's end of the world: the few calls of mpi4py that an all-reduce needs."""

    def __init__(self, world: _World, rank: int) -> None:
        self._world, self._rank = world, rank

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return self._world.n_ranks

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        with self._world.news:
            self._wait_until_taken(self._offer(buf, dest, tag))

    def Recv(self, buf, source: int, tag: int | None = None) -> None:
        with self._world.news:
            self._fetch(buf, source, tag)

    def Sendrecv(
        self, sendbuf, dest: int, sendtag: int, recvbuf, source: int, recvtag: int | None = None
    ) -> None:
        with self._world.news:
            offer = self._offer(sendbuf, dest, sendtag)
            self._fetch(recvbuf, source, recvtag)
            self._wait_until_taken(offer)

    def _offer(self, buf, dest: int, tag: int) -> _Offer:
        self._check_rank("send to", dest)
        offer = _Offer(self._rank, dest, tag, _as_bytes(buf).copy())
        self._world.offers.append(offer)
        return offer

    def _wait_until_taken(self, offer: _Offer) -> None:
        self._world.wait(self._rank, lambda: offer.taken, f"sends to rank {offer.dest}")

    def _fetch(self, buf, source: int, tag: int | None) -> None:
        self._check_rank("receive from", source)
        target = _as_bytes(buf)

        def found() -> _Offer | None:
            for offer in self._world.offers:
                if (offer.source, offer.dest) == (source, self._rank) and tag in (None, offer.tag):
                    return offer
            return None

        self._world.wait(self._rank, lambda: found() is not None, f"receives from rank {source}")
        offer = found()
        if offer.data.size > target.size:
            raise ValueError(
                f"Rank {self._rank} got a message of {offer.data.size} bytes from rank {source}, "
                f"and its buffer has {target.size}: make the buffer as large as the message."
            )
        target[: offer.data.size] = offer.data
        self._world.offers.remove(offer)
        offer.taken = True
        self._world.news.notify_all()

    def _check_rank(self, to_do: str, rank: int) -> None:
        if not 0 <= rank < self._world.n_ranks:
            raise ValueError(
                f"Rank {self._rank} wants to {to_do} rank {rank}; there are ranks 0 to "
                f"{self._world.n_ranks - 1}."
            )


def _as_bytes(buffer) -> np.ndarray:
    """A view of a buffer's bytes, (n,); writing to it writes to the buffer."""
    array = buffer[0] if isinstance(buffer, list | tuple) else buffer
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        raise ValueError(
            "A message buffer is a NumPy array whose elements lie side by side (a slice x[a:b] "
            f"does, x[::2] does not); saw {type(array).__name__}. Copy it into one first."
        )
    return array.reshape(-1).view(np.uint8)
