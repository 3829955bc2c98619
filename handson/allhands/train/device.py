"""Where a run computes: the one place that turns a device's name into Chainer's device.

Chainer's own test `chainer.backends.cuda.available` is true on a login node that has the CUDA
libraries but no GPU, so CuPy is asked instead.
"""

import dataclasses

import chainer

from allhands.data.batch import Batch


def gpu_is_usable() -> bool:
    """True if CuPy is installed and sees at least one GPU."""
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.cuda.is_available())


def choose(specifier: str) -> chainer.backend.Device:
    """Return the device for `auto`, `@numpy`, `@cupy:0`, ... and make it the current one.

    `auto` is the first GPU where there is one, else the CPU. Select the device before any array is
    made: arrays of CuPy are born on the current device.

    Raises ValueError for an unknown specifier or a GPU that is not there.
    """
    if specifier == "auto":
        specifier = "@cupy:0" if gpu_is_usable() else "@numpy"
    if specifier.startswith("@cupy") and not gpu_is_usable():
        raise ValueError(
            f"The run asks for the GPU {specifier!r}, and CuPy sees no GPU on this machine. "
            f"Run on a GPU node, or give --device @numpy."
        )
    try:
        device = chainer.get_device(specifier)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"{specifier!r} is not a device of Chainer ({error}). Give auto, @numpy or @cupy:0."
        ) from error
    device.use()
    return device


def send(batch: Batch, device: chainer.backend.Device) -> Batch:
    """Return the batch with its arrays on `device`."""
    names = ("source_bt", "target_in_bt", "target_out_bt")
    arrays = {name: device.send(getattr(batch, name)) for name in names}
    return dataclasses.replace(batch, **arrays)
