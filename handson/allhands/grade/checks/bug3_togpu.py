"""The checks of the lab on devices: one function for each exercise, named by its id.

All run on virtual devices, on every machine: four ranks in some hundredths of a second. Programs
that were repaired must show no symptom, and must leave every byte where it belongs.
"""

import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import chainer
import numpy as np

from allhands.grade.check import Marker, likely, show
from allhands.train import on_gpus
from allhands.train.faults.bug3_togpu import born
from allhands.train.virtual_gpu import virtual

__all__ = ["births", "choose", "first_lines", "scaled", "twice", "where_is"]

BIRTHS = {  # what to think of, where a prediction is wrong
    "a": "nobody has chosen a device yet: device 0 is current",
    "b": "`Device(2).use()` stands above it",
    "c": "inside the `with` block device 1 is current",
    "d": "a copy is a new array: it is born on the device that is current, and not beside `b`",
    "e": "a slice is a view of `c`: it has no memory of its own",
    "f": "`zeros_like` takes shape and type from `a`, and not its place. Which device is current "
    "behind the `with` block?",
}


def births(mark: Marker, predicted: object) -> None:
    mark.need(
        isinstance(predicted, Mapping)
        and set(predicted) == set(BIRTHS)
        and all(isinstance(each, int | np.integer) for each in predicted.values()),
        "a dict with a device number for each of a, b, c, d, e, f: 2, and not '2' or '@cupy:2'",
        show(predicted),
    )
    with virtual() as cupy:
        right = {name: array.device.id for name, array in born(cupy).items()}
    for names, asked in (("abc", "where a, b and c are born"), ("def", "where d, e and f lie")):
        wrong = [name for name in names if predicted[name] != right[name]]
        seen = ", ".join(f"{name} on {show(predicted[name])}" for name in wrong)
        advice = "; ".join(f"{name}: {BIRTHS[name]}" for name in wrong)
        mark.require(not wrong, 1, asked, seen, advice)


def a_model() -> tuple[chainer.Chain, dict[str, str]]:
    """A model whose arrays are scattered, and where each of them lies."""

    class Inner(chainer.Chain):
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.linear = chainer.links.Linear(2, 2)
            self.add_persistent("count", np.zeros(1, np.float32))

    class Outer(chainer.Chain):
        def __init__(self) -> None:
            super().__init__()
            self.name_of_it, self.n_steps = "outer", 3
            with self.init_scope():
                self.inner = Inner()
                self.lazy = chainer.links.Linear(None, 2)
            self.table = np.ones(3, np.float32)

    model = Outer()
    model.to_device("@cupy:1")
    model.inner.linear.b.to_device("@cupy:2")
    places = {
        "/inner/linear/W": "@cupy:1",
        "/inner/linear/b": "@cupy:2",
        "/inner/count": "@cupy:1",
        "/lazy/b": "@cupy:1",
        "/table": "@numpy",
    }
    return model, places


def where_is(mark: Marker, where_is: Callable) -> None:
    with virtual():
        model, right = a_model()
        got = mark.run(where_is, model)
        single = mark.run(where_is, chainer.links.Linear(2, 2))
    mark.need(isinstance(got, Mapping), "a dict: path of an array -> name of its device", show(got))
    parameters = [name for name in right if name.split("/")[-1] in "Wb"]
    missing = [name for name in parameters if name not in got]
    found = mark.require(
        not missing and {"/W", "/b"} <= set(single),
        1,
        f"all parameters, by their paths: {', '.join(parameters)}; for a single link /W and /b",
        f"the paths {show(sorted(got))}, and for a single link {show(sorted(single))}",
        likely(
            (
                any(not str(name).startswith("/") or "//" in str(name) for name in [*got, *single]),
                "a path is that of the link, a slash, and the attribute. The model itself has the "
                'path "/": `path.rstrip("/")`',
            ),
            (not set(got) & set(parameters[:2]), "go through `model.namedlinks()`: links in links"),
            otherwise="`vars(link)` holds a link's attributes; a Parameter has its array in .array",
        ),
    )
    wrong = {name: got[name] for name in parameters if name in got and got[name] != right[name]}
    mark.require(
        not wrong,
        1,
        "the device of each parameter's array, by name",
        show(wrong),
        likely(
            (
                wrong.get("/inner/linear/b") == "@cupy:1",
                "`link.device` says where the link was sent last. Ask the array itself: "
                "`chainer.backend.get_device_from_array`",
            ),
            (
                any(not isinstance(each, str) for each in wrong.values()),
                "a device has a `.name`, such as @cupy:1",
            ),
            otherwise="`chainer.backend.get_device_from_array(array).name`",
        ),
        after=found,
    )
    rest = {name: place for name, place in got.items() if name not in parameters}
    expected = {name: place for name, place in right.items() if name not in parameters}
    mark.require(
        rest == expected,
        1,
        "other arrays too, registered (/inner/count) or not (/table), and nothing else",
        show(rest),
        likely(
            ("/table" not in rest, "a plain attribute is an array of the model as well: `vars`"),
            (
                "/lazy/W" in rest,
                "/lazy/W has no array yet: its `.array` is None, so it lies nowhere",
            ),
            otherwise="take an attribute if `isinstance(array, chainer.get_array_types())`",
        ),
        after=found,
    )


def where_else(ranks: on_gpus.Ranks, *gpus: int) -> dict[int, list[int]]:
    """{rank: GPUs} where a rank has bytes on other GPUs than its own, the next of `gpus`."""
    used = {each.rank: [g for g, n in each.bytes_by_gpu.items() if n] for each in ranks.ranks}
    return {rank: on for (rank, on), own in zip(used.items(), gpus, strict=True) if on != [own]}


def everything_at_home(mark: Marker, ranks: on_gpus.Ranks, asked: str, *cases: tuple) -> bool:
    """One point if no rank failed, warned, or left an array on a GPU that is not its own."""
    strangers = {
        each.rank: sorted(gpu for gpu, used in each.bytes_by_gpu.items() if used and gpu != n)
        for n, each in enumerate(ranks.ranks)
    }
    lost = {rank: gpus for rank, gpus in strangers.items() if gpus}
    elsewhere = {
        each.rank: each.kept
        for n, each in enumerate(ranks.ranks)
        if any(place != f"@cupy:{n}" for place in each.kept.values())
    }
    warned = [each.rank for each in ranks.ranks if each.warned]
    seen = "all in order"
    if ranks.failed:
        first = next(each for each in ranks.ranks if each.error)
        seen = f"{len(ranks.failed)} of {len(ranks.ranks)} ranks failed; rank {first.rank}, at "
        seen += f"`{first.at}`: {first.error}"
    elif lost:
        seen = f"arrays on foreign GPUs (rank: GPUs): {show(lost)}"
    elif elsewhere:
        seen = f"where things are (rank: places): {show(elsewhere)}"
    elif warned:
        seen = f"ranks {show(warned)} were warned"
    fine = not (ranks.failed or lost or elsewhere or warned)
    advice = likely(
        *cases,
        (
            any("@numpy" in kept.values() for kept in elsewhere.values()),
            "that runs on the CPU: take `cupy`, and `to_gpu` or `to_device`",
        ),
        (
            not ranks.failed and set(map(tuple, lost.values())) == {(0,)},
            "all ranks are on GPU 0: each must make GPU `comm.intra_rank` the current one",
        ),
        otherwise="print `where_is(model)` and `cupy.cuda.Device()` just above the line that fails",
    )
    return mark.require(fine, 1, asked, seen, advice)


def _returned(mark: Marker, program: Callable, *names: str) -> None:
    """The program ran on rank 0 and returned these names, or raised: then the rest says more."""
    alone = SimpleNamespace(rank=0, size=1, intra_rank=0, intra_size=1, inter_rank=0, inter_size=1)
    with virtual(n_physical=1) as cupy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            got = program(alone, cupy)
        except Exception:
            return
        mark.need(
            isinstance(got, Mapping) and set(names) <= set(got),
            f"a dict with {', '.join(names)}",
            show(type(got).__name__ if got is not None else None),
            "keep the last line as it was given",
        )


def first_lines(mark: Marker, first_lines: Callable) -> None:
    _returned(mark, first_lines, "model", "x", "y")
    ranks = on_gpus.on_virtual_gpus(first_lines)
    late = (
        any("current device" in each.error for each in ranks.ranks),
        "what device is current when the model is moved? Choose first, then make",
    )
    here = everything_at_home(mark, ranks, "all of rank r on GPU r, on four ranks", late)
    second = on_gpus.on_virtual_gpus(first_lines, first_rank=6)
    lost = where_else(second, 0, 1, 2, 3)
    mark.require(
        not second.failed and not lost,
        1,
        "the same on a second node, where the ranks are 6 to 9 and the GPUs 0 to 3 again",
        f"{len(second.failed)} of 4 ranks failed: {second.ranks[0].error}"
        if second.failed
        else f"ranks that are not on GPU 0, 1, 2, 3 in this order (rank: GPUs): {show(lost)}",
        "the GPUs of a node are counted by `comm.intra_rank`, and not by `comm.rank`",
        after=here,
    )


def scaled(mark: Marker, scaled: Callable) -> None:
    _returned(mark, scaled, "model", "y")
    ranks = on_gpus.on_virtual_gpus(scaled)
    mixed = any("incompatible array types" in each.error for each in ranks.ranks)
    lies = any("@numpy" in str(each.kept.get("model")) for each in ranks.ranks)
    cases = (
        (
            mixed,
            "which of the two is on the CPU? `where_is(model)` says it. `to_device` moves what is "
            "registered: parameters, and what `add_persistent` names",
        ),
        (
            lies,
            "it works, but `scale` stays on the CPU and is sent in each step: register it with "
            "`self.add_persistent`",
        ),
    )
    runs = everything_at_home(mark, ranks, "all four ranks compute, the model on its GPU", *cases)
    if not runs:
        mark.require(False, 1, "scale", after=False)
        return
    comm = SimpleNamespace(rank=1, size=2, intra_rank=1, intra_size=2, inter_rank=0, inter_size=1)
    with virtual() as cupy, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = scaled(comm, cupy)
        model, y = got["model"], chainer.backends.cuda.to_cpu(got["y"].array)
        w = chainer.backends.cuda.to_cpu(model.linear.W.array)
        expected = (np.ones((8, 4), np.float32) @ w.T) * np.array([[1, 10]], np.float32)
        model.to_device("@cupy:3")
        places = sorted(set(on_gpus.where_is(model).values()))
        trained = sorted(name for name, _ in model.namedparams())
    same = np.allclose(y, expected, rtol=1e-5)
    mark.require(
        same and places == ["@cupy:3"] and trained == ["/linear/W", "/linear/b"],
        1,
        "y = (W x + b) * (1, 10), with scale as a constant; the whole model moves when it is sent "
        "to another GPU",
        f"y is {'right' if same else 'wrong'}; after to_device('@cupy:3') its arrays are on "
        f"{show(places)}; its parameters are {show(trained)}",
        likely(
            (not same, "scale must stay in the product, with the values 1 and 10"),
            (
                places == ["@cupy:3"],
                "a Parameter is trained: the optimizer would change scale. `self.add_persistent` "
                "registers an array that stays as it is",
            ),
            otherwise="an array that was made on the GPU stays there: `self.add_persistent` "
            "registers it with the model",
        ),
    )


def twice(mark: Marker, twice: Callable) -> None:
    _returned(mark, twice, "model", "y")
    ranks = on_gpus.on_virtual_gpus(twice)
    warned = any(each.warned for each in ranks.ranks)
    places = [each.kept.get("model") for each in ranks.ranks]
    cases = (
        (
            warned,
            "read the warning: `to_gpu` leaves alone what is on some GPU already. Which method "
            "does it name?",
        ),
        (
            ranks.failed,
            "`build` has put the model on GPU 0. Choose the device before you call it, or send the "
            "model on with `to_device`",
        ),
    )
    here = everything_at_home(mark, ranks, "no error and no warning, rank r on GPU r", *cases)
    calm = on_gpus.on_virtual_gpus(twice, peer_access=True)
    mark.require(
        not any(each.warned for each in calm.ranks) and places == [f"@cupy:{r}" for r in range(4)],
        1,
        "the same where one GPU can read another's memory: nothing reads a foreign GPU",
        f"warnings on ranks {show([each.rank for each in calm.ranks if each.warned])}",
        "the model must be on its own GPU before it computes",
        after=here,
    )


def choose(mark: Marker, choose: Callable) -> None:
    _returned(mark, choose, "x")
    own = on_gpus.on_virtual_gpus(choose, visible=["0", "1", "2", "3"])
    failed = own.failed and next(each for each in own.ranks if each.error)
    alone = mark.require(
        not own.failed and not where_else(own, 0, 1, 2, 3),
        1,
        "four ranks, each is shown one GPU, its own",
        f"{len(own.failed)} of 4 ranks failed; rank {failed.rank}: {failed.error}"
        if failed
        else f"bytes on each GPU: {show(own.bytes_by_gpu)}",
        likely(
            (
                failed and "InvalidDevice" in failed.error,
                "a rank that sees one GPU has a GPU 0 and no other, whatever its physical number "
                "is. `cupy.cuda.runtime.getDeviceCount()` says how many it sees",
            ),
            (failed, "work with the number of GPUs that the rank sees"),
            otherwise="the small array `x` must be made on the chosen GPU",
        ),
    )
    shared = on_gpus.on_virtual_gpus(choose)
    half = on_gpus.on_virtual_gpus(choose, 2, n_gpus=4, visible=["2,3", "2,3"])
    second = on_gpus.on_virtual_gpus(choose, first_rank=6)
    failed = shared.failed or half.failed
    first_node_fine = not (failed or where_else(shared, 0, 1, 2, 3) or where_else(half, 2, 3))
    mark.require(
        first_node_fine and not second.failed and not where_else(second, 0, 1, 2, 3),
        1,
        "four ranks that all see four GPUs, on this node and on a second one (ranks 6 to 9); and "
        "two ranks that both see the GPUs 2 and 3: rank `intra_rank` has the GPU of this number",
        f"bytes on each GPU: {show(shared.bytes_by_gpu)} and {show(half.bytes_by_gpu)}; ranks "
        f"that failed: {show(shared.failed)} and {show(half.failed)}"
        if not first_node_fine
        else f"on the second node these failed: {show(second.failed)}, and these are on other "
        f"GPUs than 0, 1, 2, 3 in this order (rank: GPUs): {show(where_else(second, 0, 1, 2, 3))}",
        likely(
            (
                first_node_fine,
                "the GPUs of a node are counted by `comm.intra_rank`, and not by `comm.rank`",
            ),
            (
                sum(used > 0 for used in shared.bytes_by_gpu) == 1,
                "always GPU 0: where all ranks see all GPUs, they all sit on one. Use `intra_rank` "
                "as well",
            ),
            (
                half.failed,
                "two ranks see 2,3: for them these are GPU 0 and GPU 1. CUDA_VISIBLE_DEVICES "
                "renumbers",
            ),
            otherwise="`comm.intra_rank` modulo the number of GPUs that this rank sees",
        ),
        after=alone,
    )
