# %% [markdown]
# # Bug 2: does it fail alone?
#
# **Aim.** Decide by a single-process run whether a failure is in the communication.
#
# **You need** lab 1. No GPU and no cluster: two CPU cores are enough. It takes about 60 minutes.
#
# A job on 64 GPUs hangs. Where do you begin? Not on 64 GPUs. Run **the same script** on one process, then on two
# ranks, then on more. This is a ladder:
#
# ![The ladder: one process, two ranks, more ranks, two nodes; the first rung that fails says where to look](../slides/figures/bug2_singlegpu_ladder.svg)
#
# Each rung adds one thing. So the first rung that fails says what is at fault. That is worth a minute before each
# look at a log.

# %%
import inspect

import numpy as np

from allhands import launch
from allhands.grade.desk import Desk
from allhands.train import last_seen, rungs
from allhands.train.faults import bug2_singlegpu
from allhands.train.faults.readings import readings
from allhands.train.rungs import start

desk = Desk("bug2_singlegpu")

# %% [markdown]
# ## 1. The same program on any number of ranks
#
# `start(program, ranks=N)` writes a function to a file, starts N ranks that run it, and returns the list of their
# results. `comm` is MPI's communicator: `comm.rank`, `comm.size`, and the **collectives**, the calls that all ranks
# make together. What a rank prints is shown with its number in front: `[0] ...`. Here is a healthy program.
#
# **Predict** the results on 1 rank and on 2.


# %%
def healthy(comm):
    numbers = np.arange(comm.rank, 8, comm.size)  # this rank's share of 0 .. 7
    return comm.allreduce(int(numbers.sum()))  # the sum over all ranks


for ranks in (1, 2):
    print(ranks, start(healthy, ranks=ranks))
# > 1 [28]
# > 2 [28, 28]

# %% [markdown]
# A program that is written like this runs with one rank too. Then each collective returns at once. Keep it so in
# your own code: a program that cannot run alone cannot be tested alone.
#
# ### Exercise: `climb`
#
# Write the ladder.


# %% exercise="climb"
def climb(run, rungs=(1, 2, 4)):
    """The first rung that fails, and what was seen there: (ranks, what). (None, None) if none does.

    `run(ranks)` starts the program on so many ranks, and returns the list of their results. It
    raises launch.LaunchError if the job fails or hangs: then `what` is this error. A rung fails too
    if the results of its ranks are not all equal: then `what` is the list of results.
    After the first rung that fails, nothing more is started.
    """
    ### SOLUTION FROM allhands.train.rungs:climb


# %% check="climb"
desk.check("climb", climb)

# %%
climb = desk.carry_on("climb", climb, rungs.climb)

# %% [markdown]
# ## 2. Five programs
#
# Here are five small programs. Each has one fault. (SENTENCES are eight short sentences of the course's package.)

# %%
names = ("report", "fit_line", "count_words", "train_line", "name_labels")


def faulty(name):
    return readings(f"bug2_singlegpu:{name}").faulty


for name in names:
    print(inspect.getsource(faulty(name)))

# %% [markdown]
# **Predict**, before you run the next cell, and write it down: which of them fails with one process? Which with two
# ranks? Which only with four? And who says nothing?
#
# A start may take 5 seconds here. Then the job is ended: that is our limit for "it hangs". (A program that only is slow
# would look the same. On a busy machine, write `start(faulty(name), ranks=ranks, time_limit_s=15)` below.)


# %%
def run_faulty(name):
    return lambda ranks: start(faulty(name), ranks=ranks)


outcomes = {name: climb(run_faulty(name)) for name in names}

for name, (ranks, what) in outcomes.items():
    print(f"{name}: first fails on {ranks}\n    {type(what).__name__}: {what}\n")

# %% [markdown]
# ### Exercise: `rung`
#
# Fill in for each program the rung, and one of three words:
#
# * `"error"`: a rank raised an exception;
# * `"hang"`: no rank raised anything, and the time was up;
# * `"differs"`: the job ended well, and the ranks have different results.
#
# `seen = {"report": (ranks, "word"), ...}`

# %% exercise="rung"
### BEGIN SOLUTION
seen = {
    "report": (2, "hang"),
    "fit_line": (4, "hang"),
    "count_words": (2, "differs"),
    "train_line": (2, "differs"),
    "name_labels": (1, "error"),
}
### END SOLUTION

# %% check="rung"
desk.check("rung", seen)

# %% [markdown]
# `name_labels` fails alone. So it is **not** a matter of communication. Compare with the same program on two ranks:

# %%
try:
    start(faulty("name_labels"), ranks=2)
except launch.LaunchError as error:
    print(error)
    print(last_seen.table(error.calls))

# %% [markdown]
# The bad label is on one rank only. That rank raises, and rank 0 waits for it in `allreduce`. Under a plain `mpiexec`,
# nothing ends the job: one traceback in the middle of the log, then silence until the time limit. Many a day was lost
# with the network in such a case. One process shows the line in a second.
#
# ## 3. Looking into a hang
#
# `report` and `fit_line` hang. A hang has no traceback. There are three ways to look in.
#
# **The last call of each rank.** `start` notes each call that needs other ranks, before it begins and after it has
# ended, in a file of its rank. In a program of yours it is one line: `comm = last_seen.Noted(comm, "calls")`.
#
# **Predict:** `fit_line` on four ranks. Which ranks wait, and where are the others?

# %%
hang = outcomes["fit_line"][1]
print(last_seen.table(hang.calls))

# %% [markdown]
# Two ranks wait in the loop. The other two have left it, and have even ended: with a result, and a wrong one. Where
# did the ways part?

# %%
print(last_seen.difference(hang.calls))

# %% [markdown]
# Read this twice. The eleventh call of ranks 0 and 1 is a sum of gradients. The eleventh call of ranks 2 and 3 is
# the sum of the losses. **MPI paired them all the same**: it matches collectives by their order, and knows nothing
# of lines. So a gradient was added to a loss. The hang came one call later, and its place is not the place of the
# fault. Look for the **first difference**, not for the last line.
#
# **The stack of each rank**, by Python's own `faulthandler`. One line at the start of a program writes the stack to
# a file if the program still runs after some seconds: `faulthandler.dump_traceback_later(60, file=file)`. Here is
# that of `report`, the innermost line first. `last_seen.py` is the one that takes notes; below it stands your line.

# %%
hang = outcomes["report"][1]
print("\n".join(hang.stacks[0].splitlines()[:4]))
print("rank 1:", hang.stacks[1] or "no stack: Python has ended there, and MPI waits for rank 0")

# %% [markdown]
# **From outside**, for a program that was not prepared: `py-spy` (`pip install py-spy`) shows the stack of any Python
# process of yours, `py-spy dump --pid PID`. (On macOS, and where Linux forbids a process to look into another, it needs
# `sudo`.) Try it with `handson/bug2_singlegpu/hang.py`, which hangs for you.
#
# Our `allhands.launch` asks the ranks in the second way, before it ends a job. That is how the sentences above know
# where each rank was.
#
# ## 4. Ranks with different numbers of steps
#
# ### Exercise: `steps`
#
# Mend `fit_line`. All points must count, each once.


# %% exercise="steps"
def fit_line(comm):
    """One epoch of least squares on 102 points, batches of 5; return the loss of all points."""
    ### SOLUTION FROM allhands.train.faults.bug2_singlegpu:fit_line


# %% check="steps"
desk.check("steps", fit_line)

# %% [markdown]
# Why did two ranks pass? 102 points are 51 and 51 on two ranks, and 26, 26, 25 and 25 on four. In batches of 5 that
# is 11 and 11 steps, but 6, 6, 5 and 5. A rung that passes proves something for its own number of ranks only.
#
# `report` is the other classic. Rank 1 leaves early, before the collective. Lab 2 has it as an exercise: all ranks
# call, rank 0 prints.
#
# ## 5. Sizes that come from the rank's own data
#
# `count_words` ended well on two ranks, and gave two different answers:

# %%
for rank, counts in enumerate(outcomes["count_words"][1]):
    print(f"rank {rank}: {counts}")

# %% [markdown]
# Both ranks have seven words, by chance. So `Allreduce` added the number of `five` on rank 0 to the number of `eight`
# on rank 1.
#
# **Predict:** on four ranks the vocabularies have different lengths. What happens now?

# %%
try:
    start(faulty("count_words"), ranks=4)
except launch.LaunchError as error:
    print(error)

# %% [markdown]
# `Message truncated` (in Open MPI: `MPI_ERR_TRUNCATE`) means: the ranks brought arrays of different sizes to one
# call. Which rank says so is chance; the others wait, or get a wrong sum. It names the victim, not the cause.
#
# ### Exercise: `words`


# %% exercise="words"
def count_words(comm):
    """Return {word: how often it comes in SENTENCES}. Each rank counts in its own sentences."""
    ### SOLUTION FROM allhands.train.faults.bug2_singlegpu:count_words


# %% check="words"
desk.check("words", count_words)

# %% [markdown]
# ## 6. Silence
#
# `train_line` says nothing at all. It fits slope 3 and offset 1, from a random start. **Predict** the two results: is
# one of them right?

# %%
lines = {"alone": start(faulty("train_line"), ranks=1)[0]}
lines["rank 0 of 2"], lines["rank 1 of 2"] = outcomes["train_line"][1]
for name, line in lines.items():
    print(f"{name:11}:", ", ".join(f"{what} {value:.3f}" for what, value in line.items()))
# > alone      : slope 3.000, offset 1.000, loss 0.000
# > rank 0 of 2: slope 2.876, offset 0.522, loss 0.234
# > rank 1 of 2: slope 3.096, offset 1.476, loss 0.229

# %% [markdown]
# Two models. In a log that shows rank 0's loss, this is "on two GPUs it learns a little worse".
#
# Nobody finds this by reading logs. You have to ask.
#
# ### Exercise: `same`


# %% exercise="same"
def same_everywhere(comm, array):
    """True, on all ranks, if the NumPy array has the same shape and bits on all ranks; else False.

    Every rank must call it. Only one number a rank travels: the checksum `zlib.crc32` of the bytes.
    `array.tobytes()` gives the bytes; `repr(array.shape).encode()` those of the shape.
    """
    ### SOLUTION FROM allhands.train.rungs:same_everywhere


# %% check="same"
desk.check("same", same_everywhere)

# %%
same_everywhere = desk.carry_on("same", same_everywhere, rungs.same_everywhere)

# %% [markdown]
# ### Exercise: `begin`
#
# Mend `train_line`.


# %% exercise="begin"
def train_line(comm):
    """Least squares from a random start; return {"slope", "offset", "loss"} after 50 steps."""
    ### SOLUTION FROM allhands.train.faults.bug2_singlegpu:train_line


# %% check="begin"
desk.check("begin", train_line)


# %% [markdown]
# Now ask, with your own function, on two ranks: the program as it was, and yours.


# %%
def ask(comm, same_everywhere, mended, as_it_was):
    found = {}
    for name, program in (("as it was", as_it_was), ("mended", mended)):
        line = program(comm)
        found[name] = same_everywhere(comm, np.array([line["slope"], line["offset"]]))
    return found


def as_it_was(comm):
    from allhands.train.faults.readings import readings

    return readings("bug2_singlegpu:train_line").faulty(comm)


train_line = desk.carry_on("begin", train_line, bug2_singlegpu.train_line)
start(ask, same_everywhere, train_line, as_it_was, ranks=2)

# %% [markdown]
# ## 7. The same in Chainer
#
# A Chainer link may leave its input size open: `Linear(None, 3)` makes its weights at its first call. ChainerMN's
# `bcast_data` sends the parameters that are there, and skips the others.
#
# **Predict:** rank 0 calls the model once, to show its shape. Then all ranks broadcast.

# %%
print(inspect.getsource(faulty("begin_lazily")))
try:
    start(faulty("begin_lazily"), ranks=2, time_limit_s=15)
except launch.LaunchError as error:
    print(error)
    print(last_seen.difference(error.calls))

# %% [markdown]
# Rank 0 sends weights and bias, rank 1 wants the bias alone. The sizes differ: truncated. (`last_seen` counts the
# calls that ChainerMN makes itself; the line is the one of your program.)
#
# **Predict:** what if no rank has called the model before the broadcast?


# %%
def broadcast_too_early(comm, same_everywhere):
    import chainer
    import chainermn

    np.random.seed(comm.rank)
    layer = chainer.links.Linear(None, 3)
    chainermn.create_communicator("naive", mpi_comm=comm).bcast_data(layer)
    layer(np.zeros((1, 4), np.float32))  # the first batch: now the weights are made
    return same_everywhere(comm, layer.W.array)


print("the same everywhere?", start(broadcast_too_early, same_everywhere, ranks=2, time_limit_s=15))

# %% [markdown]
# No error, and two models. Call the model once on **every** rank before the broadcast, or give all sizes. (ChainerMN's
# multi-node optimizer takes more care: when parameters have got their arrays, its next `update()` broadcasts again. A
# `bcast_data` of your own does not.)
#
# ## 8. Forked loaders
#
# ChainerMN's manual warns of processes that are forked after MPI has started, as `MultiprocessIterator` does. Is it
# so? We tried, on two ranks with MPICH, three times 100 batches: all came, and all were right. (It was slower than a
# `SerialIterator`, 0.6 s against 0.01 s, as each tiny sample travels between processes. That is another lab.) So a
# worker that only computes did no harm **here**, and is no exercise. With InfiniBand it may: there, use
# `multiprocessing.set_start_method("forkserver")` before the communicator is made, and put your program under
# `if __name__ == "__main__":`. Without that line the worker runs the whole script again, and with it MPI's start: here
# that ended with `PMI_Init returned -1`.
#
# What does harm here is a worker that **uses the communicator**. It is a copy of its rank, under the same number, and
# takes messages that are meant for its parent. With one process it is right; on two ranks it failed in 10 of 10
# runs, and not twice in the same way: a hang, `Message truncated`, an abort inside MPI. Try it in a terminal:
#
# ```
# python -m allhands.train.faults share_the_loader --faulty --ranks 1
# python -m allhands.train.faults share_the_loader --faulty --ranks 2      # several times
# python -m allhands.train.faults share_the_loader --repaired --ranks 2
# ```
#
# A symptom that changes from run to run is a symptom too: something is a matter of time, and not only of data.
#
# ## 9. The next rung: a cluster
#
# Two nodes add a network, a launcher, and a second environment. A program of yours that fails there, and passes on
# one node, may be innocent. So first climb with programs that are known to be right:
#
# ```
# mpiexec -n 4 python -m allhands.train.rungs_here        # here
# cluster_jobs/submit bug2_singlegpu --wait               # two nodes
# ```
#
# It says for each rung (each rank alone, the ranks of a node, all ranks) whether four programs agree. If they do,
# and yours does not, the fault is in yours.
#
# ### Exercise: `proof`
#
# A program passes with one process, and hangs on two ranks of one node. What do you know?
#
# * **a** The network between the nodes is broken.
# * **b** The program has no fault; MPI has one.
# * **c** The fault is in what the ranks exchange, or in what they do differently.
# * **d** It will pass on four ranks.
#
# Give the letter as `answer`.

# %% exercise="proof"
### BEGIN SOLUTION
answer = "c"
### END SOLUTION

# %% check="proof"
desk.check("proof", answer)

# %% [markdown]
# ## 10. What you saw
#
# | program | alone | 2 ranks | 4 ranks | repair |
# |---|---|---|---|---|
# | `name_labels` | IndexError | one traceback, the other rank waits | the same | an ordinary fault: mend it alone |
# | `report` | passes | hangs | hangs | all ranks call, rank 0 prints |
# | `fit_line` | passes | passes | hangs, after two ranks have given a wrong loss | agree on the number of steps |
# | `count_words` | passes | wrong, without a word | `Message truncated` | sizes come from all the data |
# | `train_line` | passes | two models, without a word | four models | broadcast before the first step |
# | `begin_lazily` | passes | `Message truncated` | the same | one call on every rank first |
# | `share_the_loader` | passes | now this, now that | | workers never use the communicator |
#
# * Run it alone first. If it fails there, forget the communication.
# * If it passes there, climb one rung at a time. The first rung that fails says where to look.
# * A hang: ask each rank for its last call, and look for the **first** call that differs.
# * No error is no proof. Ask whether all ranks have the same: it costs one number.
#
# **Next:** `bug1_errorcount` reads the log of such a job. `bug3_togpu` is about devices.

# %%
desk.score()
