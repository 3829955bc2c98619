"""What does an array on a virtual device do? It computes as NumPy does, and says no as CuPy does.

An array lies on the device that was current when it was made, for its whole life. A view lies where
its array lies. Before anything is computed, all arguments are checked against the current device;
the result is born there. Copying from device to device is always allowed. Nothing turns into a
NumPy array by itself.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from allhands.train.virtual_gpu.driver import Driver

UNCHECKED = {"dot", "matmul", "tensordot", "vdot", "inner"}  # cuBLAS: see Driver.check_product
# No kernel: the result looks at the memory of its argument, if NumPy's does.
VIEWS = {"reshape", "ravel", "transpose", "swapaxes", "squeeze", "expand_dims", "broadcast_to"}
VIEWS |= {"view", "ascontiguousarray", "rollaxis", "moveaxis", "diagonal", "astype", "asarray"}
IMPLICIT = (  # CuPy 13.6.0, cupy/_core/core.pyx, `__array__`
    "Implicit conversion to a NumPy array is not allowed. "
    "Please use `.get()` to construct a NumPy array explicitly."
)


class Device:
    """A device by its number, as `cupy.cuda.Device`: `use()`, or `with Device(1):`.

    Each driver has a class of its own (`of`), because programs write `Device(1)` alone.
    """

    _driver: Driver

    def __init__(self, device: "int | Device | None" = None) -> None:
        self.id = self._driver.current() if device is None else int(device)
        self._before: list[int] = []

    @staticmethod
    def of(driver: Driver) -> type["Device"]:
        if driver.device_class is None:
            members = {"_driver": driver, "__module__": "cupy.cuda.device"}
            driver.device_class = type("Device", (Device,), members)
        return driver.device_class

    def use(self) -> "Device":
        self._driver.set_current(self.id)
        return self

    def synchronize(self) -> None:
        self._driver.synchronize()

    def __enter__(self) -> "Device":
        self._before.append(self._driver.current())
        self._driver.set_current(self.id)
        return self

    def __exit__(self, *error: object) -> None:
        self._driver.set_current(self._before.pop())

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Memory:
    """The bytes of one array; its views share it."""

    def __init__(self, driver: Driver, n_bytes: int) -> None:
        self.driver = driver
        self.device_id = driver.allocate(n_bytes, self)


class MemoryPointer:
    """`array.data`, as far as ChainerMN reads it. ptr is an address in this process."""

    def __init__(self, memory: Memory, ptr: int) -> None:
        self.mem, self.ptr, self.device_id = memory, ptr, memory.device_id

    @property
    def device(self) -> Device:
        return Device.of(self.mem.driver)(self.device_id)


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array on a device. `get()` and `set()` are the only ways to and from NumPy."""

    __array_priority__ = 100

    def __init__(self, host: np.ndarray, memory: Memory) -> None:
        self._host, self._memory = host, memory

    @property
    def device(self) -> Device:
        return Device.of(self._memory.driver)(self._memory.device_id)

    @property
    def data(self) -> MemoryPointer:
        return MemoryPointer(self._memory, self._host.ctypes.data)

    @property
    def T(self) -> "ndarray":
        return ndarray(self._host.T, self._memory)

    def get(self, stream: object = None) -> np.ndarray:
        self._memory.driver.synchronize()
        return self._host.copy()

    def set(self, host: np.ndarray, stream: object = None) -> None:
        self._memory.driver.synchronize()
        self._host[...] = host

    def copy(self, order: str = "C") -> "ndarray":
        """A copy on the current device, wherever this array is."""
        return born(self._memory.driver, self._host.copy(order))

    def dot(self, other: "ndarray", out: "ndarray | None" = None) -> "ndarray":
        return call(self._memory.driver, np.dot, (self, other), {"out": out} if out else {})

    def __getitem__(self, key: Any) -> "ndarray":
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(each, ndarray | list) for each in keys):  # a kernel; else a view
            return call(self._memory.driver, np.ndarray.__getitem__, (self, key), {})
        return wrapped(self._host[key], (self,), self._memory.driver)

    def __setitem__(self, key: Any, value: Any) -> None:
        call(self._memory.driver, np.ndarray.__setitem__, (self, key, value), {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(np.ndarray, name)
        if not callable(found):
            return getattr(self._host, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            return call(self._memory.driver, found, (self, *args), kwargs)

        return method

    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *args: Any, **kwargs: Any) -> Any:
        return call(self._memory.driver, getattr(ufunc, how), args, kwargs, ufunc.__name__)

    def __array_function__(self, f: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        return call(self._memory.driver, f, args, kwargs)

    def __array__(self, dtype: Any = None) -> np.ndarray:
        raise TypeError(IMPLICIT)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterable["ndarray"]:
        return (self[i] for i in range(len(self._host)))

    def item(self) -> Any:
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def __bool__(self) -> bool:
        return bool(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __index__(self) -> int:
        return self.get().__index__()

    def __format__(self, spec: str) -> str:
        return format(self.get()[()] if self.ndim == 0 else self.get(), spec)

    def __repr__(self) -> str:
        return repr(self.get())

    def __str__(self) -> str:
        return str(self.get())

    __hash__ = None


ndarray.__module__ = "cupy"  # Chainer's messages name the class: let them read as on a cluster


def born(driver: Driver, host: np.ndarray) -> ndarray:
    """A new array on the current device. `host` becomes its memory."""
    return ndarray(host, Memory(driver, host.nbytes))


def call(
    driver: Driver, f: Callable, args: tuple, kwargs: dict[str, Any], name: str | None = None
) -> Any:
    """Check all arguments against the current device, compute, and give the result birth there.

    Only what reads no element (a new shape, a view) is let through unchecked, as in CuPy.
    """
    name = name or getattr(f, "__name__", "")
    arrays = list(_arrays((args, kwargs)))
    if name in UNCHECKED:
        for array in arrays:
            driver.check_product(array.device.id)
    result = None
    if name in VIEWS and arrays:
        result = f(*_hosts(args), **_hosts(kwargs))
        if np.may_share_memory(result, arrays[0]._host):
            return wrapped(result, arrays, driver)
    if name not in UNCHECKED:
        for array in arrays:
            driver.check_kernel(array.device.id)
    if result is None:
        result = f(*_hosts(args), **_hosts(kwargs))
    out = kwargs.get("out")
    if out is not None:
        return out[0] if isinstance(out, tuple) else out
    return wrapped(result, arrays, driver)


def wrapped(result: Any, arrays: Iterable[ndarray], driver: Driver) -> Any:
    """NumPy's result as an array on a device: a view where its array is, anything else born."""
    if isinstance(result, tuple | list):
        return type(result)(wrapped(each, arrays, driver) for each in result)
    if isinstance(result, np.generic):
        return born(driver, np.asarray(result))
    if not isinstance(result, np.ndarray):
        return result
    for array in arrays:
        if result.size and np.may_share_memory(result, array._host):
            return ndarray(result, array._memory)
    return born(driver, result)


def _arrays(thing: Any) -> Iterable[ndarray]:
    if isinstance(thing, ndarray):
        yield thing
    elif isinstance(thing, tuple | list):
        for each in thing:
            yield from _arrays(each)
    elif isinstance(thing, dict):
        yield from _arrays(list(thing.values()))


def _hosts(thing: Any) -> Any:
    """The same arguments as NumPy arrays. A NumPy array among them is refused, as by CuPy."""
    if isinstance(thing, ndarray):
        return thing._host
    if isinstance(thing, np.ndarray):
        raise TypeError(f"Unsupported type {type(thing)}")
    if isinstance(thing, tuple | list):
        return type(thing)(_hosts(each) for each in thing)
    if isinstance(thing, dict):
        return {name: _hosts(each) for name, each in thing.items()}
    return thing
