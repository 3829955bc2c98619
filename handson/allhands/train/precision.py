"""How does Chainer train in mixed precision? What `precision` and `loss_scale` of a config mean.

`mixed`: the model is float16 (`chainer.mixed16`), the optimizer keeps a float32 copy of each weight
(`use_fp32_update`), and the loss is scaled (`loss_scaling`). `fp16`: all is float16, what the
optimizer remembers too, and Adam spoils the model. `fp32`: nothing is changed.

Chainer's dynamic scale begins at 1 and doubles each update. After an overflow it is halved and the
update is left out; from then on it grows by the 1000th root of 2, so to double takes 1,000 updates.
A static scale leaves no update out: an overflow spoils the weights.
"""

import warnings
from contextlib import AbstractContextManager

import chainer
import numpy as np
from chainer.training import extension

from allhands.config import TrainConfig

NUMBERS = {"fp32": np.float32, "fp16": np.float16, "mixed": chainer.mixed16}


def numbers(config: TrainConfig) -> AbstractContextManager:
    """A `with` block in which new links have the number type that `config.precision` asks for."""
    return chainer.using_config("dtype", NUMBERS[config.precision])


def prepare(optimizer: chainer.GradientMethod, config: TrainConfig) -> None:
    """Tell the optimizer what `config` asks for; before or after its `setup`.

    `loss_scale` counts where `precision` is not fp32: `none`, `dynamic`, or a number that stays.
    """
    if config.precision == "fp32":
        return
    if config.precision == "mixed":
        optimizer.use_fp32_update()
    if config.loss_scale == "dynamic":
        optimizer.loss_scaling()
    elif config.loss_scale != "none":
        optimizer.loss_scaling(scale=float(config.loss_scale))


def clipping(config: TrainConfig):
    """The hook that clips gradients to `config.clip_norm`: Chainer's own where all is fp32."""
    if config.precision == "fp32":
        return chainer.optimizer_hooks.GradientClipping(config.clip_norm)
    return ClipUnscaled(config.clip_norm)


class ClipUnscaled:
    """Clip the norm of the true gradients, which are still multiplied by the loss scale.

    Chainer divides by the scale later, inside each parameter's update. So its own GradientClipping
    would compare a norm that is `scale` times too large, and sum the squares in float16 too, where
    they overflow. Here the limit is multiplied by the scale, and the sum is float32.
    """

    name = "GradientClipping"
    timing = "pre"

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def __call__(self, optimizer: chainer.GradientMethod) -> None:
        params = list(optimizer.target.params(include_uninit=False))
        xp = optimizer.target.xp
        flat = [param.grad.ravel().astype(np.float32) for param in params]
        limit = np.float32(self.threshold * (optimizer._loss_scale or 1))
        with np.errstate(over="ignore", invalid="ignore"):
            norm = xp.sqrt(sum(grad.dot(grad) for grad in flat))
            rate = limit / xp.maximum(norm, limit)
            for param in params:
                param.grad *= rate.astype(param.grad.dtype)


def backward(loss: chainer.Variable, optimizer) -> None:
    """Go backward from the loss times the optimizer's scale; without scaling, from the loss."""
    with np.errstate(over="ignore", invalid="ignore"):
        loss.backward(loss_scale=optimizer._loss_scale)


def update(optimizer) -> None:
    """Update the weights. An overflow that Chainer handles by itself needs no warning."""
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        warnings.filterwarnings("ignore", "Non finite number found in param.grad", UserWarning)
        optimizer.update()


def why_not_finite(config: TrainConfig) -> str:
    """What to try after a loss that is inf or nan."""
    if config.precision == "fp16":
        return (
            "With precision=fp16 Adam keeps the squares of the gradients in float16, where those "
            "of small gradients are 0, and divides by them. Give --set precision=mixed"
        )
    if config.precision == "mixed" and config.loss_scale not in ("none", "dynamic"):
        return (
            f"Chainer leaves no update out when the static loss scale {config.loss_scale} makes a "
            f"gradient overflow. Give a smaller one, or --set loss_scale=dynamic"
        )
    return "Lower the learning rate or the clip norm, and resume from the newest snapshot"


class Keep(extension.Extension):
    """Puts into a snapshot what Chainer leaves out: the loss scale and the float32 weights.

    Without it a resumed run would begin again with the scale 1 and with weights that were rounded
    to float16. Extend the trainer with it, and it is saved and read with the trainer.
    """

    trigger = (1, "iteration")
    priority = extension.PRIORITY_WRITER
    name = "keep_precision"

    def __init__(self, optimizer) -> None:
        self._optimizer = optimizer

    def __call__(self, trainer: chainer.training.Trainer) -> None:
        if self._optimizer._loss_scale is not None:
            chainer.report({"loss_scale": self._optimizer._loss_scale})

    def serialize(self, serializer) -> None:
        optimizer = self._optimizer
        if optimizer._loss_scale is not None:
            optimizer._loss_scale = float(serializer("loss_scale", optimizer._loss_scale))
        if optimizer._loss_scaling_is_dynamic:
            ever = optimizer._loss_scaling_isnan_ever
            optimizer._loss_scaling_isnan_ever = bool(serializer("overflow_ever", ever))
        for name, param in optimizer.target.namedparams():
            self._serialize_master(serializer[name], param)

    def _serialize_master(self, serializer, param: chainer.Parameter) -> None:
        rule = param.update_rule
        exists = bool(serializer("exists", rule._fp32_param is not None))
        if exists:
            if rule._fp32_param is None:  # a new optimizer, made to resume
                exact = param.array.astype(np.float32)
                rule._fp32_param = chainer.Parameter(exact, name=param.name)
            array = serializer("float32", rule._fp32_param.array)
            rule._fp32_param.array = param.device.send(array)
