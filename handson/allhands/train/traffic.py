"""Who sends how many bytes to whom, and at which step?

`Counted(comm)` is a communicator that keeps a record: it passes `Send`, `Recv` and `Sendrecv` on to
a real one, and notes each call. From the records of all ranks `messages` tells what was sent and
when, and `traffic` what one rank sent and received in all.

A step is what the cost models count: a message starts when both its ends are free, and takes one
step; a rank is busy with one call at a time, and `Sendrecv` sends and receives in the same step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Call:
    """One call on one rank: to whom it sent, from whom it received, and the bytes of both."""

    dest: int | None = None
    sent_bytes: int = 0
    source: int | None = None
    received_bytes: int = 0


@dataclass(frozen=True, order=True)
class Message:
    """`n_bytes` from rank `source` to rank `dest`, in `step` (from 1)."""

    step: int
    source: int
    dest: int
    n_bytes: int


@dataclass(frozen=True)
class Traffic:
    """What one rank had to do: its calls, and the bytes that left it and came to it."""

    calls: int
    sent_bytes: int
    received_bytes: int


class Counted:
    """A communicator with `rank`, `size`, `Send`, `Recv` and `Sendrecv`, and a list `calls`.

    comm: an mpi4py communicator, or one of `rehearsal`. Buffers are NumPy arrays. The arguments
    are those of mpi4py, but the source of a message must be given. Without a tag, any fits.
    """

    def __init__(self, comm) -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.calls: list[Call] = []

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        self.calls.append(Call(dest=dest, sent_bytes=n_bytes_of(buf)))
        self.comm.Send(buf, dest=dest, tag=tag)

    def Recv(self, buf, source: int | None = None, tag: int | None = None) -> None:
        self._expect_source(source)
        self.calls.append(Call(source=source, received_bytes=n_bytes_of(buf)))
        self.comm.Recv(buf, source=source, **({} if tag is None else {"tag": tag}))

    def Sendrecv(
        self,
        sendbuf,
        dest: int,
        sendtag: int = 0,
        recvbuf=None,
        source: int | None = None,
        recvtag: int | None = None,
    ) -> None:
        self._expect_source(source)
        self.calls.append(Call(dest, n_bytes_of(sendbuf), source, n_bytes_of(recvbuf)))
        tags = {"sendtag": sendtag} | ({} if recvtag is None else {"recvtag": recvtag})
        self.comm.Sendrecv(sendbuf, dest=dest, recvbuf=recvbuf, source=source, **tags)

    def _expect_source(self, source: int | None) -> None:
        if source is None:
            raise ValueError(
                f"Rank {self.rank} receives and does not say from whom: add source=, so that the "
                "order of adding does not depend on who is fast."
            )

    def __getattr__(self, name: str):
        raise AttributeError(
            f"This communicator counts Send, Recv and Sendrecv of NumPy arrays, and has rank and "
            f"size. The program asked for {name}: say it with those."
        )


def n_bytes_of(buffer) -> int:
    """The bytes of a message buffer: an array, or mpi4py's list of an array and its type."""
    return np.asarray(buffer[0] if isinstance(buffer, list | tuple) else buffer).nbytes


def traffic(calls: Sequence[Call]) -> Traffic:
    """Add up the calls of one rank."""
    return Traffic(
        len(calls), sum(c.sent_bytes for c in calls), sum(c.received_bytes for c in calls)
    )


def messages(calls_by_rank: Sequence[Sequence[Call]]) -> list[Message]:
    """Return all messages in order of their steps, from the calls of each rank, rank 0 first.

    Messages from one rank to another arrive in the order in which they were sent. Raises ValueError
    if a call waits for something that no other rank does.
    """
    found: list[Message] = []
    ranks = [_Rank(list(calls)) for calls in calls_by_rank]
    while pairs := _pairs(ranks):
        for source, dest in pairs:
            step = 1 + max(ranks[source].free, ranks[dest].free)
            found.append(Message(step, source, dest, ranks[source].calls[0].sent_bytes))
            ranks[source].has_sent = ranks[dest].has_received = True
            for rank in (ranks[source], ranks[dest]):
                rank.busy_until = max(rank.busy_until, step)
        for rank in ranks:
            rank.go_on()
    for number, rank in enumerate(ranks):
        if rank.calls:
            raise ValueError(
                f"These records do not fit together: rank {number} waits in {rank.calls[0]}, and "
                "no other rank has the other half of it. Give the calls of all ranks, in order."
            )
    return sorted(found)


@dataclass
class _Rank:
    """How far one rank is: its calls from the present one on, and the step until which it works."""

    calls: list[Call]
    free: int = 0  # the step in which its last call ended
    busy_until: int = 0
    has_sent: bool = False
    has_received: bool = False

    @property
    def sends_to(self) -> int | None:
        return None if self.has_sent or not self.calls else self.calls[0].dest

    @property
    def receives_from(self) -> int | None:
        return None if self.has_received or not self.calls else self.calls[0].source

    def go_on(self) -> None:
        """Take the next call if both halves of this one are done."""
        if self.calls and self.sends_to is None and self.receives_from is None:
            del self.calls[0]
            self.free, self.has_sent, self.has_received = self.busy_until, False, False


def _pairs(ranks: Sequence[_Rank]) -> list[tuple[int, int]]:
    """(source, dest) of the messages whose two ends are there."""
    return [
        (number, rank.sends_to)
        for number, rank in enumerate(ranks)
        if rank.sends_to is not None and ranks[rank.sends_to].receives_from == number
    ]
