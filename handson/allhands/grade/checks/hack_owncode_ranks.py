"""What would a function do as each of N ranks of torch.distributed? Threads that meet, no network.

    results = on_ranks(lambda dist: total(3, 4, dist), size=2)

`dist` has get_rank, get_world_size, all_reduce (in place) and barrier. A rank that comes to a
collective which the others never call does not hang: it gets the error `Alone`.
"""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch

SUM = torch.distributed.ReduceOp.SUM
REDUCED = {  # what all_reduce makes of the tensors of all ranks, stacked
    SUM: lambda all_: all_.sum(0),
    torch.distributed.ReduceOp.AVG: lambda all_: all_.mean(0, dtype=torch.float64),
    torch.distributed.ReduceOp.MAX: lambda all_: all_.amax(0),
    torch.distributed.ReduceOp.MIN: lambda all_: all_.amin(0),
    torch.distributed.ReduceOp.PRODUCT: lambda all_: all_.prod(0),
}
LONGEST_S = 20.0  # a rank that computes for so long has lost itself


class Alone(RuntimeError):
    """A rank waits in a collective, and the others have gone."""


class World:
    """Where the ranks meet, one collective after the other.

    first: ranks that always run before the others: these go on when all of `first` wait in a
    collective or are through. So what a rank finds does not depend on how busy the machine is.
    """

    def __init__(self, size: int, first: Sequence[int] = ()) -> None:
        self.size, self.first = size, frozenset(first)
        self._turn = threading.Condition()
        self._here: dict[int, tuple[str, object]] = {}
        self._met: dict[int, tuple[str, object]] = {}
        self._round = 0
        self._ended: set[int] = set()

    def meet(self, rank: int, name: str, thing: object = None) -> list:
        """Wait for all ranks in this collective; what each has brought, by rank."""
        with self._turn:
            now = self._round
            self._here[rank] = (name, thing)
            if len(self._here) == self.size:
                self._met, self._here, self._round = self._here, {}, now + 1
                self._turn.notify_all()
            self._turn.notify_all()
            while self._round == now:
                gone = len(self._here) + len(self._ended) >= self.size
                if gone or not self._turn.wait(LONGEST_S):
                    raise Alone(f"rank {rank} waits in {name}, and the other ranks do not come")
            met = self._met
            self._let_first_go(rank)
        names = {each for each, _ in met.values()}
        if len(names) > 1:
            raise Alone(f"the ranks meet in different collectives: {', '.join(sorted(names))}")
        return [thing for _, (_, thing) in sorted(met.items())]

    def _let_first_go(self, rank: int) -> None:
        waiting = self.first if rank not in self.first else frozenset()
        self._turn.wait_for(lambda: waiting <= self._ended | self._here.keys(), LONGEST_S)

    def begin(self, rank: int) -> None:
        """A rank may run."""
        with self._turn:
            self._let_first_go(rank)

    def end(self, rank: int) -> None:
        """A rank is through."""
        with self._turn:
            self._ended.add(rank)
            self._turn.notify_all()


class Done:
    """What an all_reduce with async_op=True gives back."""

    def wait(self) -> None:
        """It is there already."""


def torch_distributed(world: World, rank: int) -> SimpleNamespace:
    """What a function gets as `dist`."""

    def all_reduce(
        tensor: torch.Tensor, op: object = SUM, async_op: bool = False, **_: object
    ) -> Done | None:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"all_reduce takes a tensor, not a {type(tensor).__name__}")
        everybody = torch.stack(world.meet(rank, "all_reduce", tensor.clone()))
        tensor.copy_(REDUCED[op](everybody))
        return Done() if async_op else None

    return SimpleNamespace(
        get_rank=lambda: rank,
        get_world_size=lambda: world.size,
        is_initialized=lambda: True,
        all_reduce=all_reduce,
        barrier=lambda **_: world.meet(rank, "barrier"),
        ReduceOp=torch.distributed.ReduceOp,
    )


def on_ranks(function: Callable, size: int, first: Sequence[int] = ()) -> list:
    """Call `function(dist)` as each rank; the results, rank 0 first. An error of a rank is raised.

    first: ranks that always run before the others (`World`).
    """
    world = World(size, first)
    found: dict[int, object] = {}
    errors: dict[int, BaseException] = {}

    def one(rank: int) -> None:
        try:
            world.begin(rank)
            found[rank] = function(torch_distributed(world, rank))
        except BaseException as error:
            errors[rank] = error
        finally:
            world.end(rank)

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LONGEST_S)
    own = [error for error in errors.values() if not isinstance(error, Alone)]
    for error in own or errors.values():
        raise error
    return [found.get(rank) for rank in range(size)]
