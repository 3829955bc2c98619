"""What does a comparison read of a program: its settings, parameters, gradients, optimizer?

All arrays are copies, on the CPU, by the name of their parameter; None where there are no values.
"""

import pickle
from collections.abc import Sequence

import chainer
import numpy as np

from allhands.train.compare_records import Arrays
from allhands.train.parts import Parts


def backward(parts: Parts, batch: np.ndarray) -> None:
    loss = parts.loss(batch)
    parts.model.cleargrads()
    loss.backward(loss_scale=getattr(parts.optimizer, "_loss_scale", None))


def described(parts: Parts) -> dict[str, object]:
    """What is known of a program right after it was built."""
    if not isinstance(parts, Parts):
        raise TypeError(f"build(comm) returned {type(parts).__name__}; it must return Parts")
    optimizer = parts.optimizer
    inner = getattr(optimizer, "actual_optimizer", optimizer)
    hyper = getattr(inner, "hyperparam", None)
    settings = {} if hyper is None else hyper.get_dict()
    settings = {name: one for name, one in settings.items() if isinstance(one, int | float)}
    facts = {"n_samples": int(parts.n_samples), "optimizer": type(inner).__name__} | settings
    initial = arrays(parts.model)
    return {
        "same": facts | {name: portable(value) for name, value in parts.same.items()},
        "settings": settings,
        "initial": initial,
        "shapes": {name: None if one is None else one.shape for name, one in initial.items()},
        "state": optimizer_state(parts.model),
    }


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
        self.parts = parts
        t = step_count(parts.optimizer)
        backward(parts, batch)
        self.start = arrays(parts.model)
        parts.optimizer.update()
        self.first = gradients(parts.model)
        self.done = 0
        if step_count(parts.optimizer) != t or not same_bits(self.start, arrays(parts.model)):
            self.done = 1

    def run(self, batches: Sequence[np.ndarray]) -> Arrays:
        """Make the steps; return the gradient of the first, as the update used it."""
        gradient = self.first
        for number in range(self.done, len(batches)):
            backward(self.parts, batches[number])
            self.parts.optimizer.update()
            if number == 0:
                gradient = gradients(self.parts.model)
        return gradient

    def gradient(self, batch: np.ndarray) -> tuple[Arrays, Arrays]:
        """The gradient of a batch at the start: as backward gives it, as an update would use it."""
        backward(self.parts, batch)
        raw = gradients(self.parts.model)
        return raw, self.used(raw)

    def used(self, raw: Arrays) -> Arrays:
        """What the optimizer's hooks (clipping) make of a gradient. The parameters stay."""
        model = self.parts.model
        for name, parameter in model.namedparams():
            if raw[name] is not None:
                parameter.grad = model.device.send(raw[name].copy())
        self.parts.optimizer.update()
        gradient = gradients(model)
        fill(model, self.start)
        return gradient
