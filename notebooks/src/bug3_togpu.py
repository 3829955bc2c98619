# %% [markdown]
# # Bug 3: everything landed on GPU 0
#
# **Aim.** Put device selection, `to_gpu` and tensor creation in the right order, and see where every array lies.
#
# **You need** lab 1; lab 2 helps. No GPU: without one, this lab runs on **virtual devices**. It takes about 45
# minutes.
#
# | word | meaning |
# |---|---|
# | rank | one of the N processes of a parallel program |
# | `comm.intra_rank` | number of this rank on its node (machine), from 0 |
# | device, GPU | `cupy.cuda.Device(2)`; Chainer writes `@cupy:2`. The CPU is `@numpy` |
# | current device | the one where this process works until you choose another |

# %%
import chainer
import chainermn
import numpy as np

from allhands.grade.desk import Desk
from allhands.train.faults.bug3_togpu import born
from allhands.train.faults.readings import readings
from allhands.train.on_gpus import on_gpus, on_virtual_gpus
from allhands.train.on_gpus import where_is as package_where_is
from allhands.train.on_ranks import on_ranks
from allhands.train.virtual_gpu import gpus, what_is_modelled

desk = Desk("bug3_togpu")
cupy = gpus(4)
print(
    what_is_modelled()
    if hasattr(cupy, "is_virtual")
    else "This machine has real GPUs for this lab."
)

# %% [markdown]
# `gpus(4)` returns CuPy where four GPUs are usable, and the virtual devices elsewhere. All programs below are the
# same in both cases. Texts of errors are those of CuPy 13 and Chainer 7.
#
# ## 1. The current device
#
# A process has one **current device**. At the beginning it is device 0. `use()` changes it, and `with` changes it
# for a block.
#
# **Predict:** what are the three numbers?

# %%
print(cupy.cuda.Device().id)
cupy.cuda.Device(3).use()
print(cupy.cuda.Device().id)
with cupy.cuda.Device(1):
    print(cupy.cuda.Device().id)
cupy.cuda.Device(0).use()
# > 0
# > 3
# > 1
# = <CUDA Device 0>

# %% [markdown]
# ### Exercise: `births`
#
# An array lies on one device. Read this program, and do not run it yet:
#
# ```python
# def born(cupy):                        # device 0 is current
#     a = cupy.zeros(3)
#     cupy.cuda.Device(2).use()
#     b = cupy.zeros(3)
#     with cupy.cuda.Device(1):
#         c = cupy.zeros(3)
#         d = b.copy()
#     e = c[:2]
#     f = cupy.zeros_like(a)
# ```
#
# On which device does each of the six lie? Predict, and let the check run the program.

# %% exercise="births"
### BEGIN SOLUTION
predicted = {"a": 0, "b": 2, "c": 1, "d": 1, "e": 1, "f": 2}
### END SOLUTION
predicted

# %% check="births"
desk.check("births", predicted)

# %% [markdown]
# And the same by the program itself:

# %%
with cupy.cuda.Device(0):
    places = {name: array.device.id for name, array in born(cupy).items()}
cupy.cuda.Device(0).use()
print(places)
# > {'a': 0, 'b': 2, 'c': 1, 'd': 1, 'e': 1, 'f': 2}

# %% [markdown]
# Copying from device to device always works. **Computing** does not: CuPy starts a kernel on the current device, and
# asks first whether its arrays lie there.
#
# **Predict:** `a` is on device 0, and device 1 is current. What happens?

# %%
a = cupy.zeros(3)
with cupy.cuda.Device(1):
    try:
        a + 1
    except ValueError as error:
        print(error)

# %% [markdown]
# Remember this message: it names both devices. CuPy 7 and older say it in other words; further down you meet these
# too. (Your GPUs are real, and you see a warning in its place? They can read each other's memory: section 4.)
#
# ## 2. A tool: where is my model?
#
# A model is many arrays. `print(model.W)` shows numbers, and no place. So first we build a tool.
#
# ### Exercise: `where_is`


# %% exercise="where_is"
def where_is(model):
    """The device of every array of a model, by its path: {"/l1/W": "@cupy:1", "/scale": "@numpy"}.

    The arrays of a link are its attributes: Parameters (their `.array`), and plain arrays, whether
    they are registered with the link or not. `model.namedlinks()` gives the model itself (path "/")
    and all links in it. A parameter that has no array yet is left out.
    """
    ### SOLUTION FROM allhands.train.on_gpus:where_is


# %% check="where_is"
desk.check("where_is", where_is)

# %%
where_is = desk.carry_on("where_is", where_is, package_where_is)
print(where_is(chainer.links.Linear(4, 2).to_device("@cupy:3")))
# > From here on the notebook uses your `where_is`.
# > {'/W': '@cupy:3', '/b': '@cupy:3'}

# %% [markdown]
# ## 3. Four ranks
#
# The first lines of a parallel program, as one often reads them:
#
# ```python
# def first_lines(comm, cupy):
#     model = chainer.links.Linear(4, 2)
#     model.to_gpu()
#     chainer.get_device(f"@cupy:{comm.intra_rank}").use()
#     x = cupy.ones((8, 4), dtype="float32")
#     y = model(x)
# ```
#
# All lines look right. `on_gpus` runs such a program on four ranks, and tells what each of them said, and how many
# bytes it has on each GPU. (Without GPUs the ranks are **rehearsed**: one after the other, in this process.)
#
# **Predict:** how many of the four ranks raise? Which?

# %%
given = readings("bug3_togpu:first_lines").faulty
print(on_gpus(given))
# > rank 0: done
# > rank 1: ValueError: The device where the array resides (0) is different from the current device (1). Peer access is unavailable between these devices.
# >         at: y = model(x)
# > rank 2: ValueError: The device where the array resides (0) is different from the current device (2). Peer access is unavailable between these devices.
# >         at: y = model(x)
# > rank 3: ValueError: The device where the array resides (0) is different from the current device (3). Peer access is unavailable between these devices.
# >         at: y = model(x)
# > bytes      GPU 0   GPU 1   GPU 2   GPU 3
# > rank 0     3,072       0       0       0
# > rank 1     2,048   1,024       0       0
# > rank 2     2,048       0   1,024       0
# > rank 3     2,048       0       0   1,024
# > 3 of 4 ranks failed.

# %% [markdown]
# The line under an error is the program's own line that raised. Below are the bytes: CuPy hands out memory in pieces of
# 512 bytes. The model is four small arrays (weights, bias, and their gradients): 2,048 bytes. `x` is 512, and so is
# `y`.
#
# ### Exercise: `count`
#
# Three tracebacks of four ranks. What does this number say?
#
# * **a** Three of the four GPUs are out of order.
# * **b** The fault is on all ranks; for rank 0 the wrong device happens to be the right one.
# * **c** Only rank 0 has the model; the others wait for it.
# * **d** Rank 0 has more memory than the others.
#
# Give the letter as `answer`.

# %% exercise="count"
### BEGIN SOLUTION
answer = "b"
### END SOLUTION

# %% check="count"
desk.check("count", answer)

# %% [markdown]
# Now with real ranks under MPI, and with ChainerMN: its first `update()` hands rank 0's parameters to all ranks. Three
# ranks never come to that line.
#
# **Predict:** what becomes of rank 0, which has no error?


# %%
def with_chainermn(comm, first_lines):
    from allhands.train.virtual_gpu import gpus

    model = first_lines(comm, gpus(comm.intra_size))["model"]
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(), comm)
    optimizer.setup(model)
    optimizer.update()


try:
    on_ranks(with_chainermn, given, ranks=4, chainermn=True, time_limit_s=20)
except RuntimeError as error:
    print(str(error).replace("; ", "\n"))

# %% [markdown]
# Rank 0 waits for the others, for ever. Here it was stopped, because the other ranks end the job (the except hook of
# `allhands`, after some seconds). With a hook that ends the job at once, you may read one traceback, or two: lab `bug1`
# is about that. Without any hook the job hangs, with three tracebacks.
#
# ### Exercise: `first_lines`
#
# Put the lines into the right order.


# %% exercise="first_lines"
def first_lines(comm, cupy):
    """The first lines of `main`: choose this rank's GPU, put the model there, compute once.

    Everything must end on GPU `comm.intra_rank`. Returns {"model": ..., "x": ..., "y": ...}.
    """
    ### SOLUTION FROM allhands.train.faults.bug3_togpu:first_lines


# %% check="first_lines"
desk.check("first_lines", first_lines)

# %%
print(on_gpus(first_lines))

# %% [markdown]
# **Tensors made before.** The same fault in another coat: a target, a mask or a table of weights that is made once, at
# the top of the program. The model is all right here. **Predict:** which line raises, and on which ranks?

# %%
print(on_gpus(readings("bug3_togpu:constants").faulty))

# %% [markdown]
# The error stands far from its cause: the loss raises, and the line to mend is the one that made `target`. Read the
# message: it says which GPU the array is on (0), so look for what was made while GPU 0 was current.
#
# ## 4. Wrong, and silent
#
# The same faulty program twice more: with the words of CuPy 7, and on a node whose GPUs **can** read each other's
# memory (peer access, for example over NVLink). This is a switch of the virtual devices.
#
# **Predict:** how many ranks raise now?

# %%
print(on_virtual_gpus(given, cupy=7))

# %%
print(on_virtual_gpus(given, peer_access=True))

# %% [markdown]
# No error any more, with CuPy 13 and such GPUs. A warning, once. Every rank reads the weights from GPU 0, through the
# link between the GPUs, in each step: the answer is right, and the program is slow. Look at the bytes.
#
# It can be more silent still. **Predict:** what is forgotten in this program, and what does the table say?
#
# ```python
# def unchosen(comm, cupy):
#     model = chainer.links.Linear(4, 2)
#     model.to_gpu()
#     x = cupy.ones((8, 4), dtype="float32")
#     y = model(x)
# ```

# %%
print(on_gpus(readings("bug3_togpu:unchosen").faulty))
# > rank 0: done
# > rank 1: done
# > rank 2: done
# > rank 3: done
# > bytes      GPU 0   GPU 1   GPU 2   GPU 3
# > rank 0     3,072       0       0       0
# > rank 1     3,072       0       0       0
# > rank 2     3,072       0       0       0
# > rank 3     3,072       0       0       0
# > 0 of 4 ranks failed.

# %% [markdown]
# No error, no warning, the right answer: and four ranks share GPU 0, while three GPUs do nothing. Counting tracebacks
# finds nothing here. `nvidia-smi` on the node does, and so do the bytes. (NCCL refuses to work like this: it wants one
# GPU for each rank. ChainerMN's `naive` does not care.)
#
# ## 5. All ranks raise
#
# A model with a constant of its own. **Predict** from the code: does it fail on all ranks, on some, or on none?
#
# ### Exercise: `scaled`
#
# Run it as it was given. Then put `print(where_is(model))` above the line that fails, and run it once more: which array
# is not where the others are? Repair it. (On real GPUs each rank is a process of its own: there, write `from
# allhands.train.on_gpus import where_is` into the program as well.)


# %% exercise="scaled"
def scaled(comm, cupy):
    """A model with a constant of its own: y = (W x + b) * scale, with scale = (1, 10).

    All of the model must go with it to the GPU. Returns {"model": ..., "y": ...}.
    """
    ### SOLUTION FROM allhands.train.faults.bug3_togpu:scaled


# %%
print(on_gpus(scaled))

# %% check="scaled"
desk.check("scaled", scaled)

# %% [markdown]
# Two words for two faults:
#
# * `TypeError: incompatible array types are mixed`: CPU and GPU. On **all** ranks, and on a single one too.
# * `ValueError: The device where the array resides (0) is different ...`: GPU and GPU. On **all but rank 0**, and never
#   on a single rank.
#
# ## 6. The device is set twice
#
# One function builds the model, another chooses the device. Both mean well.
#
# ### Exercise: `twice`
#
# Run it as it was given, and read everything that comes out. Then repair it.


# %% exercise="twice"
def twice(comm, cupy):
    """The device is chosen in two places: a function that builds the model, and `main`.

    Keep both places: `build` belongs to somebody else. Returns {"model": ..., "y": ...}.
    """
    ### SOLUTION FROM allhands.train.faults.bug3_togpu:twice


# %%
print(on_gpus(twice))

# %% check="twice"
desk.check("twice", twice)

# %% [markdown]
# ## 7. Which number has my GPU?
#
# Some schedulers set `CUDA_VISIBLE_DEVICES`. It hides GPUs from a process, and **renumbers** the rest:
#
# | `CUDA_VISIBLE_DEVICES` | the process sees | its device 0 is the physical GPU |
# |---|---|---|
# | not set | 0, 1, 2, 3 | 0 |
# | `2` | 0 | 2 |
# | `2,3` | 0, 1 | 2 |
# | empty | nothing | |
#
# "Physical" means here: as CUDA counts, the fastest GPU first. `nvidia-smi` counts by the place on the PCI bus. On a node
# of equal GPUs that is most often the same; with `CUDA_DEVICE_ORDER=PCI_BUS_ID` it is always.
#
# ### Exercise: `choose`
#
# This program chooses by `intra_rank`, as you have learned it. In the cell below each rank is shown one GPU, its own,
# as some Slurm settings do. **Predict:** who raises?


# %% exercise="choose"
def choose(comm, cupy):
    """Make this rank's GPU the current one, whatever the scheduler shows to each rank.

    Some schedulers show all GPUs of the node to all its ranks; then rank `intra_rank` takes GPU
    `intra_rank`. Others show each rank one GPU, its own. Returns {"x": a small array on that GPU}.
    """
    ### SOLUTION FROM allhands.train.faults.bug3_togpu:choose


# %%
print(on_virtual_gpus(choose, visible=["0", "1", "2", "3"]))

# %% check="choose"
desk.check("choose", choose)

# %% [markdown]
# The same trap from the other side: a program reads `CUDA_VISIBLE_DEVICES` itself, and takes the physical number for an
# index (`Device(int(os.environ["CUDA_VISIBLE_DEVICES"])).use()`):

# %%
print(on_virtual_gpus(readings("bug3_togpu:physical").faulty, visible=["0", "1", "2", "3"]))

# %% [markdown]
# Again three of four.
#
# ## 8. The optimizer and the move
#
# One hears: build the optimizer **after** the model has moved. Is it so in Chainer? First the model itself moves:

# %%
model = chainer.links.Linear(4, 2)
optimizer = chainer.optimizers.Adam().setup(model)  # before the move
model.to_device("@cupy:1")
loss = chainer.functions.sum(model(chainer.get_device("@cupy:1").send(np.ones((8, 4), np.float32))))
loss.backward()
optimizer.update()
print({name: array.device for name, array in model.W.update_rule.state.items()})
# > {'m': <CUDA Device 1>, 'v': <CUDA Device 1>}

# %% [markdown]
# No harm: a Parameter stays the same object when it moves, and the optimizer makes its state beside it, at the first
# update. Now a program that keeps the model on the CPU (to save it, say) and moves a **copy**:
#
# ```python
# on_cpu = chainer.links.Linear(4, 2)
# optimizer = chainer.optimizers.SGD(lr=0.1).setup(on_cpu)
# model = on_cpu.copy("copy").to_device(device)
# ```
#
# Ten steps on one batch, faulty and repaired. **Predict:** the loss before, and after?

# %%
both = readings("bug3_togpu:copied")
for name in ("faulty", "repaired"):
    (rank,) = on_gpus(both.named(name), ranks=1).ranks
    print(f"{name:8} loss {rank.kept['before']:.4f} -> {rank.kept['after']:.4f}")
# > faulty   loss 1.0000 -> 1.0000
# > repaired loss 1.0000 -> 0.0000

# %% [markdown]
# The optimizer looks after parameters that nobody uses: silent, on any number of ranks. So the advice is good: choose the
# device, make the model, move it, and **then** hand it to the optimizer.
#
# ## 9. The same on a cluster
#
# ```
# cluster_jobs/submit bug3_togpu --wait        # four ranks, four GPUs of one node: faulty and repaired
# ```
#
# In `handson/bug3_togpu` lies `where.py`, a program to change: it prints what each rank sees and where its model lies.
# Start it as `mpiexec -n 4 python handson/bug3_togpu/where.py`, and put its first lines into your own program.
#
# ## 10. What you saw
#
# * Arrays are born on the current device. **Choose first, then make.**
# * All but rank 0 raise: think of devices. All raise: think of CPU and GPU, or of anything that is no matter of ranks.
# * `to_gpu` does nothing with what is on a GPU already. `to_device` moves it. One place knows the device.
# * CUDA_VISIBLE_DEVICES renumbers from 0. Count what you see.
# * No error is no proof. Look at the bytes on each GPU.

# %%
desk.score()
