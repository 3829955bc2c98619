# %% [markdown]
# # Lab 2: many ranks, the same answer
#
# **Aim.** Turn lab 1's program into a ChainerMN data-parallel program that gives the same answer on N
# ranks, and measure its speed-up honestly.
#
# **You need** lab 1. No GPU and no cluster: two CPU cores are enough, and the ranks are processes of this
# machine. It takes about 120 minutes.
#
# Five words first:
#
# * A **rank** is one of N processes that work together. Here each has a core of this machine; on a cluster
#   each has a GPU, its **device**.
# * A **shard** is the part of the samples that one rank trains on.
# * **Activations** are what one layer of a model hands to the next.
# * In an **all-reduce** each rank brings an array, and each gets the sum of all.
# * **Exchange** is any sending between ranks.
#
# ![Synchronous and asynchronous, parameter server and peer to peer, data and model parallel](../slides/figures/lab2_dataparallel_ways.svg)
#
# The picture has six more, in three pairs:
#
# * **Data parallel**: each rank has the whole model and a shard. **Model parallel**: each rank has a part of
#   the model.
# * **Synchronous**: all wait for all, in each step. **Asynchronous**: nobody waits, and gradients may be
#   old when they arrive.
# * **Parameter server**: the parameters live in one place. **Peer to peer**: all ranks are equal, and
#   exchange gradients with each other.
#
# This lab is data parallel, synchronous, peer to peer. It is what ChainerMN, Horovod and PyTorch's DDP do.
# Other labs come to the other words.
#
# | symbol | in code | meaning |
# |---|---|---|
# | $N$ | `comm.size` | number of ranks |
# | $r$ | `comm.rank` | number of this rank, from 0 |
# | $s$ | `n_bytes` | size of a message or of an array, in bytes |
# | $\alpha$ | `measured.wire.latency_s` | start-up of one message between two ranks |
# | $\beta$ | `measured.wire.s_per_byte` | time of one byte between two ranks |
# | $a$, $b$ | `cost.startup_s`, `cost.s_per_byte` | the same for a whole all-reduce: $T(s) = a + b s$ |
# | $S$ | `speedups["weak"][1].median` | speed-up: throughput on $N$ ranks / throughput on 1 rank |
# | $E$ | `speedups["weak"][1].efficiency` | $S / N$ |

# %%
import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all ranks of this notebook are CPU ranks

import inspect
import tempfile
from pathlib import Path

import chainer
import chainermn
import numpy as np

from allhands import launch
from allhands.grade.desk import Desk
from allhands.train import all_reduce, eight_edits, parallel
from allhands.train.on_ranks import on_ranks
from allhands.train.rehearsal import rehearse

desk = Desk("lab2_dataparallel")
temporary = tempfile.TemporaryDirectory(prefix="lab2-")  # goes with the kernel
folder = Path(temporary.name)

# %% [markdown]
# ## 1. Ranks
#
# MPI starts the same program N times. Each process is a **rank**, and has a number. All that differs
# between them is this number.
#
# `on_ranks` writes a function to a file, starts ranks that run it, waits until all have ended, and prints
# what they said.
#
# **Predict:** what do two ranks print?


# %%
def hello(comm):
    print(f"rank {comm.rank} of {comm.size} says hello")


on_ranks(hello, ranks=2)
# > [0] rank 0 of 2 says hello
# > [1] rank 1 of 2 says hello

# %% [markdown]
# On a terminal the two lines may come in any order, and even mixed. Here they are sorted by rank.
#
# **A trap.** A program that is started with the wrong `mpiexec` often runs without an error: each of the
# N processes believes to be rank 0 of 1, and does all the work alone. So check the size of the world first
# of all. `allhands.launch` does, and `launch.expect_world(comm)` does it in a program of yours.
#
# Ranks do not share memory. What one rank knows, another knows only from a **message**, or from a
# **collective**: a call that all ranks make together. The most important one is the all-reduce.

# %% [markdown]
# ## 2. All-reduce by hand
#
# The simple way: rank 0 gathers all arrays, adds them, and sends the sum to everyone.

# %%
print(inspect.getsource(all_reduce.gather_broadcast))

# %% [markdown]
# `rehearse` plays a program of N ranks without MPI, in this process, and writes down all messages. A message
# takes one **step**. In a step a rank can send one message, and receive one.
#
# **Predict:** four ranks. How many steps? Who is busy all the time?


# %%
def show_messages(done):
    for step in range(1, done.n_steps + 1):
        sent = [message for message in done.messages if message.step == step]
        words = [f"{one.source} -> {one.dest} ({one.n_bytes} bytes)" for one in sent]
        print(f"step {step}: {', '.join(words)}")


four = [np.full(4, rank, np.float32) for rank in range(4)]
show_messages(rehearse(all_reduce.gather_broadcast, four))
# > step 1: 1 -> 0 (16 bytes)
# > step 2: 2 -> 0 (16 bytes)
# > step 3: 3 -> 0 (16 bytes)
# > step 4: 0 -> 1 (16 bytes)
# > step 5: 0 -> 2 (16 bytes)
# > step 6: 0 -> 3 (16 bytes)

# %% [markdown]
# All goes through rank 0, one after the other: $2(N-1)$ steps of all bytes. With 64 ranks that is 126
# times the whole gradient.
#
# Better: a **ring**. The array is cut into N chunks. In each step every rank sends one chunk to the next
# rank and receives one from the rank before. So all are busy, all the time.
#
# * **Reduce-scatter**: N−1 steps. A chunk goes around and grows: each rank adds its own part. In the end
#   each rank holds the whole sum of one chunk.
# * **All-gather**: N−1 steps. The finished chunks go around once more.
#
# ![Four ranks: three steps of reduce-scatter, three steps of all-gather](../slides/figures/lab2_dataparallel_ring.svg)
#
# ### Exercise: `ring`
#
# `comm` has `rank`, `size`, `Send(array, dest)`, `Recv(array, source)` and `Sendrecv(array, dest,
# recvbuf=..., source=...)`, as mpi4py has them. A buffer is a NumPy array.


# %% exercise="ring"
def ring(comm, array):
    """The sum of the arrays of all ranks, on all ranks: a new array, of the same shape.

    Cut the flat array into N chunks with `np.array_split`. Send to rank + 1, receive from rank - 1,
    both modulo N, and in one `Sendrecv`.

    Steps t = 0 .. N-2: send chunk rank - t; receive chunk rank - t - 1, and add it to your own.
    Then you hold the whole sum of chunk rank + 1.
    Steps t = 0 .. N-2: send chunk rank + 1 - t; receive chunk rank - t, in place of your own.
    All chunk numbers are modulo N. `array` itself must not change.
    """
    ### SOLUTION FROM allhands.train.all_reduce:ring


# %% [markdown]
# The check rehearses your function first, on 1 to 5 ranks. If ranks wait for each other for ever, it says
# who waits for whom. Then it starts real ranks, and compares with MPI's own all-reduce.

# %% check="ring"
desk.check("ring", ring)

# %%
ring = desk.carry_on("ring", ring, all_reduce.ring)
show_messages(rehearse(ring, four))
# > From here on the notebook uses your `ring`.
# > step 1: 0 -> 1 (4 bytes), 1 -> 2 (4 bytes), 2 -> 3 (4 bytes), 3 -> 0 (4 bytes)
# > step 2: 0 -> 1 (4 bytes), 1 -> 2 (4 bytes), 2 -> 3 (4 bytes), 3 -> 0 (4 bytes)
# > step 3: 0 -> 1 (4 bytes), 1 -> 2 (4 bytes), 2 -> 3 (4 bytes), 3 -> 0 (4 bytes)
# > step 4: 0 -> 1 (4 bytes), 1 -> 2 (4 bytes), 2 -> 3 (4 bytes), 3 -> 0 (4 bytes)
# > step 5: 0 -> 1 (4 bytes), 1 -> 2 (4 bytes), 2 -> 3 (4 bytes), 3 -> 0 (4 bytes)
# > step 6: 0 -> 1 (4 bytes), 1 -> 2 (4 bytes), 2 -> 3 (4 bytes), 3 -> 0 (4 bytes)

# %% [markdown]
# As many steps as before, but each with a quarter of the bytes.
#
# The ring needs many steps. For a small message only the number of steps counts. **Recursive doubling**
# needs few: first exchange everything with your neighbour, then with the rank at distance 2, then at
# distance 4. What you know doubles each time.
#
# ### Exercise: `doubling`


# %% exercise="doubling"
def doubling(comm, array):
    """The sum of the arrays of all ranks, on all ranks: a new array, of the same shape.

    Let P be the largest power of two that is not above N. At distance d = 1, 2, 4, ... < P exchange
    all that you have with rank ^ d (the rank whose number differs in that one bit), and add.

    If N > P: a rank r >= P first sends its array to rank r - P, which adds it before the exchange
    begins; in the end it gets the sum from there. `array` itself must not change.
    """
    ### SOLUTION FROM allhands.train.all_reduce:recursive_doubling


# %% check="doubling"
desk.check("doubling", doubling)

# %% [markdown]
# The three side by side. **Predict** the row of 8 ranks before you run: steps, and bytes that the busiest
# rank sends, if the array has 1000 bytes. Then look at 64 ranks.

# %%
doubling = desk.carry_on("doubling", doubling, all_reduce.recursive_doubling)
by_hand = {"gather-broadcast": all_reduce.gather_broadcast, "ring": ring, "doubling": doubling}

for n_ranks in (2, 3, 8, 64):
    for name, function in by_hand.items():
        done = rehearse(function, [np.ones(1000, np.int8)] * n_ranks)
        most = max(one.sent_bytes for one in done.traffic)
        print(f"{n_ranks:2} ranks, {name:16}: {done.n_steps:3} steps, {most:6,} bytes")
# > From here on the notebook uses your `doubling`.
# >  2 ranks, gather-broadcast:   2 steps,  1,000 bytes
# >  2 ranks, ring            :   2 steps,  1,000 bytes
# >  2 ranks, doubling        :   1 steps,  1,000 bytes
# >  3 ranks, gather-broadcast:   4 steps,  2,000 bytes
# >  3 ranks, ring            :   4 steps,  1,334 bytes
# >  3 ranks, doubling        :   3 steps,  2,000 bytes
# >  8 ranks, gather-broadcast:  14 steps,  7,000 bytes
# >  8 ranks, ring            :  14 steps,  1,750 bytes
# >  8 ranks, doubling        :   3 steps,  3,000 bytes
# > 64 ranks, gather-broadcast: 126 steps, 63,000 bytes
# > 64 ranks, ring            : 126 steps,  1,970 bytes
# > 64 ranks, doubling        :   6 steps,  6,000 bytes

# %% [markdown]
# The ring sends the fewest bytes, doubling takes the fewest steps. Which is faster depends on the size
# $s$ of the message. In theory (without the time of adding):
#
# $$T_\text{ring}(s) = 2(N-1)\,\alpha + 2\,\tfrac{N-1}{N}\,\beta s
# \qquad T_\text{doubling}(s) = \log_2 N \,(\alpha + \beta s)$$
#
# The second holds if N is a power of two.
#
# Now measure. Two ranks of this machine time your two functions, gather-broadcast and MPI's own all-reduce,
# from 4 bytes to 4 MB; and a single message between them, which gives $\alpha$ and $\beta$.
#
# **Predict:** with 2 ranks, which has the longer start-up, the ring or doubling? By what factor?


# %%
def time_them(comm, ring, doubling):
    from allhands.train import all_reduce

    mine = {"ring": ring, "recursive doubling": doubling}
    return all_reduce.measured(comm, {**all_reduce.ALGORITHMS, **mine})


measured = on_ranks(time_them, ring, doubling, ranks=2, time_limit_s=120)[0]
measured.figure()

# %% [markdown]
# ### Exercise: `link`
#
# Fit $T(s) = a + b s$ to the ring and to doubling, from 4 bytes to 1.1 MB: the gradient of lab 1's model has
# this size. `measured.sizes_bytes` and `measured.times_s["ring"]` are the table. Give
#
# `link = {"ring us": ..., "doubling us": ..., "theory us": ...}`
#
# The first two are the fitted start-ups $a$. The third is what theory says for the ring:
# `measured.predicted("ring").startup_s`. All three in microseconds.

# %%
from allhands.mgwfbp.fit import fit

WINDOW = (4, 1.1e6)

# %% exercise="link"
### BEGIN SOLUTION
link = {
    "ring us": 1e6
    * fit(measured.sizes_bytes, measured.times_s["ring"], window_bytes=WINDOW).cost.startup_s,
    "doubling us": 1e6
    * fit(
        measured.sizes_bytes, measured.times_s["recursive doubling"], window_bytes=WINDOW
    ).cost.startup_s,
    "theory us": 1e6 * measured.predicted("ring").startup_s,
}
### END SOLUTION
link

# %% check="link"
desk.check("link", link, measured)

# %%
print(measured)

# %% [markdown]
# Theory gets the order right: the ring's start-up is the longer one. But all start-ups are longer than theory
# says. It counts messages, and knows nothing of Python: each step cuts arrays, makes new ones and calls
# functions. MPI's own all-reduce and NCCL do the same steps in C.
#
# The same, recorded on two cores that had nothing else to do:
#
# ![All-reduces by hand and MPI's own on two ranks](../slides/figures/lab2_dataparallel_allreduce.svg)
#
# From here on we use MPI's. You know now what it does.

# %% [markdown]
# ## 3. From one device to N ranks
#
# This is lab 1's program as a loop.

# %%
print(inspect.getsource(eight_edits.one_device))

# %% [markdown]
# Run it: a small model, batch 100, some seconds. Keep the figures in mind. Two ranks with batch 50 will have
# to repeat them.

# %%
from allhands import config as configs

twice = configs.override(eight_edits.small(), ["batch_size=100", "learning_rate=6e-3"])
eight_edits.one_device(twice, epochs=2, out=folder / "one")

# %% [markdown]
# Data parallel means: one more thing between backward and update.
#
# 1. All ranks have the same parameters.
# 2. Each takes its own batch, and computes its own gradient.
# 3. An all-reduce makes the **mean** of all gradients, on all ranks.
# 4. All make the same update. So 1. holds again.
#
# ![One step of two ranks: batch, forward, backward, communicate, update](../slides/figures/lab2_dataparallel_steps.svg)
#
# Lab 1's loss is divided by the number of sentences. So the mean over N batches of 64 is the loss of one batch
# of 64 N sentences. **N ranks with batch B are one rank with batch N·B.** This is what we shall demand.
#
# The same program on many ranks. The numbers are the **eight edits**. What `edits` holds, you write now, one
# small function after the other. (`parallel.weight` is given, for batches of unequal size.)

# %%
print(inspect.getsource(eight_edits.many_ranks))

# %% [markdown]
# ### Edit 1: a communicator. Edit 2: a device
#
# ChainerMN's **communicator** knows all ranks. The one named `naive` speaks between CPUs, `pure_nccl` between
# GPUs. It also knows on which **node** (machine) a rank is: rank 5 of two nodes with four ranks each is number 1 of
# its node, `comm.intra_rank`.
#
# A node numbers its own GPUs, from 0 on. Each rank takes one, before any array is made.
#
# ### Exercise: `devices`
#
# On this machine you get `naive` and `@numpy`. The check plays two nodes with two GPUs each.


# %% exercise="devices"
def communicator():
    """Edit 1. ChainerMN's communicator of all ranks: "pure_nccl" if there is a GPU, else "naive".

    `chainermn.create_communicator(name)` makes it.
    """
    from allhands.train.device import gpu_is_usable

    ### BEGIN SOLUTION
    return chainermn.create_communicator("pure_nccl" if gpu_is_usable() else "naive")
    ### END SOLUTION


def device_of(comm):
    """Edit 2. The name of this rank's device: "@cupy:0", "@cupy:1", ...; without a GPU "@numpy"."""
    from allhands.train.device import gpu_is_usable

    ### BEGIN SOLUTION
    return f"@cupy:{comm.intra_rank}" if gpu_is_usable() else "@numpy"
    ### END SOLUTION


# %% check="devices"
desk.check("devices", communicator, device_of)

# %%
communicator, device_of = desk.carry_on(
    "devices", (communicator, device_of), (parallel.communicator, parallel.device_of)
)

# %% [markdown]
# ### Edit 3: a shard
#
# ChainerMN has `scatter_dataset` to give each rank its shard.
#
# **Predict:** five samples on two ranks. Who gets what?


# %%
def scatter(comm):
    print(f"rank {comm.rank} of {comm.size}:", list(chainermn.scatter_dataset(range(5), comm)))


on_ranks(scatter, ranks=2, chainermn=True)
# > [0] rank 0 of 2: [0, 1, 2]
# > [1] rank 1 of 2: [2, 3, 4]

# %% [markdown]
# Sample 2 is there twice: `scatter_dataset` makes all shards equally long. Then the mean over the ranks is not
# the mean over the samples any more. And nothing was shuffled: if a file is sorted, each rank sees another
# kind of sentence. (Both are only its defaults: it has the options `force_equal_length` and `shuffle`.)
#
# ### Exercise: `shard`
#
# Do better.


# %% exercise="shard"
def shard(n_samples, comm, seed):
    """The sample numbers of this rank: an array of whole numbers, shuffled.

    Every number from 0 to n_samples - 1 is on exactly one rank. The ranks' shares differ by one
    sample at most. The same seed gives the same shards. Without any communication.
    """
    ### SOLUTION FROM allhands.train.parallel:shard


# %% check="shard"
desk.check("shard", shard)

# %%
shard = desk.carry_on("shard", shard, parallel.shard)

# %% [markdown]
# Unequal shards ask for two more things, and the program above does both. All ranks must make the same number of
# steps: a rank with one step more would wait for ever. And a rank with a smaller batch must count less in the mean:
# its loss is multiplied by a weight.
#
# ### Edit 4: a multi-node optimizer
#
# `chainermn.create_multi_node_optimizer(optimizer, comm)` wraps any optimizer of Chainer. Its `update()` takes the
# mean of the gradients over all ranks first.
#
# Two things to know. Its very first `update()` learns nothing: it hands rank 0's parameters to all ranks. And it
# takes the **mean**, so you must not divide again. You write this edit below, with some others.
#
# ### Edit 5: an evaluator
#
# Each rank translates its part of the held-out sentences, because that is faster. Then somebody must put the
# parts together.
#
# **A trap.** `chainermn.create_multi_node_evaluator(evaluator, comm)` does it, and takes the mean over the ranks of
# whatever the evaluator reports: of ratios, and of counts too. That is right only if all ranks have as many
# sentences and tokens, and for BLEU never. So we send counts, and add them up.
#
# ### Exercise: `metrics`
#
# The function below has a fault, and the example shows it: rank 0 has 10 sentences, all right; rank 1 has 2, all
# wrong. (`comm` is mpi4py's here. ChainerMN's has it inside, as `comm.mpi_comm`.)


# %% exercise="metrics"
def metrics(counts, comm):
    """Exact match (percent) and loss per token over the sentences of all ranks, on all ranks.

    counts: what this rank has counted: `n_right`, `n_sentences`, `loss` (a sum over tokens),
    `n_tokens`. Returns {"exact_match": ..., "loss_per_token": ...}.
    """
    everyone = comm.allgather(counts)  # a list: the counts of rank 0, of rank 1, ...
    ### BEGIN SOLUTION
    total = {name: sum(one[name] for one in everyone) for name in counts}
    return {
        "exact_match": 100 * total["n_right"] / total["n_sentences"],
        "loss_per_token": total["loss"] / total["n_tokens"],
    }
    ### FAULT matches = [100 * one["n_right"] / one["n_sentences"] for one in everyone]
    ### FAULT losses = [one["loss"] / one["n_tokens"] for one in everyone]
    ### FAULT return {
    ### FAULT     "exact_match": sum(matches) / comm.size,
    ### FAULT     "loss_per_token": sum(losses) / comm.size,
    ### FAULT }
    ### END SOLUTION


# %%
def two_shards(comm, metrics):
    sentences, right = (10, 10) if comm.rank == 0 else (2, 0)
    counts = {"n_right": right, "n_sentences": sentences, "loss": 1.0, "n_tokens": 5 * sentences}
    print({name: round(value, 3) for name, value in metrics(counts, comm).items()})


on_ranks(two_shards, metrics, ranks=2)

# %% check="metrics"
desk.check("metrics", metrics)

# %% [markdown]
# ### Edit 6: rank 0 speaks
#
# Otherwise each line comes N times, and N ranks write one file at once.
#
# ### Exercise: `report`
#
# Somebody put everything under the `if`. **Predict** what happens, then run the cell below. It has a time limit
# of 6 seconds.


# %% exercise="report"
def report(n_sentences, comm):
    """Rank 0 prints one line. All ranks return the number of sentences of all ranks together."""
    n_all = None
    ### BEGIN SOLUTION
    n_all = comm.allreduce(n_sentences)  # the sum over all ranks
    if comm.rank == 0:
        print(f"{n_all} sentences")
    ### FAULT if comm.rank == 0:
    ### FAULT     n_all = comm.allreduce(n_sentences)  # the sum over all ranks
    ### FAULT     print(f"{n_all} sentences")
    ### END SOLUTION
    return n_all


# %%
def count_two_shards(comm, report):
    return report(10 if comm.rank == 0 else 2, comm)


try:
    print(on_ranks(count_two_shards, report, ranks=2, time_limit_s=6))
except launch.LaunchError as error:
    print(error)

# %% [markdown]
# No error and no traceback: only silence. `allhands.launch` asks each rank where it stands before it ends the
# job. On a cluster nobody does that, and the job waits until its time is up.
#
# Mend `report`, and run both cells again.

# %% check="report"
desk.check("report", report)

# %% [markdown]
# ### Edit 7: the learning rate
#
# N ranks make N times the batch, and an epoch has an N-th of the updates. Two rules are in use: multiply the rate
# by N (**linear**, Goyal et al. 2017), or by $\sqrt{N}$ (Krizhevsky 2014). You will see in section 5 what that does.
#
# ### Exercise: `same_answer`
#
# Now write edits 4 to 7. Each is one to three lines.


# %% exercise="same_answer"
def multi_node(optimizer, comm):
    """Edit 4. The optimizer whose update takes the mean of the gradients of all ranks first."""
    ### BEGIN SOLUTION
    return chainermn.create_multi_node_optimizer(optimizer, comm)
    ### END SOLUTION


def total(counts, comm):
    """Edit 5. The sum over the ranks of each number in `counts`: a dict, the same on all ranks.

    `comm.allreduce_obj(x)` gives the sum over all ranks of a number or of an array.
    """
    ### BEGIN SOLUTION
    return {name: comm.allreduce_obj(counts[name]) for name in sorted(counts)}
    ### END SOLUTION


def speaks(comm):
    """Edit 6. True on the one rank that prints and writes files."""
    ### BEGIN SOLUTION
    return comm.rank == 0
    ### END SOLUTION


def rate_factor(scaling, ranks):
    """Edit 7. What the learning rate is multiplied by; scaling is "none", "sqrt" or "linear"."""
    ### BEGIN SOLUTION
    return {"none": 1.0, "sqrt": ranks**0.5, "linear": float(ranks)}[scaling]
    ### END SOLUTION


# %% [markdown]
# How do you know that it is right? That it runs and that the loss falls is no proof: many faults only make a
# model a little worse.
#
# **The standard.** Run your program on one rank with batch 2B, and on two ranks with batch B. Compare, in this
# order: the world, the vocabularies and the rate, the parameters at the start, the samples of an epoch, the gradient
# of a step, the parameters after some steps, the counts of an evaluation, its metrics. Up to rounding all must be
# equal. The check does just that, with these functions and your `shard`, in a small program like the one above.

# %% check="same_answer"
desk.check("same_answer", shard, multi_node, total, speaks, rate_factor)

# %%
multi_node, total, speaks, rate_factor = desk.carry_on(
    "same_answer",
    (multi_node, total, speaks, rate_factor),
    (parallel.multi_node, parallel.total, parallel.speaks, parallel.rate_factor),
)

# %% [markdown]
# The same comparison is a command for any program: `allhands compare FILE.py --ranks 2`.
#
# Here is a program with a fault that nobody sees when it runs. **Predict:** what is the first difference? Is the
# gradient right? Are the metrics?


# %%
from allhands.train.compare import compare

faulty = folder / "faulty.py"
faulty.write_text("""
import numpy as np

def shard(n_samples, comm, seed):
    order = np.random.default_rng(seed + comm.rank).permutation(n_samples)
    return order[comm.rank :: comm.size]
""")
print(compare(faulty, ranks=2))

# %% [markdown]
# Each rank has shuffled with a seed of its own. So some samples are on both ranks, and others on none. It trains all
# the same.
#
# ### Edit 8: snapshots
#
# A long run stops: its time is up, or somebody needs the machine. It must go on where it stopped.
#
# After an update all ranks have the same parameters, so one rank can write for all. But a rank must not read a
# file that another still writes: `comm.mpi_comm.Barrier()` returns when all ranks have called it.
#
# **Predict:** ChainerMN hands rank 0's parameters to all ranks anyway. Is it enough if rank 0 loads?
#
# ### Exercise: `resume`


# %% exercise="resume"
def save(folder, things, comm):
    """Edit 8. Each of `things` is written to `folder / f"{name}.npz"`, by one rank.

    things: {"model": model, "optimizer": optimizer}. No rank comes back before all is written.
    `chainer.serializers.save_npz(path, thing)` writes one.
    """
    ### BEGIN SOLUTION
    if comm.rank == 0:
        for name, thing in things.items():
            chainer.serializers.save_npz(folder / f"{name}.npz", thing)
    comm.mpi_comm.Barrier()
    ### END SOLUTION


def load(folder, things, comm):
    """Edit 8. What `save` has written is put into `things`: `chainer.serializers.load_npz`."""
    ### BEGIN SOLUTION
    for name, thing in things.items():
        chainer.serializers.load_npz(folder / f"{name}.npz", thing)
    ### END SOLUTION


# %% check="resume"
desk.check("resume", save, load)

# %%
save, load = desk.carry_on("resume", (save, load), (eight_edits.save, eight_edits.load))

# %% [markdown]
# All eight edits are made. They become a file, and two ranks run the program with it: one epoch, then it stops. A
# second start goes on.
#
# **Predict:** which figures will the two lines show? You have seen them before.

# %%
mine = (communicator, device_of, shard, multi_node, total, speaks, rate_factor, save, load)
program = eight_edits.write(folder / "my_edits.py", *mine)

for more in (["--epochs", 1], ["--epochs", 2, "--resume"]):
    words = (program, "--out", folder / "two", *more)
    done = launch.mpirun("allhands.train.eight_edits", *words, ranks=2, time_limit_s=120)
    print(f"two ranks {more}: {done.text(rank=0)}")

# %% [markdown]
# The same losses as one device with batch 100 and twice the rate: edit 7 has doubled it. `allhands train` does all
# this for whole runs: `allhands train lab2_cpu --ranks 2 --out runs/mine --stop-after 10` saves and stops, and
# `--resume` goes on.
#
# ## 4. How much faster?
#
# Now, and only now, the speed. Two questions, and they are often mixed up:
#
# * **Weak scaling**: the batch of each rank stays the same. N ranks do N times the work. Do they need the same time?
# * **Strong scaling**: the batch of all ranks together stays the same. N ranks share the work. Do they need an N-th
#   of the time?
#
# To be honest: the same work in both cases, one thread a rank, the first steps left out, all sizes in turn within
# one start, medians, and the range beside them.
#
# **Predict** the speed-up of two ranks: weak? strong?

# %%
from allhands.trace import draw_scaling, scaling
from allhands.train import speedup

cpu = {"communicator": "naive", "device": "@numpy"}
weak = speedup.measure((1, 2), batch_size=64, mode="weak", out=folder / "weak", **cpu)
strong = speedup.measure((1, 2), batch_size=64, mode="strong", out=folder / "strong", **cpu)

# %%
print(speedup.table(weak))

# %%
print(speedup.table(strong))

# %% [markdown]
# **Wait** is the share of a step in which a rank has come to the all-reduce and the other has not. **Transfer** is
# the share of the all-reduce itself. The last column says how much of a core each rank really had: if it is far below
# 100 %, other programs run on this machine, and the figures mean little.
#
# ### Exercise: `speedup`
#
# Compute the figures of two ranks yourself. `weak[0]` is one rank, `weak[1]` two; each has `ranks` and
# `median_samples_per_s` (of all ranks together). Give
#
# `mine = {"weak": ..., "strong": ..., "efficiency": ..., "communicate": ...}`
#
# `weak` and `strong` are speed-ups. `efficiency` is that of strong scaling. `communicate` is the share of the events
# `communicate` in the time of all `steps` below: lab 1's `time_by`.

# %%
from allhands.trace.summary import time_by

steps = speedup.events(folder / "strong", ranks=2)

# %% exercise="speedup"
### BEGIN SOLUTION
mine = {
    "weak": weak[1].median_samples_per_s / weak[0].median_samples_per_s,
    "strong": strong[1].median_samples_per_s / strong[0].median_samples_per_s,
    "efficiency": strong[1].median_samples_per_s / strong[0].median_samples_per_s / 2,
    "communicate": next(s.share for s in time_by(steps) if s.label == "communicate"),
}
### END SOLUTION
mine

# %% check="speedup"
desk.check("speedup", mine, weak, strong, steps)

# %% [markdown]
# The timeline of both ranks, three steps of strong scaling.
#
# **Predict:** what does the faster rank do while the other still computes?

# %%
some = [event for event in steps if 5 <= event.step <= 7]
draw_scaling.side_by_side(some, "three steps on two ranks, batch 32 each")

# %% [markdown]
# ### Exercise: `bucket`
#
# When does the communication of a step begin?
#
# * **a** All the time, while backward runs.
# * **b** As soon as the first gradient is ready.
# * **c** When the whole backward pass is over, for all gradients.
# * **d** After the update of the parameters.
#
# Give the letter as `answer`.

# %% exercise="bucket"
### BEGIN SOLUTION
answer = "c"
### END SOLUTION

# %% check="bucket"
desk.check("bucket", answer)

# %% [markdown]
# On GPUs `pure_nccl` packs all gradients into one message. On CPUs `naive` sends one for each parameter, in one go,
# at the same moment.
#
# How long is a part of a step? Three medians. From the first to the second only the number of ranks changes, from the
# second to the third only the batch. Time that a rank waits for the other is left out.
#
# **Predict:** what takes half the time with half the batch?

# %%
cases = {
    "1 rank, 64": speedup.events(folder / "weak", ranks=1),
    "2 ranks, 64": speedup.events(folder / "weak", ranks=2),
    "2 ranks, 32": steps,
}


def median_ms(events, part):
    """The median time of a part of a step, without waiting, in milliseconds."""
    alone = scaling.split_waits(events)
    return 1e3 * np.median([event.duration_s for event in alone if event.what == part])


print(f"{'ms':12}", *(f"{name:>12}" for name in cases))
for part in ("forward", "backward", "communicate", "update"):
    print(f"{part:12}", *(f"{median_ms(events, part):12.1f}" for events in cases.values()))

# %% [markdown]
# ### Exercise: `strong`
#
# Why is strong scaling worse than weak scaling here?
#
# * **a** With half the batch, the gradients have twice the bytes.
# * **b** Half the batch takes more than half the time: part of a step does not depend on the batch.
# * **c** The two ranks compute the same sentences.
# * **d** With half the batch, the ranks no longer agree on the parameters.
#
# Give the letter as `answer`.

# %% exercise="strong"
### BEGIN SOLUTION
answer = "b"
### END SOLUTION

# %% check="strong"
desk.check("strong", answer)

# %% [markdown]
# **Amdahl's law.** Let $\sigma$ be the share of the work of one rank that more ranks do not make faster. Then
#
# $$S(N) = \frac{1}{\sigma + (1 - \sigma)/N} \;\le\; \frac{1}{\sigma}$$
#
# Your strong speed-up gives $\sigma$. **Predict:** what could 64 ranks reach with this batch?

# %%
speedups = {"weak": scaling.speedups(weak), "strong": scaling.speedups(strong)}
try:
    law = scaling.fit_amdahl([1, 2], [one.median for one in speedups["strong"]])
    print(f"serial share {law.serial:.0%}; 64 ranks: {law.speedup(64):.1f}")
except ValueError as error:  # a machine that is busy with other things
    law = None
    print(error)
draw_scaling.speedup(speedups, law, "lab 1's translator on this machine", fitted="strong, 2 ranks")

# %% [markdown]
# A fit with one point is a guess, and this line is no promise. Here is what was recorded on two quiet cores, with
# four ranks beside it. They share the cores, and no law of this kind holds for them.
#
# ![Weak and strong scaling on 1, 2 and 4 ranks of two cores](../slides/figures/lab2_dataparallel_speedup.svg)
#
# Amdahl's law says why one does not cut the batch, but lets it
# grow with the ranks. That has a price of its own, which comes next.
#
# ## 5. The larger batch
#
# Four ranks with batch 64 are one rank with batch 256. You have seen it for two ranks of a small program;
# `allhands compare lab2_cpu --ranks 4` would show it for this one. So we need no four ranks to see what they would
# learn. Two epochs with batch 256, with the rate of one rank and with the linear rule, each some seconds.
#
# **Predict:** which share of the 500 test sentences is right (exact match, in percent), without and with the rule?

# %%
from allhands.train import run

found = {}
for scaling_rule in ("none", "linear"):
    factor = rate_factor(scaling_rule, 4)
    changes = [f"learning_rate={3e-3 * factor}", f"last_learning_rate={1.5e-4 * factor}"]
    config = configs.override(configs.lab1_cpu(), ["batch_size=256", "epochs=2", *changes])
    found[scaling_rule] = run.train(config, folder / scaling_rule).test.quality.exact_match
found

# %% [markdown]
# ### Exercise: `rate`
#
# What does the linear rule do?
#
# * **a** It makes each update faster.
# * **b** It divides the gradient, which ChainerMN has added up over the ranks.
# * **c** It makes the gradient less noisy.
# * **d** It lets one long step stand for the N short steps that a larger batch leaves out.
#
# Give the letter as `answer`.

# %% exercise="rate"
### BEGIN SOLUTION
answer = "d"
### END SOLUTION

# %% check="rate"
desk.check("rate", answer)

# %% [markdown]
# ## 6. Two ways to pay less
#
# **Double buffering.** ChainerMN can send the gradients of one step while the next step computes
# (`create_multi_node_optimizer(..., double_buffering=True)`, on GPUs). If the exchange is shorter than the computing,
# it costs nothing. But each update then uses gradients that are **one step old**: they were computed for parameters
# that have changed since.
#
# On a CPU there is only a model of it, in `allhands/train/double_buffer.py`: the same updates in the same order as
# ChainerMN's own class, without the gain in time.
#
# **Predict:** 100 updates with fresh gradients, and 100 with old ones. Which loss is lower?

# %%
from allhands.train import double_buffer

naive = chainermn.create_communicator("naive")
for delay in (False, True):
    outcome = double_buffer.train(naive, delay=delay, seed=0, updates=100)
    name = "one step old" if delay else "fresh"
    print(f"{name:13} loss per token {outcome.valid_loss_per_token:.3f}")

# %% [markdown]
# So double buffering is not free. And it is not the same program any more: `compare` would say so. What would it gain
# here? From your own medians of strong scaling. Waiting is left out again: a rank that waits for a slower one would
# wait all the same.

# %%
compute_s = 1e-3 * (median_ms(steps, "forward") + median_ms(steps, "backward"))
communicate_s = 1e-3 * median_ms(steps, "communicate")
for buffered in (False, True):
    step_s = double_buffer.step_s(compute_s, communicate_s, double_buffering=buffered)
    print(f"double buffering {buffered!s:5}: {1e3 * step_s:.1f} ms a step")

# %% [markdown]
# **FP16 all-reduce.** `create_communicator("pure_nccl", allreduce_grad_dtype="float16")` sends half the bytes, in as
# many messages. **Predict:** how much faster is an all-reduce of 100 bytes? Of lab 1's gradient, 1.03 MB? Here computed
# from the fit of your own ring:

# %%
from allhands.train.half_all_reduce import gain

cost = fit(measured.sizes_bytes, measured.times_s["ring"], window_bytes=WINDOW).cost
for n_bytes in (100, 1_028_472, 100_000_000):
    print(f"{n_bytes:12,} bytes: {gain(cost, n_bytes):.2f} times as fast")

# %% [markdown]
# FP16 ends at 65504, and a sum over ranks may pass that. Lab 3 shows what can be done.
#
# On a cluster with GPUs, both are settings of the job:
#
# ```
# cluster_jobs/submit lab2_dataparallel -- --set double_buffering=true
# cluster_jobs/submit lab2_dataparallel -- --set allreduce_dtype=float16
# ```
#
# ## 7. The same on a cluster
#
# One command starts as many ranks as the job has:
#
# ```
# cluster_jobs/submit lab2_dataparallel --dry-run     # what would be done
# cluster_jobs/submit lab2_dataparallel --wait        # do it, and follow the log
# cluster_jobs/submit lab2_dataparallel --nodes 2 --ranks-per-node 4     # now a network is in between
# ```
#
# On a laptop without a scheduler the site `local` runs the same script here, on CPU ranks. On a cluster it runs
# `allhands train lab2_gpu`, one rank a GPU, gradients over NCCL. It saves and stops before its time limit, and goes
# back into the queue: all ranks go on from rank 0's snapshot.
#
# More to try, in `handson/lab2_dataparallel`:
#
# * `my_parallel.py`: a whole data-parallel program, short, to change and to run on any number of ranks.
# * `allhands compare handson/lab2_dataparallel/my_parallel.py --ranks 4`: is it still the same program?
# * `python -m allhands.train.speedup --ranks 1,2,4 --mode strong`: your speed-up, on as many cores as you have.
#
# ## 8. What you saw
#
# * An all-reduce is a handful of messages. The ring is for large ones, doubling for small ones.
# * Eight small edits make a program data-parallel. Most faults in them are silent; some show only on two nodes.
# * **N ranks must equal one rank.** Compare before you measure.
# * A ratio of sums is not a mean of ratios. No collective stands under `if rank == 0`.
# * Say weak or strong. Strong scaling ends where the batch is small.
# * A larger batch wants a larger rate, up to a limit.
# * ChainerMN communicates when backward is over. All the while before, the link has nothing to do.
#
# **Next:** lab 3 computes in half precision. Lab 4 sends gradients while backward still runs.

# %%
desk.score()
