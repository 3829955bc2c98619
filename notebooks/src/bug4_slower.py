# %% [markdown]
# # Bug 4: two ranks are slower than one
#
# **Aim.** A parallel program runs without any error, and takes longer than one process. Find out why, one
# cause after the other, and mend it.
#
# **You need** lab 1. Lab 2 helps. No GPU and no cluster; two cores are enough. It takes about 60 minutes.
#
# This happened to a real team: at the end of a hackathon their program ran on two GPUs, gave no error, and was
# slower than on one. They went home without knowing why. Here is a program in the same state. It is small: a
# network learns to read digits, with NumPy and mpi4py, data-parallel. You can run it in a second.
#
# There is more than one cause. That is normal, and it is what makes such a riddle hard: you mend the right thing,
# and see no difference, because another cause hides it. So you need **figures that do not lie**, and you need to
# change **one thing at a time**.

# %%
import tempfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from allhands.doctor import run_findings
from allhands.grade.desk import Desk
from allhands.trace.critical_path import COLLECTIVE  # "communicate"
from allhands.train import slower
from allhands.train.faults import bug4_slower

desk = Desk("bug4_slower")
temporary = tempfile.TemporaryDirectory(prefix="bug4-")  # goes with the kernel
folder = Path(temporary.name)

# %% [markdown]
# ## 1. The note
#
# The program as the team left it: alone, which is one rank with one thread, and on two ranks. Each makes two epochs.
# `times_s` has the time of each step, in seconds (section 2 says how it is measured).

# %%
alone = slower.run(slower.riddle(), ranks=1, threads=1, out=folder / "alone")
together = slower.run(slower.riddle(), ranks=2, out=folder / "riddle")

for name, one in {"alone": alone, "together": together}.items():
    print(f"{name:9} {1e3 * np.mean(one.times_s):.2f} ms a step (mean of {one.n_steps} steps)")

# %% [markdown]
# This is what the team wrote down: *a step takes longer on two ranks, so two ranks are slower.*
#
# **Stop here.** Which two things are wrong with this sentence, before we look at the program at all?
#
# ### Exercise: `fair`
#
# These are the team's two functions. Each has a fault: repair them. The docstring says what each should do.
#
# * Print `alone.times_s[:6]`. Which step is unlike the others?
# * Two ranks make a step with the samples of both. Is a step the right thing to compare?


# %% exercise="fair"
def step_s(times_s):
    """How long a step takes, in seconds. `times_s`: of all steps of a run, in their order.

    The median. The first three steps do not count: files are opened then, and memory is taken.
    """
    ### SOLUTION FROM allhands.train.faults.bug4_slower:step_s


def speed_up(alone, together):
    """How many times as fast `together` trains as `alone`: samples a second.

    Each has `step_s`, and `samples_per_step`: of all its ranks together.
    """
    ### SOLUTION FROM allhands.train.faults.bug4_slower:speed_up


# %% check="fair"
desk.check("fair", step_s, speed_up)

# %%
step_s = desk.carry_on("fair", step_s, bug4_slower.step_s)
speed_up = desk.carry_on("fair", speed_up, bug4_slower.speed_up)


def measured(one):
    return SimpleNamespace(step_s=step_s(one.times_s), samples_per_step=one.samples_per_step)


print(f"first step {alone.times_s[0] / step_s(alone.times_s):.0f} times as long as the others")
for n_steps in (20, len(alone.times_s)):
    longer = np.mean(alone.times_s[:n_steps]) / step_s(alone.times_s[:n_steps])
    print(f"the mean of the first {n_steps} steps is {longer:.2f} times the median")
print(f"speed-up in samples a second: {speed_up(measured(alone), measured(together)):.2f}")

# %% [markdown]
# A fair comparison, and still below 1. So it is the program, too.
#
# Samples a second do not see everything. A sample that is trained on twice counts twice, and the time between steps
# (evaluation) is not in it. The safest figure is the time of an **epoch**, with all that belongs to it.
#
# A trap of the same kind: a run that stops after a number of *steps*. With two ranks, 1,000 steps are twice the
# samples.
#
# ## 2. Time that does not lie
#
# Your machine does other things, too. Then wall-clock times say who else was there. Run the next cell, and look at
# the two numbers in each line: seconds on the clock, and **CPU seconds**, which are counted only while this process has
# a core.

# %%
for name, one in {"alone": alone, "together": together}.items():
    cpu_s = [sum(e.duration_s for e in one.cpu_events if e.rank == f.rank) for f in one.facts]
    print(
        f"{name:9} {one.wall_s:.2f} s on the clock; CPU seconds of each rank:", np.round(cpu_s, 2)
    )

# %% [markdown]
# CPU seconds have a fault of their own: a rank that waits for the other in an all-reduce looks again and again
# whether something has come. That burns CPU seconds, and is no work.
#
# So we build a better figure. A step is over when its slowest rank is through:
#
# $$T = \sum_\text{steps} \Big( \max_\text{ranks}\; (\text{CPU seconds of its work})
# \;+\; \text{one quiet exchange} \Big)$$
#
# This is the **critical path**. It says how long the run takes if each rank has a core for itself. A quiet exchange
# is the shortest one that was seen in the run: `transfer_s`. (It is a better figure, not a perfect one: two programs
# that take turns on a core also throw each other's data out of its cache, and that costs CPU seconds.)
#
# ### Exercise: `critical_path`
#
# An event has `step`, `rank`, `what` and `duration_s`. What is no work is called `COLLECTIVE`.


# %% exercise="critical_path"
def critical_path_s(events, transfer_s):
    """The length of the critical path in seconds; `events` are the CPU events of all ranks.

    Per step: add up the events of each rank, all but those whose `what` is COLLECTIVE, and take the
    rank that has most; then add `transfer_s`. Return the sum over all steps.
    """
    ### SOLUTION FROM allhands.trace.critical_path:critical_path_s


# %% check="critical_path"
desk.check("critical_path", critical_path_s)

# %%
from allhands.trace import critical_path

critical_path_s = desk.carry_on("critical_path", critical_path_s, critical_path.critical_path_s)

for name, one in {"alone": alone, "together": together}.items():
    path_s = critical_path_s(one.cpu_events, one.transfer_s)
    print(f"{name:9} critical path {path_s:.3f} s for {one.config.epochs} epochs")
print(f"speed-up of an epoch: {slower.speed_up(alone, together):.2f}")

# %% [markdown]
# Now we have a figure to work with: `slower.speed_up`, the speed-up of an epoch by the critical path, without the first
# step. Two ranks *should* come near 2.
#
# ## 3. The suspects
#
# Five things may be wrong in the program:
#
# | key | the suspicion |
# |---|---|
# | `data` | the data are not scattered: each rank trains on all samples |
# | `batch` | the batch of a rank was cut, so a step does less |
# | `loader` | one rank reads for all, and the others wait |
# | `evaluation` | all ranks evaluate everything, and all print |
# | `threads` | there are more threads than cores |
#
# Do not guess. **Count.** Here is what can be counted of both runs. Where the ranks are told apart, the first number is
# rank 0's.

# %%
print(slower.table({"alone": alone, "together": together}))

# %% [markdown]
# The set has 1,437 samples, and 360 more to evaluate. A *switch* is counted when the system takes the core away from a
# process, to give it to another. Other programs on the machine cause switches, too.
#
# **Think first:** which rows should be *half* as large on two ranks? Which should stay the same?
#
# ### Exercise: `evidence`
#
# For each suspicion, give a row that proves it: one that would look right if this cause were away, whatever the other
# causes do. No time (`ms: ...`) is a proof. Copy the rows' names:
#
# `evidence = {"data": "...", "batch": "...", "loader": "...", "evaluation": "...", "threads": "..."}`

# %% exercise="evidence"
### BEGIN SOLUTION
evidence = {
    "data": "samples of an epoch and rank",
    "batch": "samples of a step and rank",
    "loader": "samples read by a rank",
    "evaluation": "images in an evaluation",
    "threads": "threads",
}
### END SOLUTION

# %% check="evidence"
desk.check("evidence", evidence)

# %% [markdown]
# All five are guilty. Note the row *steps of an epoch*: it should have fallen from 90 to 45, and it has **doubled**. Two
# causes do that together. It is the first thing to look for in a log, because every log has it.
#
# ## 4. Mend, and measure
#
# In which order? First what disturbs the other figures: the threads. Each rank computes with as many threads as the
# machine has cores. With two ranks, four threads fight for two cores, and the threads of a rank wait for each other. It
# costs little on a quiet machine and much on a busy one: from 1.1 to 6 times the time of an epoch, where this lab was
# made. So it changes from run to run, and hides what you mend elsewhere.
#
# And the batch: somebody wanted to keep the batch of all ranks together as it was. **Predict:** half the samples in a
# step, so half the time?
#
# ### Exercise: `cores`
#
# Here are the team's functions. Repair both.


# %% exercise="cores"
def threads(cores, ranks):
    """How many threads each of the ranks on a machine with so many cores computes with.

    Together not more than there are cores, but at least one each. A whole number.
    """
    ### SOLUTION FROM allhands.train.faults.bug4_slower:threads


def batch_of_rank(batch_size, comm):
    """How many samples a rank takes in a step. `batch_size` is what one process takes alone."""
    ### SOLUTION FROM allhands.train.faults.bug4_slower:batch_of_rank


# %% check="cores"
desk.check("cores", threads, batch_of_rank)

# %%
threads = desk.carry_on("cores", threads, bug4_slower.threads)
batch_of_rank = desk.carry_on("cores", batch_of_rank, bug4_slower.batch_of_rank)

so_far = {"threads": threads, "batch_of_rank": batch_of_rank}
left = slower.faulty("numbers", "load", "evaluate")
now = slower.run(slower.with_(left, **so_far), ranks=2)
print(f"speed-up {slower.speed_up(alone, now):.2f}; it was {slower.speed_up(alone, together):.2f}")

# %% [markdown]
# On a cluster the environment says how many threads there are: `OMP_NUM_THREADS=1`, and it must be set before NumPy or
# PyTorch is imported. Schedulers set it, or not. `allhands.launch` does.
#
# Better, and far from a gain. Next: the data.
#
# ### Exercise: `data`
#
# This is how the team shares out the samples. Repair it.


# %% exercise="data"
def numbers(n_samples, comm, epoch):
    """The numbers of the samples that this rank trains on in an epoch, in their order.

    Each number from 0 to n_samples - 1 is on one rank, and the ranks have as many as each other, or
    one more. Another order in each epoch.
    """
    ### SOLUTION FROM allhands.train.faults.bug4_slower:numbers


# %% check="data"
desk.check("data", numbers)

# %%
numbers = desk.carry_on("data", numbers, bug4_slower.numbers)

so_far |= {"numbers": numbers}
now = slower.run(slower.with_(left, **so_far), ranks=2)
print(f"speed-up {slower.speed_up(alone, now):.2f}, steps of an epoch {now.steps_per_epoch:.0f}")

# %% [markdown]
# An epoch has half the steps now. A step takes as long as before: a team that looks at steps alone sees no difference,
# and takes the repair out again.
#
# What is left does not scale: work that rank 0 does for all, and work that all do twice. Alone, `comm.size` is 1, and
# both functions below are right. So nobody finds these faults on one process.
#
# ### Exercise: `shared`
#
# Repair both. What does each rank do, and what should it do?


# %% exercise="shared"
def load(read, numbers, comm):
    """The samples of this rank's batch. `read(numbers)` reads and prepares them, slowly."""
    ### SOLUTION FROM allhands.train.faults.bug4_slower:load


def evaluate(count_right, n_images, comm):
    """The share of the held-out images that the model gets right: the same number on all ranks.

    `count_right(numbers)` says how many of the images with these numbers it gets right. Each rank
    counts its part. Rank 0 prints one line. (`comm.allreduce(x)` is the sum of all ranks' x.)
    """
    ### SOLUTION FROM allhands.train.faults.bug4_slower:evaluate


# %% check="shared"
desk.check("shared", load, evaluate)

# %%
load = desk.carry_on("shared", load, bug4_slower.load)
evaluate = desk.carry_on("shared", evaluate, bug4_slower.evaluate)

so_far |= {"load": load, "evaluate": evaluate}
now = slower.run(slower.with_(left, **so_far), ranks=2, out=folder / "mended")
print(f"speed-up {slower.speed_up(alone, now):.2f}")
print(slower.table({"alone": alone, "as it was": together, "mended": now}))

# %% [markdown]
# Read the table once more, row by row. Each count is half of what it is alone, or the same. Can you say why?
#
# ## 5. What does each cost?
#
# Now each cause by itself, in a program that is mended but for it.
#
# **Predict** the order, from the worst to the mildest. Then run.

# %%
one_fault = {"none": slower.MENDED} | {name: slower.faulty(name) for name in slower.PARTS}
costs = slower.measure(one_fault, ranks=2, out=folder / "costs")
for name, one in sorted(costs.items(), key=lambda item: item[1].epoch_s):
    longer = one.epoch_s / costs["none"].epoch_s
    switches = sum(f.n_switches for f in one.facts) / one.n_steps
    print(f"{name:14} {longer:4.2f} times the epoch, speed-up {slower.speed_up(alone, one):.2f}, "
          f"{one.wall_s:.2f} s on the clock, {switches:5.0f} switches a step")  # fmt: skip

# %% [markdown]
# None of these alone is a mystery. Together they were one. Note the row `threads`: the critical path sees the CPU seconds
# that threads burn in computing, but not that a rank waits for a rank whose core is taken. The switches and the clock do.
# No figure sees everything.
#
# Why is the mended program not at 2.0? A step has a fixed cost: calling NumPy, updating the parameters, the exchange. With
# 16 samples in a step it is a large part. And "two cores" are not always two: they share memory and caches, or are two
# halves of one core (hyper-threads). Then a rank is slower, in CPU seconds too, as soon as the other one works.
#
# **Predict:** the speed-up with 16 and with 64 samples a rank?

# %%
for batch_size in (16, 64):
    one = slower.run(slower.MENDED, ranks=1, threads=1, batch_size=batch_size, epochs=4)
    two = slower.run(slower.MENDED, ranks=2, batch_size=batch_size, epochs=4)
    print(
        f"batch {batch_size}: a step {1e3 * step_s(one.times_s):.2f} ms alone, "
        f"{1e3 * step_s(two.times_s):.2f} ms on two ranks; "
        f"speed-up in samples a second {speed_up(measured(one), measured(two)):.2f}"
    )

# %% [markdown]
# ## 6. The doctor
#
# What you did by hand is a command. It reads the folder that a run leaves, and says what it sees:
#
# `allhands doctor --run RUN --against ALONE`
#
# It works for `allhands train lab2_cpu --ranks 2` as well. Here it looks at the program as the team left it:

# %%
run_findings.report(run_findings.diagnose(folder / "riddle", against=folder / "alone"))

# %% [markdown]
# ### Exercise: `diagnosis`
#
# A colleague sends you these figures of a translator, and asks why two ranks are not faster:
#
# | | alone | 2 ranks |
# |---|---|---|
# | steps of an epoch | 125 | 125 |
# | samples of an epoch and rank | 8,000 | 4,000 |
# | samples evaluated by a rank | 200 | 100 |
# | threads of a rank (2 cores) | 1 | 1 |
#
# What is the cause?
#
# * **a** The data are not scattered: an epoch has as many steps as alone.
# * **b** The batch of a rank is half of what it was.
# * **c** More threads than cores.
# * **d** All ranks evaluate everything.
#
# Give the letter as `answer`.

# %% exercise="diagnosis"
### BEGIN SOLUTION
answer = "b"
### END SOLUTION

# %% check="diagnosis"
desk.check("diagnosis", answer)

# %% [markdown]
# ## 7. What you saw
#
# * A slow parallel run has often several causes. Change one thing at a time, and measure an **epoch**.
# * Count before you time: steps of an epoch, samples of each rank, samples read, evaluated, threads. These counts have no noise.
# * Compare epochs, never steps. Leave the first steps out.
# * On a shared machine use CPU seconds and the critical path.
# * With `comm.size == 1` every one of these faults is invisible.
#
# More to try, in `handson/bug4_slower`. And on your own program: what would *its* table look like?

# %%
desk.score()
