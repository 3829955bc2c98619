"""How does one read a torch.profiler trace? `prof.export_chrome_trace`, or the TensorBoard folder.

A kernel event (`"cat": "kernel"`, duration in microseconds) has the `External id` of the operator
that launched it; the operator (`"cat": "cpu_op"`) has `Input Dims` and `Input type` if the profile
was made with `record_shapes=True`. The layer is the innermost module (`with_modules=True`, or
`with_stack=True`) or `record_function` around the operator; an operator of the backward pass has
the `Sequence number` of its forward operator, and so its layer. Names of keys changed over the
years (`external id`, `Input dims`, `"cat": "Operator"`); all are read.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from allhands.profile import json_stream
from allhands.profile.launches import Launches, Sums, Trace

KERNELS = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
OPERATORS = ("cpu_op", "operator")
RANGES = ("user_annotation", "python_function")
RUNTIME = ("cuda_runtime", "cuda_driver", "runtime")
MODULE = "nn.Module: "
NOT_LAYERS = ("ProfilerStep", "Optimizer.", "enumerate(DataLoader", "autograd::", "## ")
US = 1e-6


@dataclass(slots=True)
class _Operator:
    """An operator of the framework: index of its kind, where and when it ran."""

    kind: int
    thread: object
    start: float
    end: float
    sequence: int | None
    backward: bool


class _Events:
    """What is kept of the events: little for each, so that large traces fit."""

    def __init__(self) -> None:
        self.kernels: list[tuple[str, float, object, object]] = []
        self.operators: dict[object, _Operator] = {}
        self.kinds: dict[tuple, int] = {}
        self.names: dict[str, str] = {}
        self.ranges: dict[object, list[tuple[float, float, str]]] = {}
        self.runtime: dict[object, object] = {}
        self.seen = 0

    def add(self, event: dict) -> None:
        if event.get("ph") != "X" or not isinstance(event.get("name"), str):
            return
        self.seen += 1
        category = str(event.get("cat", "")).lower()
        if category in KERNELS:
            args = _args(event)
            found = (_id(args.get("external id")), _id(args.get("correlation")))
            name = self.names.setdefault(event["name"], event["name"])  # one copy of each
            self.kernels.append((name, _number(event, "dur"), *found))
        elif category in OPERATORS:
            self._operator(event)
        elif category in RANGES:
            self._range(event, category)
        elif category in RUNTIME:
            args = _args(event)
            correlation = _id(args.get("correlation"))
            if correlation is not None:
                self.runtime[correlation] = _id(args.get("external id"))

    def _operator(self, event: dict) -> None:
        args = _args(event)
        shapes = tuple(_shapes(args.get("input dims")))
        types = tuple(map(str, _list(args.get("input type"))))
        kind = (event["name"], shapes, types)
        start = _number(event, "ts")
        sequence = args.get("sequence number")
        forward_thread = args.get("fwd thread id")
        self.operators[_id(args.get("external id"))] = _Operator(
            self.kinds.setdefault(kind, len(self.kinds)),
            _id(event.get("tid")),
            start,
            start + _number(event, "dur"),
            sequence if isinstance(sequence, int) else None,
            bool(forward_thread) or "Backward" in event["name"],
        )

    def _range(self, event: dict, category: str) -> None:
        name = event["name"]
        if category == "python_function":
            if not name.startswith(MODULE):
                return
            name = name.removeprefix(MODULE)
        elif name.startswith(NOT_LAYERS):
            return
        start = _number(event, "ts")
        row = (start, start + _number(event, "dur"), self.names.setdefault(name, name))
        self.ranges.setdefault(_id(event.get("tid")), []).append(row)


def read(file: IO[str], path: Path) -> Trace:
    """Read a torch.profiler trace. Raises ValueError with one sentence."""
    header: dict = {}
    kept = _Events()
    try:
        for event in json_stream.events(file, header):
            if isinstance(event, dict):
                kept.add(event)
    except json_stream.NotJson as error:
        if error.at_end:
            raise ValueError(
                f"{path} ends in the middle, after {kept.seen} events: it was cut off while it "
                f"was written or copied. Export the trace again."
            ) from error
        raise ValueError(
            f"{path} is no JSON: {error}. Give the file that the profiler wrote."
        ) from error
    if header.get(json_stream.EVENTS) is not True:
        raise ValueError(
            f"{path} is JSON, but has no list traceEvents: it is no trace. Give the file that "
            f"`prof.export_chrome_trace` wrote."
        )
    if not kept.kernels:
        raise ValueError(
            f"{path}: no GPU kernel in this trace ({kept.seen} events). Profile on a GPU, with "
            f"activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]."
        )
    origin = header.get("origin")
    return Trace(path, "torch.profiler", _launches(kept), _chip(header), str(origin or ""))


def _launches(kept: _Events) -> tuple[Launches, ...]:
    kinds = list(kept.kinds)
    layers = _Layers(kept)
    sums = Sums()
    for name, duration, external, correlation in kept.kernels:
        if external is None:
            external = kept.runtime.get(correlation)
        operator = kept.operators.get(external) if external is not None else None
        if operator is None:
            sums.add(Launches(name, 1, duration * US))
        else:
            of, shapes, types = kinds[operator.kind]
            layer = layers.of(operator)
            sums.add(Launches(name, 1, duration * US, of, shapes, types, layer))
    return sums.launches()


class _Layers:
    """Finds the innermost module or range around an operator, or around its forward operator."""

    def __init__(self, kept: _Events) -> None:
        self._ranges = {thread: _innermost(rows) for thread, rows in kept.ranges.items()}
        self._forward: dict[int, str] = {}
        backward: dict[object, list[tuple[float, float, str]]] = {}
        for one in sorted(kept.operators.values(), key=lambda one: one.start):
            if one.sequence is None:
                continue
            if one.backward:
                row = (one.start, one.end, str(one.sequence))
                backward.setdefault(one.thread, []).append(row)
            else:  # the last forward operator that has a number is the one that used it up
                self._forward[one.sequence] = self._around(one)
        self._backward = {thread: _innermost(rows) for thread, rows in backward.items()}

    def of(self, operator: _Operator) -> str:
        """Return the layer, "" if there is none."""
        changes = self._backward.get(operator.thread)
        sequence = _at(changes, operator.start) if changes else ""
        forward = self._forward.get(int(sequence), "") if sequence else ""
        return forward or self._around(operator)

    def _around(self, operator: _Operator) -> str:
        found = self._ranges.get(operator.thread)
        return _at(found, operator.start) if found else ""


def _innermost(rows: list[tuple[float, float, str]]) -> tuple[list[float], list[str]]:
    """Return times at which the innermost range changes, and its name from there on."""
    times, names, open_ = [], [], []
    for start, end, name in sorted(rows, key=lambda row: (row[0], -row[1])):
        _close(open_, start, times, names)
        open_.append((end, name))
        times.append(start)
        names.append(name)
    _close(open_, float("inf"), times, names)
    return times, names


def _close(open_: list[tuple[float, str]], until: float, times: list, names: list) -> None:
    while open_ and open_[-1][0] <= until:
        end, _ = open_.pop()
        times.append(end)
        names.append(open_[-1][1] if open_ else "")


def _at(changes: tuple[list, list], time: float) -> str:
    times, names = changes
    index = bisect_right(times, time) - 1
    return names[index] if index >= 0 else ""


def _chip(header: dict) -> str:
    devices = header.get("deviceProperties")
    if isinstance(devices, list) and devices and isinstance(devices[0], dict):
        return str(devices[0].get("name", ""))
    return ""


def _id(value: object) -> int | str | None:
    """Return what names an operator, a launch or a thread; what is no name counts as none."""
    return value if isinstance(value, int | str) else None


def _args(event: dict) -> dict:
    args = event.get("args")
    if not isinstance(args, dict):
        return {}
    return {str(key).lower(): value for key, value in args.items()}


def _list(value: object) -> list:
    return value if isinstance(value, list) else []


def _shapes(dims: object) -> Iterator[tuple[int, ...]]:
    """Yield the shapes of the inputs; an input that is a list of tensors has a list of them."""
    for shape in _list(dims):
        if any(isinstance(size, list) for size in _list(shape)):
            yield from _shapes(shape)
        else:
            yield tuple(size for size in _list(shape) if isinstance(size, int))


def _number(event: dict, key: str) -> float:
    """Return a time of an event; what is no time counts as 0."""
    try:
        value = float(event.get(key, 0.0))
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return value if 0 <= value < float("inf") else 0.0
