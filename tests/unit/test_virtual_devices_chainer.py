"""Chainer on virtual devices: its own code, its own errors, and the same numbers as on the CPU."""

import inspect
import warnings
from pathlib import Path

import chainer
import chainer.functions as F
import chainer.links as L
import numpy as np
import pytest

from allhands.train import virtual_gpu
from allhands.train.virtual_gpu import bytes_on, kernels, virtual

CHAINER = Path(chainer.__file__).parent


@pytest.fixture
def cupy():
    with virtual() as library:
        yield library


def train(specifier, activation, optimizer):
    """Losses of five steps, and the model."""
    rng = np.random.default_rng(0)
    device = chainer.get_device(specifier)
    device.use()
    model = chainer.Sequential(
        L.Linear(4, 8, initialW=rng.normal(size=(8, 4))),
        activation,
        L.Linear(8, 2, initialW=rng.normal(size=(2, 8))),
    ).to_device(device)
    rule = optimizer().setup(model)
    losses = []
    for _ in range(5):
        x, t = device.send([rng.normal(size=(6, n)).astype("f") for n in (4, 2)])
        loss = F.mean_squared_error(model(x), t)
        model.cleargrads()
        loss.backward()
        rule.update()
        losses.append(float(loss.array))
    return losses, model


@pytest.mark.parametrize("optimizer", ["Adam", "SGD", "MomentumSGD"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_training_gives_the_numbers_of_the_cpu(cupy, optimizer, activation):
    settings = (getattr(F, activation), getattr(chainer.optimizers, optimizer))
    there, model = train("@cupy:2", *settings)
    here, reference = train("@numpy", *settings)
    assert there == pytest.approx(here, rel=1e-5)
    for param, other in zip(model.params(), reference.params(), strict=True):
        assert param.array.device.id == param.grad.device.id == 2
        np.testing.assert_allclose(param.array.get(), other.array, rtol=1e-4, atol=1e-6)
    assert bytes_on(cupy)[2] > 0
    assert bytes_on(cupy)[0] == bytes_on(cupy)[1] == bytes_on(cupy)[3] == 0


def test_cpu_and_gpu_in_one_function_is_chainers_own_type_error(cupy):
    model = L.Linear(4, 2).to_device("@cupy:0")
    with pytest.raises(TypeError) as refused:
        model(np.zeros((1, 4), "f"))
    assert str(refused.value) == (
        "incompatible array types are mixed in the forward input (LinearFunction).\n"
        "Actual: <class 'numpy.ndarray'>, <class 'cupy.ndarray'>, <class 'cupy.ndarray'>"
    )


def test_to_gpu_leaves_alone_what_is_on_a_gpu_and_to_device_moves_it(cupy):
    model = L.Linear(4, 2)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model.to_gpu()
        model.to_gpu(3)
    said = {str(each.message) for each in heard if each.category is RuntimeWarning}
    assert len(said) == 1
    assert said.pop().startswith(
        "You are trying to transfer a DeviceResident to GPU-3 which is already on GPU-0.\n"
        "`DeviceResident.to_gpu` does nothing if the DeviceResident is already on GPU."
    )
    assert model.W.array.device.id == 0
    model.to_device("@cupy:3")
    assert model.W.array.device.id == 3
    model.to_cpu()
    assert isinstance(model.W.array, np.ndarray)


def test_chainers_function_to_gpu_does_move_an_array_between_gpus(cupy):
    """Only the method of a link leaves it alone: chainer/backends/cuda.py, `_array_to_gpu`."""
    array = chainer.backends.cuda.to_gpu(np.zeros(3, "f"), 1)
    assert array.device.id == 1
    assert chainer.backends.cuda.to_gpu(array, 2).device.id == 2


def test_adams_state_is_born_beside_its_parameter_wherever_setup_was_called(cupy):
    model = L.Linear(4, 2)
    optimizer = chainer.optimizers.Adam().setup(model)
    model.to_device("@cupy:1")
    F.sum(model(chainer.get_device("@cupy:1").send(np.ones((1, 4), "f")))).backward()
    optimizer.update()  # the current device is 0: Chainer goes to the parameter's
    assert {array.device.id for array in model.W.update_rule.state.values()} == {1}


def test_an_error_comes_from_the_line_of_chainer_where_it_comes_with_cupy(cupy):
    """cuBLAS asks nothing, so the first kernel speaks: `y += bias`."""
    model = L.Linear(4, 2).to_device("@cupy:0")
    cupy.cuda.Device(1).use()
    with pytest.raises(ValueError, match="resides") as refused:
        model(cupy.ones((1, 4), "f"))
    chain = [entry for entry in refused.traceback if "linear.py" in str(entry.path)]
    assert str(chain[-1].statement).strip() == "y += bias"


def test_a_kernel_that_is_not_known_is_named(cupy):
    array = cupy.ones((2, 3), "f")
    with pytest.raises(NotImplementedError, match=r"do not know Chainer's GPU kernel '\w+'"):
        F.elu(array)


def test_the_names_of_the_kernels_are_those_of_chainers_sources():
    sources = [*CHAINER.glob("optimizers/*.py"), *CHAINER.glob("functions/activation/*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert [name for name in kernels.UPDATES | kernels.VALUES if f"'{name}'" not in text] == []


def test_chainer_is_as_before_when_the_block_ends():
    cuda = chainer.backends.cuda
    before = (cuda.available, cuda.cupy, cuda.ndarray, cuda.elementwise, cuda.GpuDevice.xp)
    types = chainer.get_array_types()
    with virtual():
        assert cuda.available
        assert len(chainer.get_array_types()) == len(types) + 1
    assert (cuda.available, cuda.cupy, cuda.ndarray, cuda.elementwise, cuda.GpuDevice.xp) == before
    assert chainer.get_array_types() == types


def test_a_second_block_does_not_meet_the_first_ones_devices():
    """Chainer keeps Adam's kernel in a class, for good."""
    for number in (1, 3):
        with virtual() as cupy:
            train(f"@cupy:{number}", F.tanh, chainer.optimizers.Adam)
            assert [gpu for gpu, used in enumerate(bytes_on(cupy)) if used] in ([], [number])


def test_gpus_gives_virtual_devices_where_no_gpu_is(monkeypatch):
    monkeypatch.setattr(virtual_gpu.devices, "gpu_is_usable", lambda: False)
    with virtual() as library:  # so that Chainer is put back
        assert virtual_gpu.gpus(2) is library
        chainer.backends.cuda.cupy = object()
        made = virtual_gpu.gpus(8)
        assert made.cuda.runtime.getDeviceCount() == 8
        assert virtual_gpu.gpus(8) is made


def test_what_is_left_out_is_said():
    said = virtual_gpu.what_is_modelled()
    assert all(word in said for word in ("model", "streams", "memory", "NCCL", "peer access"))
    assert inspect.getdoc(virtual_gpu.driver).startswith("What does a CUDA driver know?")
