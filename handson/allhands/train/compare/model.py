"""What does a comparison read of a program: its settings, parameters, gradients, optimizer?

All arrays are copies, on the CPU, by the name of their parameter; None where there are no values.
"""

import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import chainer
import numpy as np

from allhands.train.compare.parts import Parts
from allhands.train.compare.records import Arrays

HOOK = "allhands: gradients before all hooks"
WRAPPED = 4  # how many wrappers there may be around Chainer's optimizer


def backward(parts: Parts, batch: np.ndarray) -> None:
    loss = parts.loss(batch)
    parts.model.cleargrads()
    loss.backward(loss_scale=getattr(parts.optimizer, "_loss_scale", None))


def described(parts: Parts) -> dict[str, object]:
    """What is known of a program right after it was built."""
    if not isinstance(parts, Parts):
        raise TypeError(f"build(comm) returned {type(parts).__name__}; it must return Parts")
    inner = chainer_optimizer(parts.optimizer, parts.model) or parts.optimizer
    hyper = getattr(inner, "hyperparam", None)
    settings = numbers_of({} if hyper is None else hyper.get_dict())
    for hook in hooks_of(inner).values():
        own = numbers_of(getattr(hook, "__dict__", {}))
        settings |= {f"{type(hook).__name__} {name}": one for name, one in own.items()}
    facts = {"n_samples": int(parts.n_samples), "optimizer": type(inner).__name__} | settings
    initial = arrays(parts.model)
    return {
        "same": facts | {name: portable(value) for name, value in parts.same.items()},
        "settings": settings,
        "initial": initial,
        "shapes": {name: None if one is None else one.shape for name, one in initial.items()},
        "state": optimizer_state(parts.model),
        "speaks": parts.speaks,
        "n_held_out": parts.n_held_out,
        "handed_over": bool(getattr(parts.optimizer, "target_params", ())),  # ChainerMN's note
    }


def numbers_of(values: Mapping[str, object]) -> dict[str, float]:
    return {name: one for name, one in values.items() if isinstance(one, int | float)}


def portable(value: object) -> object:
    """A value that can be written down: as it is, or else as text."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    tokens = getattr(value, "tokens", None)  # a vocabulary of this package
    if tokens is not None:
        return list(tokens)
    try:
        pickle.dumps(value)
    except Exception:
        return repr(value)
    return value


def chainer_optimizer(optimizer: object, model: chainer.Link) -> chainer.Optimizer | None:
    """The optimizer of Chainer that updates `model`: this one, or one that it holds, or None."""
    layer = [optimizer]
    for _ in range(WRAPPED):
        for one in layer:
            if isinstance(one, chainer.Optimizer) and getattr(one, "target", None) is model:
                return one
        held = [thing for one in layer for thing in getattr(one, "__dict__", {}).values()]
        layer = [thing for thing in held if hasattr(thing, "update")]
    return None


def hooks_of(optimizer: object) -> OrderedDict:
    """The hooks that an optimizer of Chainer calls before an update; Chainer does not show them."""
    return getattr(getattr(optimizer, "_hookable", None), "_pre_update_hooks", OrderedDict())


class Updates:
    """Makes the updates of a program, and sees the gradients in them.

    A hook that comes before all others copies the gradients as they are after the exchange.
    Clipping would hide a wrong factor: it brings every long gradient to one length.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.averaged: Arrays | None = None
        inner = chainer_optimizer(parts.optimizer, parts.model)
        if inner is not None:
            inner.add_hook(self._copy, HOOK, timing="pre")
            hooks_of(inner).move_to_end(HOOK, last=False)

    def _copy(self, optimizer: chainer.Optimizer) -> None:
        self.averaged = gradients(self.parts.model)

    def update(self) -> tuple[Arrays, Arrays]:
        """The gradients before the optimizer's hooks, and as they are after the update.

        They are the same where no optimizer of Chainer is known.
        """
        self.averaged = None
        self.parts.optimizer.update()
        used = gradients(self.parts.model)
        return used if self.averaged is None else self.averaged, used


def step_count(optimizer: object) -> int | None:
    return getattr(optimizer, "t", None)


def arrays(model: chainer.Link) -> Arrays:
    """Copies of the parameters by name, on the CPU; None where one has no values yet."""
    return {name: on_cpu(p.array) for name, p in sorted(model.namedparams())}


def gradients(model: chainer.Link) -> Arrays:
    return {name: on_cpu(p.grad) for name, p in sorted(model.namedparams())}


def optimizer_state(model: chainer.Link) -> Arrays:
    """What the optimizer keeps of each parameter (Adam: m, v), by name."""
    state = {}
    for name, parameter in sorted(model.namedparams()):
        rule = parameter.update_rule
        for key, value in (getattr(rule, "state", None) or {}).items():
            if hasattr(value, "shape"):
                state[f"{name} {key}"] = on_cpu(value)
    return state


def on_cpu(array) -> np.ndarray | None:
    return None if array is None else np.array(chainer.get_device("@numpy").send(array))


def fill(model: chainer.Link, values: Arrays) -> None:
    """Give the parameters these values; the arrays stay where they are."""
    for name, parameter in model.namedparams():
        if values[name] is not None and parameter.array is not None:
            parameter.array[...] = model.device.send(values[name])


def average(many: Sequence[Arrays], factor: float = 1.0) -> Arrays:
    return {
        name: None if one is None else factor * sum(each[name] for each in many) / len(many)
        for name, one in many[0].items()
    }


def same_bits(one: Arrays, other: Arrays) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one if one[name] is not None)


class Alone:
    """The run alone. Its first update may be ChainerMN's broadcast to nobody, or a real one."""

    def __init__(self, parts: Parts, batch: np.ndarray) -> None:
        self.parts, self.updates = parts, Updates(parts)
        t = step_count(parts.optimizer)
        backward(parts, batch)
        self.start = arrays(parts.model)
        self.first = self.updates.update()
        self.done = 0
        if step_count(parts.optimizer) != t or not same_bits(self.start, arrays(parts.model)):
            self.done = 1

    def run(self, batches: Sequence[np.ndarray]) -> tuple[Arrays, Arrays]:
        """Make the steps; return the gradients of the first: before and after the hooks."""
        first = self.first
        for number in range(self.done, len(batches)):
            backward(self.parts, batches[number])
            both = self.updates.update()
            first = both if number == 0 else first
        return first

    def gradient(self, batch: np.ndarray) -> tuple[Arrays, Arrays]:
        """The gradient of a batch at the start: as backward gives it, and as it is exchanged."""
        backward(self.parts, batch)
        raw = gradients(self.parts.model)
        return raw, self.exchanged(raw)

    def exchanged(self, raw: Arrays) -> Arrays:
        """What the program makes of a gradient before the hooks. The parameters stay."""
        model = self.parts.model
        for name, parameter in model.namedparams():
            if raw[name] is not None:
                parameter.grad = model.device.send(raw[name].copy())
        gradient, _ = self.updates.update()
        fill(model, self.start)
        return gradient
