# %% [markdown]
# # Lab 0: what is under your hands
#
# **Aim.** Say what this machine has: cores, ranks, devices, a scheduler, and the start-up time and bandwidth of
# its link.
#
# **You need** nothing but this notebook. No GPU and no cluster: two CPU cores are enough. It takes about 45 minutes.
#
# Before you drive a car that is not yours, you look where the brake is. Here you look at a machine in the same way:
# once, before you need it. Everything that you do here on a laptop is the same on a cluster, with more of it.
#
# ![Two nodes with two ranks each: rank, local rank, device, and the link between the nodes](../slides/figures/lab0_doctor_ranks.svg)
#
# A **node** is one computer. A **rank** is one process of a parallel program. A **device** is what a rank computes on: a
# GPU, or the cores of the node. A **link** is what lies between two ranks.
#
# How this notebook works:
#
# * **Predict** means: stop, and write down a guess. A wrong guess teaches more than none.
# * Write your answer where you see `# your code here`. Then run the check below it.
# * A check answers in sentences. It gives points, and never an error.
# * Stuck? `desk.hint("here")` gives one hint, and then the next.
# * You can go on without an answer: the notebook then uses the package's version.

# %%
import os
import re
import subprocess
import sys

import numpy as np

from allhands import doctor
from allhands.grade.desk import Desk
from allhands.launch import by_script, job_header

desk = Desk("lab0_doctor")

# %% [markdown]
# ## 1. The machine
#
# The doctor looks at this machine, and says a line for each thing: what it is, what was seen, and what to do if it
# is not as it should be. It only looks. In a terminal the same is `allhands doctor`.
#
# **Predict:** how many cores will it find? How many GPUs?

# %%
findings = doctor.probe_all()
doctor.report(findings)

# %% [markdown]
# Read it as you read a log: first what is `bad`, then `warn`. What is `good` you need not read. The last line says
# whether the labs run here, and at which level: on CPU ranks, or on GPUs. Programs ask the exit code of `allhands doctor`
# instead: 0 is good.
#
# The doctor says how many cores **this process may use**. That need not be what the machine has: a scheduler, or a
# container, gives you a part of it.

# %%
print("the machine has", os.cpu_count(), "cores, as the system counts them")

# %% [markdown]
# ### Exercise: `here`
#
# How many cores may this process use? And if two ranks share them: how many threads may each take
# (`OMP_NUM_THREADS`), so that there are not more threads than cores? Each needs at least 1.
#
# `here = {"cores": ..., "threads": ...}`

# %% exercise="here"
### BEGIN SOLUTION
here = {
    "cores": (cores := int(next(one.seen for one in findings if one.name == "cores").split()[0])),
    "threads": max(1, cores // 2),
}
### END SOLUTION
here

# %% check="here"
desk.check("here", here)

# %% [markdown]
# ## 2. A job script, read aloud
#
# On a cluster you do not start programs yourself. You write down what you need and what is to be run: a **job
# script**. You hand it to the **scheduler**, which puts it into a **queue**, and starts it when the nodes are free. Here is
# the job script of this lab.

# %%
print((by_script.PROJECT / "cluster_jobs" / "lab0_doctor.slurm").read_text())

# %% [markdown]
# Read it aloud:
#
# * `#SBATCH` lines are the **header**: what Slurm, the scheduler, is asked for. Two nodes, one task (a rank) on each,
#   one core for each, five minutes at most. For bash they are comments. (PBS is another scheduler: its lines begin with
#   `#PBS`, see `lab0_doctor.pbs`.)
# * `#NEEDS` says the same for our program `submit`, whatever the scheduler is called.
# * The line with `run.sh` brings what belongs to the **site**: the environment, the modules, the launcher. The queue and
#   your account are there as well, so no script of this course names them.
# * `run` is the one command. It starts the program on all ranks, and writes the log.
# * The last line ends the job with the program's **exit code**. 0 is good.
#
# ### Exercise: `script`
#
# A colleague wants **2 nodes with 2 ranks each, for at most ten minutes**. The job gets one node, one rank and one minute
# (Slurm rounds a limit up to whole minutes). Its program fails, and Slurm says: completed, exit code 0. There are four faults
# in this text. Repair them.

# %% exercise="script"
### BEGIN SOLUTION
### FAULT script = """#!/bin/bash
### FAULT #SBATCH --job-name=first
### FAULT # SBATCH --nodes=2
### FAULT #SBATCH --time=00:10
### FAULT
### FAULT echo "I begin"
### FAULT
### FAULT #SBATCH --ntasks-per-node=2
### FAULT
### FAULT srun python train.py
### FAULT echo "I have ended"
### FAULT """
script = """#!/bin/bash
#SBATCH --job-name=first
#SBATCH --nodes=2
#SBATCH --time=00:10:00
#SBATCH --ntasks-per-node=2

echo "I begin"
srun python train.py
"""
### END SOLUTION

# %% [markdown]
# `job_header.header` reads a script as Slurm does. **Predict**, before you change anything: which lines count?

# %%
print(job_header.header(script))

# %% check="script"
desk.check("script", script)

# %% [markdown]
# ## 3. Your first job
#
# `cluster_jobs/submit` hands the script to the scheduler of your site. Where there is no scheduler, as on a laptop, the
# script runs at once: site `local`. Both write the same files. In a terminal you would say
# `cluster_jobs/submit lab0_doctor --site local`; in this notebook:
#
# **Predict:** how long does it take? What will the two ranks say?

# %%
sent = by_script.submit("lab0_doctor", "--site", "local")

# %% [markdown]
# First it says what it will do: which site, which command, where the log is. What begins with `[job]` the script itself
# says. Then the two ranks say where they run, and measure the link between them: section 5 is about that.
#
# On a cluster, `submit` returns at once, and the job waits in the queue. These are the five words that you need there;
# `--wait` does the first three of them for you.
#
# | you want to | Slurm | PBS |
# |---|---|---|
# | hand in a job | `sbatch job.slurm` | `qsub job.pbs` |
# | see where it is in the queue | `squeue --me` | `qstat -u $USER` |
# | follow its log | `tail -F LOG` | `tail -F LOG` |
# | end it | `scancel ID` | `qdel ID` |
# | ask how it ended | `sacct -j ID`, or `scontrol show job ID` | `qstat -xf ID` |
#
# ### Exercise: `job`
#
# What did your job leave? Read the lines above (or the log itself), and give
#
# `job = {"exit_code": ..., "ranks": ..., "log": "runs/jobs/...", "run_folder": "runs/lab0_doctor/..."}`

# %% exercise="job"
### BEGIN SOLUTION
job = {
    "exit_code": int(re.findall(r"exit code (\d+)", sent.text)[-1]),
    "ranks": len(re.findall(r"^rank \d+ of", sent.text, re.MULTILINE)),
    "log": re.search(r"^log +(\S+)", sent.text, re.MULTILINE)[1],
    "run_folder": re.search(r"Run folder: (\S+)", sent.text)[1],
}
### END SOLUTION
job

# %% check="job"
desk.check("job", job)

# %% [markdown]
# The run folder is where everything of this run is. Here is what lies in that of the last job:

# %%
folder = by_script.run_folder("lab0_doctor")
for path in sorted(folder.iterdir()):
    print(f"{path.stat().st_size:6,} bytes  {path.name}")
print((folder / "places.txt").read_text())

# %% [markdown]
# ## 4. Ranks, and where they run
#
# `start(program, ranks=2)` writes a function to a file, starts ranks that run it, and returns a list with the result of
# each. It does what `mpiexec -n 2` does. What a rank prints has its number in front. `comm` is MPI's **communicator**: all
# ranks that can talk to each other. `comm.rank` is this one's number, `comm.size` how many there are.
#
# **Predict** the output, for two ranks.

# %%
from allhands.train import rank_place
from allhands.train.rungs import start


def who(comm):
    print(f"I am rank {comm.rank} of {comm.size}")
    return 10 * comm.rank


start(who, ranks=2)
# > [0] I am rank 0 of 2
# > [1] I am rank 1 of 2
# = [0, 10]

# %% [markdown]
# Look at the picture at the top again. `rank` counts through the whole job. But devices are numbered within a node: each
# node has a device 0. So a rank needs a second number, its **local rank**: its number within its own node, from 0 on.
#
# And there are two ways to lay four ranks on two nodes. The picture shows both. Who decides? The launcher, by the options
# of the job. So a program must not guess: it must look.
#
# ### Exercise: `local_rank`


# %% exercise="local_rank"
def local_rank(comm, host):
    """How many ranks with a smaller number are on the same host as this rank.

    `host` is the name of this rank's host. Every rank calls it: `comm.allgather(host)` is the list
    of the names of all ranks, that of rank 0 first. Ranks may lie on the hosts in any order.
    """
    ### SOLUTION FROM allhands.train.rank_place:local_rank


# %% check="local_rank"
desk.check("local_rank", local_rank)

# %%
local_rank = desk.carry_on("local_rank", local_rank, rank_place.local_rank)

# %% [markdown]
# Four real ranks. This machine is one host, so the names of the hosts are made up, in the second way of the picture.
#
# **Predict:** which device does rank 2 take? And rank 1?


# %%
def on_two_nodes(comm, local_rank):
    host = f"n{comm.rank % 2 + 1}"
    print(f"rank {comm.rank} of {comm.size} on {host}: device {local_rank(comm, host)}")


results = start(on_two_nodes, local_rank, ranks=4)
# > [0] rank 0 of 4 on n1: device 0
# > [1] rank 1 of 4 on n2: device 0
# > [2] rank 2 of 4 on n1: device 1
# > [3] rank 3 of 4 on n2: device 1

# %% [markdown]
# Who tells a process its rank? The **launcher** does: `mpiexec`, or Slurm's `srun`. It starts the processes, and MPI inside
# of them asks it: who am I? How many are we? Both must belong to the same MPI.
#
# **Predict:** what does a process say that no launcher has started? We start two of them, at the same time.

# %%
program = [sys.executable, "-m", "allhands.train.rank_place"]
for one in [subprocess.Popen(program, stdout=subprocess.PIPE, text=True) for _ in range(2)]:
    print(one.communicate()[0], end="")

# %% [markdown]
# ### Exercise: `worlds`
#
# A colleague asks for 2 ranks. The log says `rank 0 of 1` twice; the exit code is 0; and the training takes as long as on
# one rank. What has happened?
#
# * **a** Rank 1 has crashed, and rank 0 was started again.
# * **b** There are two worlds of one rank each: the launcher and mpi4py belong to different MPIs.
# * **c** Both ranks are on the same node, so they have the same number.
# * **d** It is normal: each rank counts itself as 0.
#
# Give the letter as `answer`.

# %% exercise="worlds"
### BEGIN SOLUTION
answer = "b"
### END SOLUTION

# %% check="worlds"
desk.check("worlds", answer)

# %% [markdown]
# The doctor tries this: its line about MPI starts two ranks, and looks whether they find each other. And a job of this course
# knows how many ranks it should have (`ALLHANDS_RANKS`), so a wrong world ends it, with a sentence:

# %%
asked_for_two = {**os.environ, "ALLHANDS_RANKS": "2"}
alone = subprocess.run(program, env=asked_for_two, capture_output=True, text=True)
print(alone.stderr.splitlines()[-1])
print("exit code", alone.returncode)
# > allhands.launch.job.LaunchError: asked for 2 ranks, but the world of this one has size 1: do the launcher and mpi4py belong to one MPI?
# > exit code 1

# %% [markdown]
# ## 5. The link
#
# Two ranks talk in **messages**. How long is a message of $s$ bytes on its way? A good first answer is a straight line:
#
# $$T(s) = a + b\,s$$
#
# $a$ is the **start-up**: what a message costs before its first byte has moved. $b$ is the time of one byte; $1/b$ is the
# **bandwidth**.
#
# To measure it, two ranks throw a ball back and forth. Why back and forth, and not just one way? Because then one clock is enough.
#
# ### Exercise: `message`


# %% exercise="message"
def message_s(comm, n_bytes, repeats, clock):
    """The time of one message of `n_bytes` bytes between ranks 0 and 1, in seconds.

    Both ranks call it. In a round trip rank 0 sends the bytes to rank 1, and rank 1 sends them
    back: two messages. Make `repeats` round trips, and return half of the shortest: whatever else
    the machine does can only make one longer.

    `comm.Send(ball, dest=1)` and `comm.Recv(ball, source=1)` take a NumPy array; one number of
    type `np.uint8` is one byte. `clock()` gives the time in seconds.
    """
    ### SOLUTION FROM allhands.train.ping_pong:message_s


# %% check="message"
desk.check("message", message_s)

# %%
from allhands.train import ping_pong
from allhands.train.rungs import start

message_s = desk.carry_on("message", message_s, ping_pong.message_s)

# %% [markdown]
# Now with two real ranks of this machine, from 4 bytes to 4 MB.
#
# (The `comm` of `start` takes notes of each call, which costs time. So here we take MPI's own, `COMM_WORLD`.)
#
# **Predict:** how long are 4 bytes on their way, in microseconds? How long 1,000 bytes: as long, or 250 times as long? And
# 4 MB?


# %%
def time_them(comm, message_s):
    import time

    from mpi4py import MPI

    sizes = [4**power for power in range(1, 12)]
    return sizes, [message_s(MPI.COMM_WORLD, size, 50, time.perf_counter) for size in sizes]


sizes, times_s = start(time_them, message_s, ranks=2, time_limit_s=60)[0]
for n_bytes, time_s in zip(sizes, times_s, strict=True):
    print(f"{n_bytes:10,} bytes {1e6 * time_s:9.1f} us")

# %% [markdown]
# `fit` finds the line that makes the **relative** errors small, so small messages count as much as large ones. Look at
# the picture: left it is flat, right it rises. Where does it bend? (If `fit` refuses your table, the machine was busy: run
# the cell above once more.)

# %%
from allhands.mgwfbp.fit import fit
from allhands.trace import draw_link

found = fit(sizes, times_s)
print(found)
draw_link.link({"one message": draw_link.Measured(sizes, times_s, found.cost)}, "two ranks, here")

# %% [markdown]
# The points do not lie exactly on a line. MPI changes its ways with the size: it copies small messages twice, and arranges
# a meeting for large ones. A line is a model. Here it says most times within some ten percent, and errs more where the way
# changes.
#
# ### Exercise: `link`
#
# Say it in units that people use: the start-up in microseconds, the bandwidth in megabytes (1,000,000 bytes) a second, and
# the size whose bytes take as long as its start-up. From `found.cost.startup_s` (this is $a$) and
# `found.cost.s_per_byte` ($b$):
#
# `link = {"startup_us": ..., "mb_per_s": ..., "half_bytes": ...}`

# %% exercise="link"
### BEGIN SOLUTION
link = {
    "startup_us": 1e6 * found.cost.startup_s,
    "mb_per_s": 1e-6 / found.cost.s_per_byte,
    "half_bytes": found.cost.startup_s / found.cost.s_per_byte,
}
### END SOLUTION
link

# %% check="link"
desk.check("link", link, sizes, times_s)

# %% [markdown]
# A model is worth something if it predicts what was not measured. The gradient of lab 1's translator has 1,028,472 bytes.
#
# **Predict**, with your two numbers and pencil and paper: how long is it on its way? Then run.


# %%
def time_one(comm, message_s):
    import time

    from mpi4py import MPI

    return message_s(MPI.COMM_WORLD, 1_028_472, 50, time.perf_counter)


seen_s = start(time_one, message_s, ranks=2, time_limit_s=60)[0]
said_s = found.cost(1_028_472)
print(f"predicted {1e6 * said_s:.0f} us, measured {1e6 * seen_s:.0f} us")

# %% [markdown]
# ### Another link
#
# Your two ranks share the memory of one machine: their link is a copy. Between two nodes there is a network. Say it is one
# of 1 Gbit/s, with a delay of 250 us. **Predict** its $a$ and its $b$, before you look at the picture: how many ns does a byte
# take, of 8 bits?
#
# Here it is, as recorded between two hosts of a *cluster in a box* (section 7). Below it are two ranks of one machine.
#
# ![Time over size: two ranks of one machine, and two hosts with a network between them](../slides/figures/lab0_doctor_link.svg)
#
# The network's line is $a$ = 293 us and $b$ = 8.6 ns a byte: 116 MB a second. The 250 us were set; 40 us more are the work of
# MPI and of the box. 1 Gbit/s alone would be 8 ns; the rest are the headers of the packets. And look where the lines bend:
# the network's start-up **and** its time of a byte are more than a hundred times as long, so its $a/b$ is only twice as large.
#
# ### Exercise: `merge`
#
# A program sends a hundred gradients of 1,000 bytes each over the slower one of these links: the network. Which of these
# makes that much faster?
#
# * **a** A network with ten times the bandwidth.
# * **b** Numbers of 16 bits (FP16) instead of 32 (FP32): half the bytes.
# * **c** One message of 100,000 bytes instead of a hundred of 1,000.
# * **d** Twice as many nodes.
#
# Give the letter as `answer`.

# %% exercise="merge"
### BEGIN SOLUTION
answer = "c"
### END SOLUTION

# %% check="merge"
desk.check("merge", answer)

# %% [markdown]
# ## 6. What is kept
#
# Training needs more than messages: in an **all-reduce** all ranks give an array, and all get the sum. Your first job has
# measured this as well. `link.csv` in its run folder has the times, `link.json` the line.
#
# **Predict:** on two ranks, is an all-reduce as long as one message, or longer? By what factor?

# %%
from allhands.mgwfbp.table import read_table

for name, file in {"one message": "message.csv", "one all-reduce": "link.csv"}.items():
    time_s = dict(zip(*read_table(folder / file), strict=True))
    small_us, large_us = 1e6 * time_s[4], 1e6 * time_s[2**20]
    print(f"{name:15} {small_us:8.1f} us for 4 bytes, {large_us:8.1f} us for 1,048,576 bytes")

# %% [markdown]
# An all-reduce is more than a message: the ranks first wait for each other, and lab 2 shows what else it does. Lab 4 plans with
# the line of the all-reduce, its $a$ and its $b$, for your own link. So we keep it where lab 4 looks: `runs/link.json`, in the folder of this notebook. When you have a cluster, put the `link.json` of a job on two
# nodes there instead: the job's log says how.

# %%
from allhands.mgwfbp import own_link

kept = own_link.load(folder / "link.json")
own_link.save(kept, own_link.KEPT)
print(own_link.load())

# %% [markdown]
# ## 7. The same on a cluster
#
# **You have an account on one.** Log in, make the environment there (`make env`), and write down once what belongs to your
# site: `allhands site init` asks you. Then:
#
# ```
# allhands doctor                               # on the login node
# cluster_jobs/submit lab0_doctor --dry-run     # what would be done?
# cluster_jobs/submit lab0_doctor --wait        # two nodes; follows the log
# ```
#
# **You have a laptop with Linux.** Then you can have a cluster in a box: a real Slurm with several hosts, inside of this
# machine, and gone without a trace when you say so. As root (`sudo .venv/bin/allhands ...`, if you are not):
#
# ```
# .venv/bin/allhands box up --nodes 2 --rate 1gbit --delay 250us
# .venv/bin/allhands box sh                     # a shell on its login node: sinfo, sbatch, squeue
# .venv/bin/allhands box down
# ```
#
# In both you can practise what a scheduler can do: arrays, jobs that wait for others, ending a job, exit codes. The bench
# has scripts for it, and tasks: `handson/lab0_doctor/README.md`.
#
# ## 8. What you saw
#
# * The doctor says what is here. First `bad`, then `warn`.
# * A job script says what a job needs, and runs one command. Headers that do not count are not reported.
# * A job leaves a log, an exit code and a run folder. Ask for these first.
# * `rank` counts through the job, `local rank` within a node. Devices go by the local rank.
# * `rank 0 of 1`, twice: two worlds. Check the size of yours.
# * A link is two numbers. Below $a/b$ bytes send fewer messages; above it, fewer bytes.
#
# **Next:** `lab1_seq2seq` trains a translator on one device.

# %%
desk.score()
