"""What would a function do as each of N ranks? Called in this process, without MPI.

    results, comms = on_ranks(lambda comm: comm.allreduce(comm.rank), size=3)
    comms[0].calls        # what rank 0 gave to its collectives: [("allreduce", 0)]

A fault shows in what a rank asks of the others. Nothing can hang: a collective that the others do
not call gives a rank its own thing back, and `calls` tell the ranks apart.
"""

import copy
import functools
import operator
from collections.abc import Callable, Sequence

ROUNDS = 4  # in each, a rank knows what the others gave in the one before


class Rank:
    """A communicator, in mpi4py's words, that notes what its rank gives to each collective.

    given: what each rank has given so far, lists of (name, thing). Where another rank has not come
    so far yet, this one gets its own thing back.
    """

    def __init__(self, rank: int, size: int, given: Sequence[list] = ()) -> None:
        self.rank, self.size = rank, size
        self._given = given
        self.calls: list[tuple[str, object]] = []

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def _all(self, name: str, thing: object) -> list:
        number = len(self.calls)
        self.calls.append((name, copy.deepcopy(thing)))
        things = [copy.deepcopy(thing) for _ in range(self.size)]
        for rank, calls in enumerate(self._given):
            if rank != self.rank and number < len(calls) and calls[number][0] == name:
                things[rank] = copy.deepcopy(calls[number][1])
        return things

    def allreduce(self, sendobj, op=None):
        return functools.reduce(op or operator.add, self._all("allreduce", sendobj))

    def reduce(self, sendobj, op=None, root=0):
        total = functools.reduce(op or operator.add, self._all("reduce", sendobj))
        return total if self.rank == root else None

    def Allreduce(self, sendbuf, recvbuf, op=None):
        recvbuf[...] = functools.reduce(op or operator.add, self._all("Allreduce", sendbuf))

    def gather(self, sendobj, root=0):
        things = self._all("gather", sendobj)
        return things if self.rank == root else None

    def allgather(self, sendobj):
        return self._all("allgather", sendobj)

    def scatter(self, sendobj, root=0):
        return self._all("scatter", sendobj)[root][self.rank]

    def bcast(self, obj=None, root=0):
        return self._all("bcast", obj)[root]

    def Bcast(self, buf, root=0):
        buf[...] = self._all("Bcast", buf)[root]

    def barrier(self) -> None:
        self._all("barrier", None)

    Barrier = barrier


def on_ranks(program: Callable[[Rank], object], size: int) -> tuple[list, list[Rank]]:
    """Call `program(comm)` as each of `size` ranks: what they return, and their communicators.

    Rank after rank, and several times: in a first round nobody knows what later ranks will give.
    The program must do the same in each round.
    """
    given: list[list] = [[] for _ in range(size)]
    for _ in range(ROUNDS):
        results, comms = [], []
        for rank in range(size):
            comms.append(Rank(rank, size, given))
            results.append(program(comms[-1]))
            given[rank] = comms[-1].calls
        if not any(given):  # no rank asks another for anything
            break
    return results, comms
