"""What does a CUDA driver know? Which devices a process sees, which one is current, whose bytes lie
where.

This is a model, for machines without a GPU. Device numbers are those that the process sees, from 0;
`visible` says which physical device each of them is. As with the real driver, CUDA_VISIBLE_DEVICES
is read at the first call, and not again. The current device belongs to the thread.

The texts of errors and warnings are those of CuPy, so that what one reads here one finds again on a
cluster. Sources: CuPy 13.6.0, cupy/_core/_kernel.pyx (`_check_peer_access`), cupy/cuda/device.pyx,
cupy/cuda/memory.pyx, cupy_backends/cuda/api/runtime.pyx; CuPy 7, cupy/core/_kernel.pyx
(`_preprocess_args`). The words behind the colon of a CUDARuntimeError are CUDA's own
(cudaGetErrorString).
"""

import os
import threading
import warnings
import weakref
from dataclasses import dataclass, field

ALLOCATION_UNIT_BYTES = 512  # cupy/cuda/memory.pyx, ALLOCATION_UNIT_SIZE
ERRORS = {
    "cudaErrorInvalidDevice": "invalid device ordinal",
    "cudaErrorNoDevice": "no CUDA-capable device is detected",
    "cudaErrorIllegalAddress": "an illegal memory access was encountered",
}


class CUDARuntimeError(RuntimeError):
    """What CuPy raises when a call of the CUDA runtime fails: "name: text"."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: {ERRORS[name]}")


class PerformanceWarning(RuntimeWarning):
    """CuPy's own: it works, and slowly."""


CUDARuntimeError.__module__ = "cupy_backends.cuda.api.runtime"
PerformanceWarning.__module__ = "cupy._util"


def visible_devices(listed: str | None, n_physical: int) -> tuple[int, ...]:
    """The physical numbers of the devices that a process sees, in its own order.

    listed: CUDA_VISIBLE_DEVICES; None shows all. The list ends before the first entry that is no
    device of this machine; a number that is there twice leaves no device at all (CUDA C Programming
    Guide, "CUDA environment variables"). Names such as GPU-8932f937 are not known here.
    """
    if listed is None:
        return tuple(range(n_physical))
    found: list[int] = []
    for entry in listed.split(","):
        if not entry.strip().isdecimal() or int(entry) >= n_physical:
            break
        found.append(int(entry))
    return tuple(found) if len(set(found)) == len(found) else ()


@dataclass
class Driver:
    """The devices of one process.

    n_physical: devices of the machine. peer_access: whether one may read the memory of another
    (NVLink, or a PCIe switch). cupy: 13 or 7, whose words and rules hold; 7 never lets a kernel
    read another device. listed: what stands in for CUDA_VISIBLE_DEVICES; None reads the variable.
    """

    n_physical: int = 4
    peer_access: bool = False
    cupy: int = 13
    listed: str | None = None
    _visible: tuple[int, ...] | None = None
    _used_bytes: dict[int, int] = field(default_factory=dict)
    _thread: threading.local = field(default_factory=threading.local)
    _broken: bool = False
    device_class: type | None = None  # see `array.Device.of`

    def __post_init__(self) -> None:
        if self.cupy not in (7, 13):
            raise ValueError(f"The rules of CuPy 7 and 13 are known here, not of {self.cupy}.")
        if self.n_physical < 1:
            raise ValueError(f"A node needs at least one device; asked for {self.n_physical}.")

    @property
    def visible(self) -> tuple[int, ...]:
        if self._visible is None:
            listed = self.listed
            if listed is None:
                listed = os.environ.get("CUDA_VISIBLE_DEVICES")
            self._visible = visible_devices(listed, self.n_physical)
        return self._visible

    def count(self) -> int:
        if not self.visible:
            raise CUDARuntimeError("cudaErrorNoDevice")
        return len(self.visible)

    def current(self) -> int:
        self.count()
        return getattr(self._thread, "current", 0)

    def set_current(self, device: int) -> None:
        if not 0 <= device < self.count():
            raise CUDARuntimeError("cudaErrorInvalidDevice")
        self._thread.current = device

    def used_bytes(self, device: int) -> int:
        """Bytes of living arrays on a device, each rounded up to 512 as CuPy's pool does."""
        return self._used_bytes.get(device, 0)

    def allocate(self, n_bytes: int, owner: object) -> int:
        """Count an array's bytes on the current device as long as `owner` lives."""
        device = self.current()
        rounded = -(-n_bytes // ALLOCATION_UNIT_BYTES) * ALLOCATION_UNIT_BYTES
        self._used_bytes[device] = self.used_bytes(device) + rounded
        weakref.finalize(owner, self._free, device, rounded)
        return device

    def _free(self, device: int, n_bytes: int) -> None:
        self._used_bytes[device] -= n_bytes

    def check_kernel(self, array_device: int) -> None:
        """What CuPy does before it starts a kernel: is this argument's device the current one?"""
        current = self.current()
        if array_device == current:
            return
        if self.cupy == 7:
            raise ValueError(
                "Array device must be same as the current device: "
                f"array device = {array_device} while current = {current}"
            )
        seen = (
            f"The device where the array resides ({array_device}) is different from the current "
            f"device ({current})."
        )
        if not self.peer_access:
            raise ValueError(f"{seen} Peer access is unavailable between these devices.")
        warnings.warn(
            f"{seen} Peer access has been activated automatically.", PerformanceWarning, 2
        )

    def check_product(self, array_device: int) -> None:
        """cuBLAS is started without that question. What it reads wrongly comes out later."""
        if array_device != self.current() and not self.peer_access:
            self._broken = True

    def synchronize(self) -> None:
        """Wait for the device. An error of an earlier kernel comes out here, again and again."""
        if self._broken:
            raise CUDARuntimeError("cudaErrorIllegalAddress")
