"""Where do devices come from on a machine without a GPU? From a model that complains as CuPy does.

    from allhands.train.virtual_gpu import gpus

    cupy = gpus(4)           # CuPy itself where this machine has 4 GPUs; else 4 virtual devices
    cupy.cuda.Device(1).use()
    x = cupy.zeros(3)        # on device 1
    chainer.links.Linear(4, 2).to_device("@cupy:1")

Chainer and ChainerMN run unchanged on it: `to_gpu`, `to_device`, links, optimizers and the
communicator `naive` are their own code, and so are their errors. `install` puts the virtual CuPy
into them, `virtual` does it for a `with` block. `what_is_modelled()` says what is left out.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import chainer
import chainer.functions

from allhands.train import device as devices
from allhands.train.virtual_gpu import kernels
from allhands.train.virtual_gpu.array import Device, ndarray
from allhands.train.virtual_gpu.driver import (
    CUDARuntimeError,
    Driver,
    PerformanceWarning,
    visible_devices,
)
from allhands.train.virtual_gpu.library import VirtualCuPy

__all__ = [
    "CUDARuntimeError",
    "Device",
    "Driver",
    "PerformanceWarning",
    "VirtualCuPy",
    "bytes_on",
    "gpus",
    "install",
    "ndarray",
    "virtual",
    "visible_devices",
    "what_is_modelled",
]

MISSING = object()


def gpus(n: int = 4) -> ModuleType | VirtualCuPy:
    """Return CuPy if this process has `n` GPUs, else a virtual CuPy on a node with `n` devices.

    A process from which CUDA_VISIBLE_DEVICES hides some has real ones, however few it sees. A
    virtual node has at least four devices. Called again, it returns the same. The virtual CuPy is
    put into Chainer and ChainerMN.
    """
    before = chainer.backends.cuda.cupy
    if isinstance(before, VirtualCuPy):
        return before
    if devices.gpu_is_usable():
        import cupy

        if cupy.cuda.runtime.getDeviceCount() >= n or "CUDA_VISIBLE_DEVICES" in os.environ:
            return cupy
    return install(Driver(max(n, 4)))


def install(driver: Driver) -> VirtualCuPy:
    """Put a virtual CuPy with this driver into Chainer and ChainerMN, in this process."""
    library = VirtualCuPy(driver)
    for owner, name, value in _places(library):
        setattr(owner, name, value)
    return library


@contextlib.contextmanager
def virtual(**fields: Any) -> Iterator[VirtualCuPy]:
    """A fresh virtual CuPy for a `with` block; Chainer is as before when it ends.

    fields: those of `Driver`, such as n_physical=2, peer_access=True, cupy=7, listed="2,3".
    """
    library = VirtualCuPy(Driver(**fields))
    places = _places(library)
    before = [(owner, name, getattr(owner, name, MISSING)) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield library
    finally:
        for owner, name, value in before:
            if value is MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        chainer._array_types = chainer._cpu_array_types = None


def bytes_on(cupy: ModuleType | VirtualCuPy) -> list[int]:
    """Bytes of this process's arrays on each device that it sees, device 0 first."""
    found = []
    for number in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(number):
            found.append(int(cupy.get_default_memory_pool().used_bytes()))
    return found


def _places(library: VirtualCuPy) -> list[tuple[Any, str, Any]]:
    """(owner, name, value): where Chainer and ChainerMN keep what they know of CuPy."""
    cuda = chainer.backends.cuda
    places = [
        (cuda, "available", True),
        (cuda, "cudnn_enabled", False),
        (cuda, "_cudnn_disabled_by_user", True),  # so that nothing warns about cuDNN
        (cuda, "cupy", library),
        (cuda, "cuda", library.cuda),
        (cuda, "ndarray", ndarray),
        (cuda, "Device", library.cuda.Device),
        (cuda, "elementwise", kernels.elementwise),
        (cuda.GpuDevice, "xp", library),
        (cuda.GpuDevice, "supported_array_types", (ndarray,)),
        (chainer, "_array_types", None),  # is filled again at the next question
        (chainer, "_cpu_array_types", None),
    ]
    # Made by Chainer at its import, where there is a CuPy.
    relu = sys.modules["chainer.functions.activation.relu"]
    places.append((relu, "_relu_grad2_kernel", kernels.elementwise("", "", "", "relu_bwd")))
    memory = sys.modules.get("chainermn.communicators._memory_utility")
    if memory is not None:
        places += [(memory, "cp", library), (memory, "_cupy_avail", True)]
    return places


def what_is_modelled() -> str:
    """What the virtual devices do as real ones, and what they leave out."""
    return """\
These are virtual devices: a model in NumPy, because no GPU (or too few) is usable here.
As on real ones: the current device; arrays are born on it; Chainer's own to_gpu, to_device,
  links, optimizers and errors; CuPy's check before a kernel, with its words; invalid device
  numbers; CUDA_VISIBLE_DEVICES; bytes of arrays on each device, in pieces of 512.
Left out: speed, streams, real memory and running out of it, the memory that CUDA itself takes on
  each device that a process touches, NCCL. Two devices can read each other's memory only if a
  switch says so (peer access, as with NVLink). A matrix product that reads the wrong device is
  not refused at once: its error comes out at the next wait for the device."""
