# %% [markdown]
# # Your own program
#
# **Aim.** Bring a program of your own to many ranks: measure it on one device, find the lines that must change, change
# them, prove that the answer is the same, and say in figures what it has brought.
#
# **You need** lab 2; lab 3 if you use mixed precision. Bug 1 to 4 when something goes wrong. It takes about 90 minutes
# for the rehearsal, and as long as you like for your own program. No GPU is needed for the rehearsal.
#
# We rehearse on a small program that somebody has brought: `handson/hack_owncode/one_device.py`, a classifier in
# PyTorch. Each section ends with a line **Yours**: do the same with your program.

# %%
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, DistributedSampler

import allhands
from allhands import launch, migrate
from allhands.grade.desk import Desk
from allhands.train import own_page, own_program

desk = Desk("hack_owncode")
temporary = tempfile.TemporaryDirectory(prefix="own-")  # goes with the kernel
folder = Path(temporary.name)
bench = Path(allhands.__file__).parents[1] / "hack_owncode"
print((bench / "one_device.py").read_text())

# %% [markdown]
# ## 1. One device first
#
# How fast is it now? Without this figure nobody can say later whether anything was won.
#
# Two things make such a figure wrong. The **first steps** are slow: files are opened, kernels are chosen, memory is
# taken. And a GPU works **behind the program's back**: a line that asks for a step returns at once.
#
# **Predict:** a step takes the GPU 1 s, and asking for it takes 0.01 s. You read the clock, ask for ten steps, and read
# the clock again. How many steps a second do you see?
#
# ### Exercise: `measure`


# %% exercise="measure"
def steps_per_s(step, wait, clock, n_steps, warm_up):
    """How many steps a second a device makes, once it runs well.

    step(): asks the device for one step, and returns at once. wait(): returns when all that was
    asked for is done (on a GPU: torch.cuda.synchronize). clock(): the time in seconds.
    The first `warm_up` steps are made and do not count. Then `n_steps` steps are timed together.
    """
    ### SOLUTION FROM allhands.train.own_program:steps_per_s


# %% check="measure"
desk.check("measure", steps_per_s)

# %%
steps_per_s = desk.carry_on("measure", steps_per_s, own_program.steps_per_s)
model, (x, y) = own_program.network(), own_program.samples(1024, seed=1).tensors


def one_step():
    torch.nn.functional.cross_entropy(model(x), y).backward()


speed = steps_per_s(one_step, lambda: None, time.perf_counter, n_steps=20, warm_up=3)
print(f"forward and backward of 1,024 samples on this CPU: {speed:.1f} times a second")

# %% [markdown]
# On a CPU there is nothing to wait for, so `wait` does nothing.
#
# **Yours:** a fixed seed, one command, samples a second, the loss at the end. Write the figures down now.
#
# ## 2. What would go wrong?
#
# `allhands check` reads a program without running it. For one without ranks it shows the lines that the edits of lab 2
# change, in their order.
#
# **Predict:** which lines of the program above?

# %%
print(migrate.report(migrate.check(bench / "one_device.py")))

# %% [markdown]
# A colleague was faster than you, and has migrated the same program already: `in_haste.py`. It starts. Read it first.
#
# **Predict:** how many faults do you see? In which line does a rank wait for one that does not come?

# %%
print((bench / "in_haste.py").read_text())

# %%
checked = migrate.check(bench / "in_haste.py")
print(migrate.report(checked))

# %% [markdown]
# ### Exercise: `findings`
#
# Give `answer = {"sure": [...], "line": ...}`: the names of the rules (they stand in brackets) whose findings are
# **sure**, and the number of the line in which rank 0 waits for the others.

# %% exercise="findings"
### BEGIN SOLUTION
answer = {
    "sure": [each.rule.rule_id for each in checked.of("sure")],
    "line": next(each.line for each in checked.of("sure") if "collective" in each.rule.rule_id),
}
### END SOLUTION

# %% check="findings"
desk.check("findings", answer, checked)

# %% [markdown]
# The check knows only what stands in the text. It says `sure`, `likely` or `look`, and you decide. A line that is right
# as it is gets a comment, `# allhands: ok RULE`, and then it is silent. And nothing found is no proof.
#
# **Yours:** `allhands check my_train.py`, also for a folder or a notebook.
#
# ## 3. The edits
#
# Now better than the colleague. Edits 1, 2 and 4 are a line each, and the program has them:
#
# ```python
# dist.init_process_group("gloo")                       # 1: who am I? On GPUs "nccl"
# torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # 2: my device, where there is one
# model = DistributedDataParallel(network().to(device)) # 4: gradients of all ranks
# ```
#
# Three need a thought. We want **the same answer** as on one device. So the batch size is that of all ranks together,
# as on one device, and each rank takes its part of it. (Edit 7, a larger batch with another rate, would be another
# program: first prove, then change.)
#
# ### Exercise: `share`


# %% exercise="share"
def share(dataset, batch_size, rank, size):
    """Edit 3. A DataLoader of this rank's part of the data, in another order in each epoch.

    batch_size: of all `size` ranks together, a multiple of `size`. The loader's sampler is a
    DistributedSampler; the program calls its `set_epoch` in each epoch.
    """
    ### SOLUTION FROM allhands.train.own_program:share


# %% check="share"
desk.check("share", share)

# %%
share = desk.carry_on("share", share, own_program.share)

# %% [markdown]
# ### Exercise: `total`
#
# Each rank counts right answers among its own held-out samples. **Predict:** rank 0 has 9 of 10 right, rank 1 has 1 of
# 2. Which share is right of all?


# %% exercise="total"
def total(n_right, n, dist):
    """Edit 5. The share of right answers on all ranks together, on every rank.

    n_right, n: what this rank has counted. dist: torch.distributed; `dist.all_reduce(tensor)` adds
    a tensor up over all ranks, in place.
    """
    ### SOLUTION FROM allhands.train.own_program:total


# %% check="total"
desk.check("total", total)

# %%
total = desk.carry_on("total", total, own_program.total)

# %% [markdown]
# ### Exercise: `save`


# %% exercise="save"
def save(state, path, dist):
    """Edit 6. Rank 0 writes `state` to `path` (torch.save); no rank comes back before it is written.

    dist: torch.distributed, with `get_rank()` and `barrier()`.
    """
    ### SOLUTION FROM allhands.train.own_program:save


# %% check="save"
desk.check("save", save)

# %%
save = desk.carry_on("save", save, own_program.save)

# %% [markdown]
# **Yours:** one edit at a time, and a run on **one** rank after each. Then nothing may have changed.
#
# ## 4. The same answer?
#
# Your functions become a file, and `torchrun` starts the program with it: on one rank, and on two. The batch of all ranks
# is the same, and so are the steps.
#
# **Predict:** the losses of two ranks: equal to the last digit, nearly equal, or different?

# %%
edits = own_program.write_edits(folder / "my_edits.py", share, total, save)
for ranks in (1, 2):
    words = ("--out", folder / f"on_{ranks}", "--edits", edits)
    done = launch.torchrun("allhands.train.own_program", *words, ranks=ranks, time_limit_s=240)
    print(done.text(rank=0))

one, two = own_program.read(folder / "on_1"), own_program.read(folder / "on_2")
for step in (0, 1, len(one.losses) - 1):
    print(f"step {step:2}: {one.losses[step]:.7f} {two.losses[step]:.7f}")

# %% [markdown]
# ### Exercise: `same`
#
# `one.losses` and `two.losses` have the loss of every step. Give the **largest relative difference** of all steps,
# $\max_i |a_i - b_i| / |a_i|$, as `largest`.

# %% exercise="same"
### BEGIN SOLUTION
largest = max(abs(a - b) / abs(a) for a, b in zip(one.losses, two.losses, strict=True))
### END SOLUTION
largest

# %% check="same"
desk.check("same", largest, one, two)

# %% [markdown]
# Sums in another order round differently, so the last digits differ, and a bit more in each step. A fault is of another
# size: it changes the first digits, often in the second step already.
#
# **Yours:** the same with your program. With Chainer, `allhands compare` does it for you, and says what differs first
# (lab 2). Mind what draws random numbers: dropout and augmentation make two ranks differ from one, and rightly so.
# Switch them off for the comparison.
#
# ## 5. And how fast?
#
# Only now. `one.samples_per_s` and `two.samples_per_s` are of all ranks together: from the median time of a step, the
# first three left out.
#
# **Predict** the speed-up. The batch of all ranks stayed the same: is that weak or strong scaling?
#
# ### Exercise: `speed`
#
# Give `mine = {"speed_up": ..., "efficiency": ...}`. Efficiency is the share of what two ranks could do.

# %% exercise="speed"
### BEGIN SOLUTION
mine = {"speed_up": two.samples_per_s / one.samples_per_s}
mine["efficiency"] = mine["speed_up"] / two.ranks
### END SOLUTION
mine

# %% check="speed"
desk.check("speed", mine, one, two)

# %% [markdown]
# A small step on a busy laptop may well be slower on two ranks than on one. That is a result, too: say it, and say why
# (lab bug4; `allhands doctor` looks for more threads than cores).
#
# ## 6. One page
#
# At the end each group shows one page: what, before and after, how it was measured, what went wrong, what next.
#
# ### Exercise: `page`
#
# Figures come from the runs. Three sentences are yours. In `what` there is at least one figure.

# %% exercise="page"
### BEGIN SOLUTION
words = {
    "group": "The rehearsal",
    "what": f"A classifier in PyTorch, from 1 to {two.ranks} ranks with the same batch of all.",
    "trouble": "It broke off, as only rank 0 called an all_reduce: allhands check named the line.",
    "next": "Measure on GPUs of two nodes, and then try a larger batch.",
}
### END SOLUTION

# %% check="page"
desk.check("page", words, one, two)

# %%
print(own_page.page(words if isinstance(words, dict) else {}, one, two, checked.as_dict()))

# %% [markdown]
# ## 7. Now yours
#
# In [`handson/hack_owncode`](../handson/hack_owncode/README.md) are the check-list, the page to fill, and a script that
# fills it. On a cluster your program runs on the ranks of a job:
#
# ```
# cluster_jobs/submit hack_owncode -- my_train.py --epochs 2
# cluster_jobs/submit hack_owncode --nodes 2 --ranks-per-node 4 --wait -- my_train.py
# ```
#
# It finds RANK, WORLD_SIZE and LOCAL_RANK as under `torchrun`; ChainerMN and mpi4py find their ranks by themselves.
#
# ## 8. What you saw
#
# * **One device first.** Warm up, wait, and then read the clock.
# * A check reads text: it finds what usually goes wrong, before it costs you a night in the queue.
# * One edit at a time, and on one rank nothing changes.
# * The same batch of all ranks gives the same losses, up to rounding. **Prove it before you measure.**
# * A result is a figure, how it was measured, and what went wrong.

# %%
desk.score()
