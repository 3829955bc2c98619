"""Which rank raises what, and whose bytes lie on which GPU? N ranks of a program are watched.

    def program(comm, cupy):
        cupy.cuda.Device(comm.intra_rank).use()
        return {"x": cupy.zeros(1000)}

    print(on_gpus(program))

On a machine with N GPUs these are real ranks with CuPy. Elsewhere the ranks are rehearsed in this
process, one after the other, each with virtual devices of its own: no MPI, no waiting, and no
collectives. A rank's program gets ChainerMN's communicator, or in the rehearsal what it says of
ranks (`rank`, `size`, `intra_rank`, ...).

    mpiexec -n 4 python -m allhands.train.on_gpus               # first_lines, repaired and faulty
    mpiexec -n 4 python -m allhands.train.on_gpus twice         # another fault of lab bug3_togpu
    mpiexec -n 4 python -m allhands.train.on_gpus --help        # their names
"""

import argparse
import gc
import linecache
import os
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import chainer

from allhands import launch
from allhands.train import device as devices
from allhands.train import parallel, virtual_gpu
from allhands.train.excepthook import end_job_on_error
from allhands.train.faults.readings import faulty_source, programs, readings
from allhands.train.on_ranks import on_ranks

LISTED = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Rank:
    """What one rank did.

    error: "Type: text", or "" if all went well. at: the program's own line that raised.
    warned: texts of warnings that concern devices. bytes_by_gpu: living bytes of this rank on each
    physical GPU that it sees. kept: what the program returned, by name: for an array or a link
    where it lies, for anything else the thing itself.
    """

    rank: int
    error: str
    at: str
    warned: tuple[str, ...]
    bytes_by_gpu: Mapping[int, int]
    kept: Mapping[str, object]


@dataclass(frozen=True)
class Ranks:
    """All ranks, rank 0 first; str() is a table."""

    ranks: tuple[Rank, ...]
    n_gpus: int

    @property
    def failed(self) -> tuple[int, ...]:
        return tuple(each.rank for each in self.ranks if each.error)

    @property
    def bytes_by_gpu(self) -> list[int]:
        """Bytes of all ranks together on each GPU."""
        numbers = range(self.n_gpus)
        return [sum(each.bytes_by_gpu.get(gpu, 0) for each in self.ranks) for gpu in numbers]

    def __str__(self) -> str:
        lines = []
        for each in self.ranks:
            lines += [f"rank {each.rank} warned: {text}" for text in each.warned]
            lines.append(f"rank {each.rank}: {each.error or 'done'}")
            if each.at:
                lines.append(f"        at: {each.at}")
        heads = "".join(f"{f'GPU {gpu}':>8}" for gpu in range(self.n_gpus))
        lines.append(f"{'bytes':8}{heads}")
        for each in self.ranks:
            figures = [each.bytes_by_gpu.get(gpu, 0) for gpu in range(self.n_gpus)]
            lines.append(f"{f'rank {each.rank}':8}" + "".join(f"{one:8,}" for one in figures))
        lines.append(f"{len(self.failed)} of {len(self.ranks)} ranks failed.")
        return "\n".join(lines)


def on_gpus(program: Callable, ranks: int = 4) -> Ranks:
    """Run `program(comm, cupy)` on `ranks` ranks of one node, and tell what each of them did.

    Real ranks on real GPUs if this machine has that many; else a rehearsal.
    """
    if real_gpus() >= ranks:
        return Ranks(tuple(on_ranks(observe_here, program, ranks=ranks, chainermn=True)), ranks)
    return on_virtual_gpus(program, ranks)


def on_virtual_gpus(
    program: Callable,
    ranks: int = 4,
    *,
    n_gpus: int | None = None,
    visible: Sequence[str] | None = None,
    first_rank: int = 0,
    peer_access: bool = False,
    cupy: int = 13,
) -> Ranks:
    """The same on virtual devices, one rank after the other in this process.

    n_gpus: GPUs of the node; as many as ranks if not given. visible: what each rank finds as
    CUDA_VISIBLE_DEVICES, as some schedulers set it. first_rank: number of the node's first rank; 4
    is the second node of four ranks each. peer_access, cupy: switches of `virtual_gpu.Driver`.
    """
    n_gpus = n_gpus or ranks
    seen = []
    for intra_rank in range(ranks):
        comm = SimpleNamespace(
            rank=first_rank + intra_rank,
            size=first_rank + ranks,
            intra_rank=intra_rank,
            intra_size=ranks,
            inter_rank=first_rank // ranks,
            inter_size=first_rank // ranks + 1,
        )
        driver = {"n_physical": n_gpus, "peer_access": peer_access, "cupy": cupy}
        listed = visible[intra_rank] if visible else None
        with listing(listed), virtual_gpu.virtual(**driver) as library:
            seen.append(observe(comm, program, library))
    return Ranks(tuple(seen), n_gpus)


def real_gpus() -> int:
    """How many GPUs this process sees through CuPy."""
    if not devices.gpu_is_usable():
        return 0
    import cupy

    return int(cupy.cuda.runtime.getDeviceCount())


@contextmanager
def listing(devices_listed: str | None) -> Iterator[None]:
    """CUDA_VISIBLE_DEVICES as given for a `with` block; None takes the variable away."""
    before = os.environ.pop(LISTED, None)
    if devices_listed is not None:
        os.environ[LISTED] = devices_listed
    try:
        yield
    finally:
        os.environ.pop(LISTED, None)
        if before is not None:
            os.environ[LISTED] = before


def observe_here(comm, program: Callable) -> Rank:
    """`observe` on a rank that was started, with the GPUs of its node."""
    return observe(comm, program, virtual_gpu.gpus(comm.intra_size))


def observe(comm, program: Callable, cupy) -> Rank:
    """Run `program(comm, cupy)` on this rank and watch it. An exception is an observation too.

    As in a new process, device 0 is current at the beginning.
    """
    error, at, kept = "", "", None
    cupy.cuda.Device(0).use()
    before = virtual_gpu.bytes_on(cupy)
    gc.freeze()  # the collection below then looks at the program's objects alone, and is quick
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                kept = program(comm, cupy)
            except Exception as raised:
                kept = raised  # its traceback keeps alive what the program has made
                error = f"{type(raised).__name__}: {' '.join(str(raised).split())}"
                at = own_line(raised, program)
        gc.collect()
        after = virtual_gpu.bytes_on(cupy)
    except RuntimeError:  # after an illegal access CUDA answers nothing more in this process
        after = []
    finally:
        gc.unfreeze()
    # The device's own words only; Chainer also calls `to_gpu` deprecated.
    texts = [str(each.message) for each in heard if issubclass(each.category, RuntimeWarning)]
    warned = tuple(dict.fromkeys(" ".join(text.split()) for text in texts))
    used = [now - then for now, then in zip(after, before, strict=False)]
    physical = virtual_gpu.visible_devices(os.environ.get(LISTED), 64)
    bytes_by_gpu = dict(zip(physical, used, strict=False))
    things = kept.items() if isinstance(kept, Mapping) else ()
    places = {str(name): place(thing) for name, thing in things}
    return Rank(comm.rank, error, at, warned, bytes_by_gpu, places)


def own_line(error: BaseException, program: Callable) -> str:
    """The line of the program itself that raised, stripped."""
    frames = traceback.extract_tb(error.__traceback__)
    file = program.__code__.co_filename
    own = [frame for frame in frames if frame.filename == file and frame.name == program.__name__]
    return linecache.getline(file, own[-1].lineno).strip() if own else ""


def place(thing: object) -> object:
    """The device of an array or a Variable, the devices of a link's arrays; else the thing."""
    thing = getattr(thing, "array", thing)
    if isinstance(thing, chainer.Link):
        return ", ".join(sorted(set(where_is(thing).values())))
    if isinstance(thing, chainer.get_array_types()):
        return chainer.backend.get_device_from_array(thing).name
    return thing


def where_is(model: chainer.Link) -> dict[str, str]:
    """The device of every array of a model, by its path: {"/l1/W": "@cupy:1", "/scale": "@numpy"}.

    The arrays of a link are its attributes: Parameters (their `.array`), and plain arrays, whether
    they are registered with the link or not. `model.namedlinks()` gives the model itself (path "/")
    and all links in it. A parameter that has no array yet is left out.
    """
    places = {}
    for path, link in model.namedlinks():
        for name, thing in vars(link).items():
            array = getattr(thing, "array", thing)
            if isinstance(array, chainer.get_array_types()):
                device = chainer.backend.get_device_from_array(array)
                places[f"{path.rstrip('/')}/{name}"] = device.name
    return places


def reads_list(program: Callable) -> bool:
    """Does the faulty reading of this fault read CUDA_VISIBLE_DEVICES?"""
    return LISTED in faulty_source(program)


def needs_list(name: str) -> str:
    """Why a fault that reads CUDA_VISIBLE_DEVICES shows nothing here, and where it does."""
    return (
        f"The faulty {name} reads {LISTED}, which its ranks do not find here. Some schedulers set "
        "it for each rank. Without one, in Python: on_virtual_gpus("
        f"readings('bug3_togpu:{name}').faulty, visible=['0', '1', '2', '3'])"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """On the ranks that were started: rank 0 prints a table for each reading of a fault.

    The faulty reading comes last: on real GPUs it may leave its process unable to go on.
    Returns 2 if there is no such fault, or if it needs a variable that is not set.
    """
    known = programs("bug3_togpu")
    parser = argparse.ArgumentParser(prog="python -m allhands.train.on_gpus")
    parser.add_argument(
        "name",
        nargs="?",
        default="first_lines",
        help=f"a fault of lab bug3_togpu: {', '.join(known)} (needs {LISTED}: physical)",
    )
    name = parser.parse_args(arguments).name
    wrong = ""
    if name not in known:
        wrong = f"There is no fault {name!r} of lab bug3_togpu; there are: {', '.join(known)}."
    elif reads_list(known[name]) and LISTED not in os.environ:
        wrong = needs_list(name)
    if wrong:  # known before any MPI starts, so no rank waits for another
        if launch.place()[0] == 0:
            print(wrong, flush=True)
        return 2
    comm = parallel.communicator()
    end_job_on_error(comm)
    launch.expect_world(comm.mpi_comm)
    both = readings(known[name])
    for reading in ("repaired", "faulty"):
        seen = comm.mpi_comm.gather(observe_here(comm, both.named(reading)))
        if parallel.speaks(comm):
            print(f"{name}, {reading}\n{Ranks(tuple(seen), comm.intra_size)}\n", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
