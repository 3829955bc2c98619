"""The faults of the lab on devices: each a short program of one rank, `fault(comm, cupy)`.

`comm` tells the rank (`intra_rank` is its number on its node), `cupy` is CuPy or the virtual one.
What a program returns, by name, is what `on_gpus` looks at. The body is the repaired code; the
lines `### FAULT` above it are the faulty one (see `readings.py`).
"""


def born(cupy) -> dict:
    """No fault: where does each of six arrays lie? For the exercise `births`, on three GPUs."""
    a = cupy.zeros(3)
    cupy.cuda.Device(2).use()
    b = cupy.zeros(3)
    with cupy.cuda.Device(1):
        c = cupy.zeros(3)
        d = b.copy()
    e = c[:2]
    f = cupy.zeros_like(a)
    return {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f}


def first_lines(comm, cupy):
    """The first lines of `main`: choose this rank's GPU, put the model there, compute once.

    Everything must end on GPU `comm.intra_rank`. Returns {"model": ..., "x": ..., "y": ...}.
    """
    ### FAULT import chainer
    ### FAULT
    ### FAULT model = chainer.links.Linear(4, 2)
    ### FAULT model.to_gpu()
    ### FAULT chainer.get_device(f"@cupy:{comm.intra_rank}").use()
    ### FAULT x = cupy.ones((8, 4), dtype="float32")
    ### FAULT y = model(x)
    ### FAULT return {"model": model, "x": x, "y": y}
    import chainer

    chainer.get_device(f"@cupy:{comm.intra_rank}").use()
    model = chainer.links.Linear(4, 2)
    model.to_gpu()
    x = cupy.ones((8, 4), dtype="float32")
    y = model(x)
    return {"model": model, "x": x, "y": y}


def constants(comm, cupy):
    """A target that is made once, at the top of the program. Returns {"target", "loss"}."""
    ### FAULT import chainer
    ### FAULT
    ### FAULT target = cupy.zeros((8, 2), dtype="float32")
    ### FAULT chainer.get_device(f"@cupy:{comm.intra_rank}").use()
    ### FAULT model = chainer.links.Linear(4, 2)
    ### FAULT model.to_gpu()
    ### FAULT y = model(cupy.ones((8, 4), dtype="float32"))
    ### FAULT return {"target": target, "loss": chainer.functions.mean_squared_error(y, target)}
    import chainer

    chainer.get_device(f"@cupy:{comm.intra_rank}").use()
    target = cupy.zeros((8, 2), dtype="float32")
    model = chainer.links.Linear(4, 2)
    model.to_gpu()
    y = model(cupy.ones((8, 4), dtype="float32"))
    return {"target": target, "loss": chainer.functions.mean_squared_error(y, target)}


def scaled(comm, cupy):
    """A model with a constant of its own: y = (W x + b) * scale, with scale = (1, 10).

    All of the model must go with it to the GPU. Returns {"model": ..., "y": ...}.
    """
    ### FAULT import chainer
    ### FAULT import numpy as np
    ### FAULT
    ### FAULT class Scaled(chainer.Chain):
    ### FAULT     def __init__(self):
    ### FAULT         super().__init__()
    ### FAULT         with self.init_scope():
    ### FAULT             self.linear = chainer.links.Linear(4, 2)
    ### FAULT         self.scale = np.array([[1, 10]], dtype="float32")
    ### FAULT
    ### FAULT     def forward(self, x):
    ### FAULT         y = self.linear(x)
    ### FAULT         return y * chainer.functions.broadcast_to(self.scale, y.shape)
    ### FAULT
    ### FAULT device = chainer.get_device(f"@cupy:{comm.intra_rank}")
    ### FAULT device.use()
    ### FAULT model = Scaled()
    ### FAULT model.to_device(device)
    ### FAULT y = model(cupy.ones((8, 4), dtype="float32"))
    ### FAULT return {"model": model, "y": y}
    import chainer
    import numpy as np

    class Scaled(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.linear = chainer.links.Linear(4, 2)
            self.add_persistent("scale", np.array([[1, 10]], dtype="float32"))

        def forward(self, x):
            y = self.linear(x)
            return y * chainer.functions.broadcast_to(self.scale, y.shape)

    device = chainer.get_device(f"@cupy:{comm.intra_rank}")
    device.use()
    model = Scaled()
    model.to_device(device)
    y = model(cupy.ones((8, 4), dtype="float32"))
    return {"model": model, "y": y}


def twice(comm, cupy):
    """The device is chosen in two places: a function that builds the model, and `main`.

    Keep both places: `build` belongs to somebody else. Returns {"model": ..., "y": ...}.
    """
    ### FAULT import chainer
    ### FAULT
    ### FAULT def build():
    ### FAULT     model = chainer.links.Linear(4, 2)
    ### FAULT     model.to_gpu()
    ### FAULT     return model
    ### FAULT
    ### FAULT model = build()
    ### FAULT chainer.get_device(f"@cupy:{comm.intra_rank}").use()
    ### FAULT model.to_gpu(comm.intra_rank)
    ### FAULT y = model(cupy.ones((8, 4), dtype="float32"))
    ### FAULT return {"model": model, "y": y}
    import chainer

    def build():
        model = chainer.links.Linear(4, 2)
        model.to_gpu()
        return model

    model = build()
    device = chainer.get_device(f"@cupy:{comm.intra_rank}")
    device.use()
    model.to_device(device)
    y = model(cupy.ones((8, 4), dtype="float32"))
    return {"model": model, "y": y}


def choose(comm, cupy):
    """Make this rank's GPU the current one, whatever the scheduler shows to each rank.

    Some schedulers show all GPUs of the node to all its ranks; then rank `intra_rank` takes GPU
    `intra_rank`. Others show each rank one GPU, its own. Returns {"x": a small array on that GPU}.
    """
    ### FAULT cupy.cuda.Device(comm.intra_rank).use()
    ### FAULT return {"x": cupy.zeros(4)}
    n_gpus = cupy.cuda.runtime.getDeviceCount()
    cupy.cuda.Device(comm.intra_rank % n_gpus).use()
    return {"x": cupy.zeros(4)}


def physical(comm, cupy):
    """The same, by a program that reads CUDA_VISIBLE_DEVICES itself. Returns {"x": ...}."""
    ### FAULT import os
    ### FAULT
    ### FAULT mine = int(os.environ["CUDA_VISIBLE_DEVICES"])
    ### FAULT cupy.cuda.Device(mine).use()
    ### FAULT return {"x": cupy.zeros(4)}
    cupy.cuda.Device(0).use()
    return {"x": cupy.zeros(4)}


def unchosen(comm, cupy):
    """A program that names the model's device. Returns {"model", "x", "y"}."""
    ### FAULT import chainer
    ### FAULT
    ### FAULT model = chainer.links.Linear(4, 2)
    ### FAULT model.to_gpu()
    ### FAULT x = cupy.ones((8, 4), dtype="float32")
    ### FAULT return {"model": model, "x": x, "y": model(x)}
    import chainer

    device = chainer.get_device(f"@cupy:{comm.intra_rank}")
    device.use()
    model = chainer.links.Linear(4, 2)
    model.to_device(device)
    x = cupy.ones((8, 4), dtype="float32")
    return {"model": model, "x": x, "y": model(x)}


def copied(comm, cupy):
    """Ten steps of training on one batch. Returns {"before": loss, "after": loss}."""
    ### FAULT import chainer
    ### FAULT
    ### FAULT device = chainer.get_device(f"@cupy:{comm.intra_rank}")
    ### FAULT device.use()
    ### FAULT on_cpu = chainer.links.Linear(4, 2, initialW=0)
    ### FAULT optimizer = chainer.optimizers.SGD(lr=0.1).setup(on_cpu)
    ### FAULT model = on_cpu.copy("copy").to_device(device)
    ### FAULT x = cupy.ones((8, 4), dtype="float32")
    ### FAULT target = cupy.ones((8, 2), dtype="float32")
    ### FAULT losses = []
    ### FAULT for _ in range(10):
    ### FAULT     loss = chainer.functions.mean_squared_error(model(x), target)
    ### FAULT     model.cleargrads()
    ### FAULT     loss.backward()
    ### FAULT     optimizer.update()
    ### FAULT     losses.append(float(loss.array))
    ### FAULT return {"before": losses[0], "after": losses[-1]}
    import chainer

    device = chainer.get_device(f"@cupy:{comm.intra_rank}")
    device.use()
    model = chainer.links.Linear(4, 2, initialW=0)
    model.to_device(device)
    optimizer = chainer.optimizers.SGD(lr=0.1).setup(model)
    x = cupy.ones((8, 4), dtype="float32")
    target = cupy.ones((8, 2), dtype="float32")
    losses = []
    for _ in range(10):
        loss = chainer.functions.mean_squared_error(model(x), target)
        model.cleargrads()
        loss.backward()
        optimizer.update()
        losses.append(float(loss.array))
    return {"before": losses[0], "after": losses[-1]}
