"""The few GPU kernels of Chainer that the lab's models and optimizers start, in NumPy.

Chainer writes them in C++ (`cuda.elementwise(..., name)`). Here the name finds a Python function
that computes the same on the arrays' memory. All arguments are checked first, as CuPy does.
Sources: chainer 7.8.1, optimizers/adam.py, sgd.py, momentum_sgd.py; functions/activation/relu.py,
tanh.py, sigmoid.py.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from allhands.train.virtual_gpu import array as arrays


def adam(grad, alpha_t, one_minus_beta1, one_minus_beta2, eps, eta, decay, _, param, m, v) -> None:
    m += one_minus_beta1 * (grad - m)
    v += one_minus_beta2 * (grad * grad - v)
    param -= eta * (alpha_t * m / (np.sqrt(v) + eps) + decay * param)


def sgd(grad, rate, param) -> None:
    param -= rate * grad


def momentum_sgd(grad, rate, momentum, param, v) -> None:
    v[...] = momentum * v - rate * grad
    param += v


UPDATES: dict[str, Callable] = {"adam": adam, "sgd": sgd, "momentum_sgd": momentum_sgd}
VALUES: dict[str, Callable] = {
    "relu_bwd": lambda y, gy: np.where(y > 0, gy, 0).astype(gy.dtype),
    "tanh_bwd": lambda y, gy: gy * (1 - y * y),
    "sigmoid_bwd": lambda y, gy: gy * y * (1 - y),
    "sigmoid_fwd": lambda x: np.tanh(x * 0.5) * 0.5 + 0.5,
}


def elementwise(in_params: str, out_params: str, code: str, name: str, **_: Any) -> Callable:
    """What stands in for `chainer.backends.cuda.elementwise`: the kernel of that name.

    Chainer keeps some kernels for good, so a kernel asks its arguments for their driver.
    """
    known = UPDATES | VALUES

    def kernel(*args: Any) -> arrays.ndarray | None:
        if name not in known:
            raise NotImplementedError(
                f"The virtual devices do not know Chainer's GPU kernel {name!r}; they know "
                f"{', '.join(sorted(known))}. Use another function or optimizer, or a real GPU."
            )
        driver = next(each._memory.driver for each in args if isinstance(each, arrays.ndarray))
        return arrays.call(driver, known[name], args, {}, name)

    return kernel
