"""The virtual CuPy: what a program finds under the name `cupy` when no GPU is there.

Functions that are not named here are NumPy's, under the rules of `array.py`. Numbers are the same
as NumPy's to the last bit.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np

from allhands.train.virtual_gpu import array as arrays
from allhands.train.virtual_gpu.driver import CUDARuntimeError, Driver, PerformanceWarning


class VirtualCuPy:
    """Stands in for the module `cupy`. `driver` is the process's; `is_virtual` is True."""

    __version__ = "13.6.0"
    is_virtual = True
    ndarray = arrays.ndarray

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._util = SimpleNamespace(PerformanceWarning=PerformanceWarning)
        self.random = SimpleNamespace(normal=self._normal, uniform=self._uniform)

        runtime = SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            getDevice=driver.current,
            setDevice=driver.set_current,
            getDeviceCount=driver.count,
            deviceCanAccessPeer=lambda device, peer: int(driver.peer_access),
        )
        self.cuda = SimpleNamespace(
            Device=arrays.Device.of(driver),  # a class: Chainer asks isinstance
            runtime=runtime,
            is_available=lambda: bool(driver.visible),
            get_device_id=driver.current,
        )

    def get_default_memory_pool(self) -> SimpleNamespace:
        """Its `used_bytes()` are those of the current device, in this process."""
        return SimpleNamespace(used_bytes=lambda: self.driver.used_bytes(self.driver.current()))

    def get_array_module(self, *args: Any) -> Any:
        return self if any(isinstance(each, arrays.ndarray) for each in args) else np

    def array(self, thing: Any, dtype: Any = None, copy: bool = True) -> arrays.ndarray:
        """A new array on the current device. NumPy arrays, numbers, lists, arrays of any device."""
        if isinstance(thing, arrays.ndarray):
            if not copy and dtype in (None, thing.dtype):
                return thing
            thing = thing.copy()._host
        return arrays.born(self.driver, np.array(thing, dtype=dtype))

    def asarray(self, thing: Any, dtype: Any = None) -> arrays.ndarray:
        return self.array(thing, dtype, copy=False)

    def asnumpy(self, thing: Any) -> np.ndarray:
        return thing.get() if isinstance(thing, arrays.ndarray) else np.asarray(thing)

    def copyto(self, target: arrays.ndarray, source: Any) -> None:
        """Works from device to device."""
        target._host[...] = getattr(source, "_host", source)

    def empty(self, shape: Any, dtype: Any = float) -> arrays.ndarray:
        return arrays.born(self.driver, np.empty(shape, dtype))

    def zeros(self, shape: Any, dtype: Any = float) -> arrays.ndarray:
        return arrays.born(self.driver, np.zeros(shape, dtype))

    def ones(self, shape: Any, dtype: Any = float) -> arrays.ndarray:
        return arrays.born(self.driver, np.ones(shape, dtype))

    def full(self, shape: Any, value: Any, dtype: Any = None) -> arrays.ndarray:
        return arrays.born(self.driver, np.full(shape, value, dtype))

    def arange(self, *args: Any, **kwargs: Any) -> arrays.ndarray:
        return arrays.born(self.driver, np.arange(*args, **kwargs))

    def empty_like(self, other: arrays.ndarray, dtype: Any = None) -> arrays.ndarray:
        return self.empty(other.shape, dtype or other.dtype)

    def zeros_like(self, other: arrays.ndarray, dtype: Any = None) -> arrays.ndarray:
        return self.zeros(other.shape, dtype or other.dtype)

    def ones_like(self, other: arrays.ndarray, dtype: Any = None) -> arrays.ndarray:
        return self.ones(other.shape, dtype or other.dtype)

    def full_like(self, other: arrays.ndarray, value: Any, dtype: Any = None) -> arrays.ndarray:
        return self.full(other.shape, value, dtype or other.dtype)

    def _normal(self, loc=0.0, scale=1.0, size=None, dtype=float) -> arrays.ndarray:
        return self.array(np.random.normal(loc, scale, size), dtype)

    def _uniform(self, low=0.0, high=1.0, size=None, dtype=float) -> arrays.ndarray:
        return self.array(np.random.uniform(low, high, size), dtype)

    def __getattr__(self, name: str) -> Any:
        """NumPy's function of that name, under the rules of a device; types and numbers as such."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(np, name)
        if isinstance(found, type) or not callable(found):
            return found

        def function(*args: Any, **kwargs: Any) -> Any:
            return arrays.call(self.driver, found, args, kwargs)

        return function
