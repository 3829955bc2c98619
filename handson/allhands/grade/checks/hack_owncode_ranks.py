"""What would a function do as each of N ranks of torch.distributed? Threads that meet, no network.

    results = on_ranks(lambda dist: total(3, 4, dist), size=2)

`dist` has get_rank, get_world_size, all_reduce (a sum, in place) and barrier. A rank that comes to
a collective which the others never call does not hang: it gets the error `Alone`.
"""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch

LONGEST_S = 20.0  # a rank that computes for so long has lost itself


class Alone(RuntimeError):
    """A rank waits in a collective, and the others have gone."""


class World:
    """Where the ranks meet, one collective after the other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._turn = threading.Condition()
        self._here: dict[int, tuple[str, object]] = {}
        self._met: dict[int, tuple[str, object]] = {}
        self._round, self._ended = 0, 0
        self.moved = threading.Event()  # some rank waits for the others, or is through

    def meet(self, rank: int, name: str, thing: object = None) -> list:
        """Wait for all ranks in this collective; what each has brought, by rank."""
        with self._turn:
            now = self._round
            self._here[rank] = (name, thing)
            self.moved.set()
            if len(self._here) == self.size:
                self._met, self._here, self._round = self._here, {}, now + 1
                self._turn.notify_all()
            self._turn.notify_all()
            while self._round == now:
                gone = len(self._here) + self._ended >= self.size
                if gone or not self._turn.wait(LONGEST_S):
                    raise Alone(f"rank {rank} waits in {name}, and the other ranks do not come")
            names = {each for each, _ in self._met.values()}
            if len(names) > 1:
                raise Alone(f"the ranks meet in different collectives: {', '.join(sorted(names))}")
            return [thing for _, (_, thing) in sorted(self._met.items())]

    def end(self) -> None:
        """A rank is through."""
        with self._turn:
            self._ended += 1
            self.moved.set()
            self._turn.notify_all()


def torch_distributed(world: World, rank: int) -> SimpleNamespace:
    """What a function gets as `dist`."""

    def all_reduce(tensor: torch.Tensor, op: object = None, **_: object) -> None:
        tensor.copy_(sum(world.meet(rank, "all_reduce", tensor.clone())))

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

    first: ranks that begin before all others: these start when one of them waits or is through.
    """
    world = World(size)
    found: dict[int, object] = {}
    errors: dict[int, BaseException] = {}

    def one(rank: int) -> None:
        try:
            found[rank] = function(torch_distributed(world, rank))
        except BaseException as error:
            errors[rank] = error
        finally:
            world.end()

    threads = {
        rank: threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(size)
    }
    for rank in first:
        threads[rank].start()
    if first:
        world.moved.wait(LONGEST_S)
    for rank in range(size):
        if rank not in first:
            threads[rank].start()
    for thread in threads.values():
        thread.join(2 * LONGEST_S)
    own = [error for error in errors.values() if not isinstance(error, Alone)]
    for error in own or errors.values():
        raise error
    return [found.get(rank) for rank in range(size)]
