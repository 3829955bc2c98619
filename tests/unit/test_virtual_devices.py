"""Virtual devices: current device, births, views, copies, refusals, bytes. Texts are CuPy's own.

Sources of the texts: CuPy 13.6.0, cupy/_core/_kernel.pyx (`_check_peer_access`, `_preprocess_arg`),
cupy/_core/core.pyx (`__array__`), cupy_backends/cuda/api/runtime.pyx (`CUDARuntimeError`); for
CuPy 7, its user guide (basic.rst, "Current Device"); CUDA's own words of the errors.
"""

import gc
import threading

import numpy as np
import pytest

from allhands.train.virtual_gpu import (
    CUDARuntimeError,
    PerformanceWarning,
    bytes_on,
    virtual,
    visible_devices,
)


@pytest.fixture
def cupy():
    with virtual() as library:
        yield library


def test_use_lasts_and_with_gives_back(cupy):
    device = cupy.cuda.Device
    assert device().id == 0
    device(3).use()
    with device(1) as one:
        assert one == device(1) == device()
        with device(2):
            assert cupy.cuda.runtime.getDevice() == 2
        assert device().id == 1
    assert device().id == 3
    assert repr(device(3)) == "<CUDA Device 3>"


def test_with_gives_back_after_an_error_too(cupy):
    with pytest.raises(KeyError), cupy.cuda.Device(2):
        raise KeyError
    assert cupy.cuda.Device().id == 0


def test_each_thread_has_a_current_device_of_its_own(cupy):
    cupy.cuda.Device(2).use()
    seen = []
    thread = threading.Thread(target=lambda: seen.append(cupy.cuda.Device().id))
    thread.start()
    thread.join()
    assert seen == [0]


def test_what_makes_memory_is_born_on_the_current_device(cupy):
    a = cupy.zeros((2, 2))
    cupy.cuda.Device(2).use()
    made = [cupy.ones(2), cupy.arange(3), cupy.full(2, 7), cupy.zeros_like(a), cupy.array([1.0])]
    made += [a.copy(), cupy.array(a), cupy.asarray(np.ones(2))]
    assert {each.device.id for each in made} == {2}


def test_views_lie_where_their_array_lies(cupy):
    a = cupy.zeros((4, 2))
    cupy.cuda.Device(1).use()
    views = [a[1:], a.T, a.reshape(8), a.ravel(), cupy.ascontiguousarray(a), cupy.asarray(a)]
    assert {each.device.id for each in views} == {0}
    assert bytes_on(cupy) == [512, 0, 0, 0]
    with cupy.cuda.Device(0):
        a[...] = 5
    assert all((view.get() == 5).all() for view in views if view.size == 8)


@pytest.mark.parametrize(
    "compute",
    [
        lambda xp, a, b: a + b,
        lambda xp, a, b: b + a,
        lambda xp, a, b: a * 2,
        lambda xp, a, b: xp.maximum(a, 0),
        lambda xp, a, b: a.sum(),
        lambda xp, a, b: xp.concatenate([a, b]),
        lambda xp, a, b: a.fill(1),
        lambda xp, a, b: a.__setitem__(slice(None), 1),
        lambda xp, a, b: b.__iadd__(a),
        lambda xp, a, b: a.astype("float32"),
        lambda xp, a, b: a == b,
    ],
)
def test_computing_with_an_array_of_another_device_is_refused(cupy, compute):
    a = cupy.zeros(3)
    with cupy.cuda.Device(1):
        b = cupy.zeros(3)
        with pytest.raises(ValueError, match=r"^The device where the array") as refused:
            compute(cupy, a, b)
    assert str(refused.value) == (
        "The device where the array resides (0) is different from the current device (1). "
        "Peer access is unavailable between these devices."
    )


def test_cupy_7_said_it_in_other_words():
    with virtual(cupy=7, peer_access=True) as cupy:
        a = cupy.zeros(3)
        cupy.cuda.Device(1).use()
        with pytest.raises(ValueError, match="Array device") as refused:
            a * 2
    assert str(refused.value) == (
        "Array device must be same as the current device: array device = 0 while current = 1"
    )


def test_with_peer_access_it_works_and_only_warns():
    with virtual(peer_access=True) as cupy:
        a = cupy.ones(3)
        cupy.cuda.Device(1).use()
        with pytest.warns(PerformanceWarning) as warned:
            b = a + 1
        assert b.device.id == 1
        assert b.tolist() == [2, 2, 2]
    assert str(warned[0].message) == (
        "The device where the array resides (0) is different from the current device (1). "
        "Peer access has been activated automatically."
    )


def test_copying_between_devices_is_always_allowed(cupy):
    a = cupy.arange(3)
    cupy.cuda.Device(1).use()
    b = cupy.zeros(3, dtype=a.dtype)
    cupy.copyto(b, a)
    assert b.get().tolist() == a.copy().get().tolist() == a.get().tolist() == [0, 1, 2]


def test_a_wrong_matrix_product_comes_out_at_the_next_wait(cupy):
    a = cupy.ones((2, 2))
    cupy.cuda.Device(1).use()
    product = cupy.ones((2, 2)).dot(a)  # cuBLAS asks nothing
    with pytest.raises(CUDARuntimeError, match=r"^cudaErrorIllegalAddress: an illegal memory"):
        product.get()
    with pytest.raises(CUDARuntimeError, match="an illegal memory access was encountered"):
        cupy.cuda.Device(1).synchronize()


def test_numpy_arrays_do_not_mix_by_themselves(cupy):
    a = cupy.zeros(3)
    with pytest.raises(TypeError, match=r"^Unsupported type <class 'numpy.ndarray'>$"):
        a + np.zeros(3)
    with pytest.raises(TypeError, match="Unsupported type"):
        np.zeros(3) + a
    with pytest.raises(TypeError, match="Implicit conversion to a NumPy array is not allowed"):
        np.asarray(a)
    assert float((a + np.float32(1)).sum()) == 3
    assert str(type(a)) == "<class 'cupy.ndarray'>"


@pytest.mark.parametrize("number", [4, -1, 99])
def test_a_device_that_is_not_there_is_refused_when_it_is_used(cupy, number):
    device = cupy.cuda.Device(number)  # the object alone asks nobody
    with pytest.raises(CUDARuntimeError) as refused:
        device.use()
    assert str(refused.value) == "cudaErrorInvalidDevice: invalid device ordinal"
    assert isinstance(refused.value, RuntimeError)


@pytest.mark.parametrize(
    ("listed", "seen"),
    [
        (None, (0, 1, 2, 3)),
        ("2", (2,)),
        ("2,3", (2, 3)),
        ("3,0", (3, 0)),
        ("0,9,1", (0,)),  # the list ends at the first entry that is no device
        ("-1", ()),
        ("", ()),
        ("1,1", ()),
        (" 1 , 2", (1, 2)),
    ],
)
def test_cuda_visible_devices_hides_and_renumbers(listed, seen):
    assert visible_devices(listed, 4) == seen


def test_the_variable_is_read_at_the_first_call_and_never_again(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with virtual() as cupy:
        assert cupy.cuda.runtime.getDeviceCount() == 2
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
        assert cupy.cuda.runtime.getDeviceCount() == 2
        with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidDevice"):
            cupy.cuda.Device(2).use()


def test_without_a_visible_device_nothing_works():
    with virtual(listed="") as cupy:
        assert not cupy.cuda.is_available()
        with pytest.raises(CUDARuntimeError, match="cudaErrorNoDevice: no CUDA-capable device is"):
            cupy.zeros(3)


def test_bytes_are_counted_in_pieces_of_512_as_long_as_an_array_lives(cupy):
    a = cupy.zeros(1, np.float32)
    with cupy.cuda.Device(2):
        b = cupy.zeros(129, np.float32)  # 516 bytes
        view = b[:2]
    assert bytes_on(cupy) == [512, 0, 1024, 0]
    del b
    gc.collect()
    assert bytes_on(cupy) == [512, 0, 1024, 0]  # the view keeps the memory
    del view, a
    gc.collect()
    assert bytes_on(cupy) == [0, 0, 0, 0]


def test_numbers_are_those_of_numpy(cupy):
    host = np.random.default_rng(0).normal(size=(3, 4))
    a = cupy.asarray(host)
    b = (cupy.exp(a).dot(a.T) / 3).mean(axis=0)
    assert b.get().tolist() == (np.exp(host).dot(host.T) / 3).mean(axis=0).tolist()
    assert [float(row.sum()) for row in a] == [float(row.sum()) for row in host]
    assert cupy.get_array_module(a) is cupy
    assert cupy.get_array_module(host) is np


def test_a_driver_that_cannot_be_is_refused():
    for fields, words in (({"cupy": 9}, "CuPy 7 and 13"), ({"n_physical": 0}, "at least one")):
        with pytest.raises(ValueError, match=words), virtual(**fields):
            pass
