# %% [markdown]
# # Bug 1: how many ranks say it?
#
# **Aim.** Read the log of an N-rank job: count duplicated errors, and know what the count proves, and
# what it does not.
#
# **You need** no other lab, no GPU and no cluster. The jobs have four ranks, and run on this machine. It
# takes about 45 minutes.
#
# A job with N ranks runs one program N times. When it fails, its log holds up to N tracebacks, and their lines
# are mixed. A rule that is often heard:
#
# > **Count the errors.** As many as ranks: the fault is in the code that all run. Fewer: it depends on the
# > rank, that is on its data or its device.
#
# It is a good rule, and it takes a second. It also lies sometimes. In this lab you see both.
#
# | word | meaning |
# |---|---|
# | rank | one process of the job, and its number from 0 to N−1 |
# | whole | the rank printed its traceback down to the last line, which names the error |
# | cut | it began a traceback, and was ended before the last line |
# | silent | it printed no traceback |

# %%
import re
import tempfile
from pathlib import Path

from allhands import triage
from allhands.grade.desk import Desk
from allhands.train.faults import bug1_errorcount as ours
from allhands.train.faults.bug1_errorcount_log import (
    NOT_OWN_NAME,
    OWN_NAME,
    by_label,
    recorded,
    run,
    tabulate,
)
from allhands.train.faults.readings import readings
from allhands.train.rungs import start

desk = Desk("bug1_errorcount")

# %% [markdown]
# ## 1. The log of four ranks
#
# The program counts words: 102 sentences, a share of them on each of four ranks. It has a fault. `run` starts
# it on four real ranks of this machine, and keeps what they write. The number in brackets is the **label**: the
# launcher puts it before each line, and it is the rank.
#
# **Predict:** how many lines will this log have, if one traceback has twelve?

# %%
logs = {"type": run("type")}
print(logs["type"].text)

# %% [markdown]
# A real log looks like that: the ranks failed at the same moment, and their lines are mixed. (In which order the
# lines came, nobody knows here. In `log.text` the ranks take turns.) To read one rank, keep the lines with its
# label. `log.output` is `{rank: its lines}`.

# %%
print(logs["type"].output[3])

# %% [markdown]
# Two more logs. The first is the same program with another fault. (`"delayed"` says how the job ends; section 5
# comes to that.) The second is a job on four GPUs, recorded:
# an array is made before each rank chooses its device. (The GPUs were virtual ones, which complain in CuPy's
# words. `bug3_togpu` is about them.)

# %%
logs["index"] = run("index", "delayed")
logs["device"] = recorded("device")

for name in ("index", "device"):
    print(f"--- {name} ---\n{logs[name].text}\n")

# %% [markdown]
# ### Exercise: `by_hand`
#
# How many ranks printed the error whole, in each of the three logs? Read, and count. Give
# `by_hand = {"type": ..., "index": ..., "device": ...}`.

# %% exercise="by_hand"
### BEGIN SOLUTION
by_hand = {"type": 4, "index": 1, "device": 3}
### END SOLUTION

# %% check="by_hand"
desk.check("by_hand", by_hand, logs)

# %% [markdown]
# Three typical pictures:
#
# * **All ranks.** The code that all run. Debug it with one process: it fails there too. (`np.zeros` wants the
#   shape as one pair. Its second argument is the data type.)
# * **One rank.** Its share of the data. Here rank 2 has a sentence with a word that is not in the table.
# * **All but rank 0.** Something that rank 0 has and the others have not: most often everything was put on
#   GPU 0.
#
# Nobody counts a hundred ranks by hand. The next two exercises teach it to a function.

# %% [markdown]
# ## 2. When do two ranks say the same?
#
# The four last lines of the first log:

# %%
for rank, text in logs["type"].output.items():
    print(rank, text.splitlines()[-1])

# %% [markdown]
# One fault, and two texts: 102 sentences on four ranks are shares of 26 and 25. Messages of ranks differ in
# sizes, indices, addresses and devices. Whoever compares texts finds two errors of two ranks each, and goes
# looking for what is special about ranks 0 and 1.
#
# ### Exercise: `normalise`
#
# `re.sub(pattern, put, text)` replaces what fits a pattern. In a pattern, `(?<!\w)` means: no letter, digit or
# `_` just before; `(?!\w)`: none just behind.


# %% exercise="normalise"
def normalise(message):
    """The message without what differs from rank to rank: two ranks with one fault say the same.

    Addresses (0x7f3a9c) become "<address>". Numbers (26, -1, 0.5, 1e-05) become "<n>", also behind
    a colon or in brackets: cuda:1, (26, 4). Digits inside a name stay: float32, conv1.
    """
    ### SOLUTION FROM allhands.train.faults.bug1_errorcount:normalise


# %% check="normalise"
desk.check("normalise", normalise)

# %%
normalise = desk.carry_on("normalise", normalise, ours.normalise)
{normalise(text.splitlines()[-1]) for text in logs["type"].output.values()}

# %% [markdown]
# It is a choice, and no choice is always right. If the index itself is the fault, you have just removed it.
# So group by the normalised message, and then look at the real ones.

# %% [markdown]
# ## 3. The counter
#
# ### Exercise: `count`
#
# Count ranks, and not lines: a rank may print its error twice, or a second one because of the first
# ("During handling of the above exception, another exception occurred").


# %% exercise="count"
def count(output, normalise):
    """Which ranks printed a whole traceback, which a part of one, and which none?

    output: {rank: the text of this rank}. Return {"complete": {message: ranks}, "cut": ranks,
    "silent": ranks}, where `ranks` are sorted lists.

    A traceback begins with the line "Traceback (most recent call last):". It is complete if a line
    without indent follows, the error ("TypeError: ..."); then `normalise(line)` is its message. A
    rank counts once, under its first error: a second traceback is a consequence of the first.
    """
    ### SOLUTION FROM allhands.train.faults.bug1_errorcount:count


# %% check="count"
desk.check("count", count)

# %%
count = desk.carry_on("count", count, ours.count)
for name, log in logs.items():
    print(f"{name}: {count(log.output, normalise)}")

# %% [markdown]
# ## 4. What the count says
#
# In the log `index`, three ranks are silent. Are they in good health? That depends on one thing: **had they
# time to say something?** `log.had_time` knows: True if each rank ended by itself, or if the job waited some
# seconds before it was ended. False if the first rank that failed ended the job at once.
#
# ### Exercise: `verdict`


# %% exercise="verdict"
def verdict(n_ranks, n_complete, had_time):
    """What does the count say? "all ranks", "some ranks" or "undetermined".

    n_complete: how many of the `n_ranks` ranks printed this error whole. had_time: False if the job
    was ended at the first failure, True if the other ranks had time to print an error of theirs.

    All ranks fail in the same way: "all ranks", not a matter of rank or device. Fewer, and the
    others had time: "some ranks", it depends on the rank. Fewer, and they had none: nobody knows.
    """
    ### SOLUTION FROM allhands.train.faults.bug1_errorcount:verdict


# %% check="verdict"
desk.check("verdict", verdict)

# %%
verdict = desk.carry_on("verdict", verdict, ours.verdict)
print(tabulate(logs.values(), count, normalise, verdict))

# %% [markdown]
# ## 5. The abort race
#
# Why would a job be ended at the first failure? Because otherwise it may never end. Rank 2 raises; the others
# wait for it in an all-reduce; rank 2 waits at its end for the others. Python's own way, with a time limit
# of 3 s:

# %%
hanging = run("index", "plain", time_limit_s=3)
print(f"ended after {hanging.wall_s:.1f} s")
print(tabulate([hanging], count, normalise, verdict))

# %% [markdown]
# On a cluster the limit is a day, and you pay for it. So people let the rank that fails abort the whole job:
#
# * **mpi4py**: `python -m mpi4py script.py` aborts the job when a script ends with an error.
# * **hook**: ChainerMN's `global_except_hook` prints the traceback and a banner, and aborts. Launchers like
#   `torchrun` and `srun --kill-on-bad-exit` end the other ranks, too.
#
# Now the fault `type`, **which all ranks have**. They come to it one after the other, 0.3 s apart, as ranks do
# whose data or disks are not equally fast. And each write to the log takes 0.06 s, as on a slow terminal; so you
# see more of what happens.
#
# **Predict** the four rows: how many of the four tracebacks are whole, how many cut, how many ranks silent?
#
# | ending | what a rank does after its traceback |
# |---|---|
# | plain | it ends |
# | mpi4py | it aborts the job |
# | hook | a banner of eight lines, then it aborts the job |
# | delayed | it waits 1.5 s, then it aborts the job |

# %%
endings = ("plain", "mpi4py", "hook", "delayed")
race = [run("type", one, spread_s=0.3, write_s=0.06, wait_s=1.5) for one in endings]
print(tabulate(race, count, normalise, verdict))

# %% [markdown]
# ![Two timelines of four ranks: aborted at once, one traceback is whole; after a wait, all four are](../slides/figures/bug1_errorcount_race.svg)
#
# One fault of all ranks. With an abort at once, the plain rule says "it depends on the rank", and it is wrong.
# The cut tracebacks are a trace of the race; a silent rank leaves none.
#
# You may say: that was made slow on purpose. Here is the hook without slow writing, the ranks 0.05 s apart,
# three times.

# %%
fast = [run("type", "hook", spread_s=0.05) for _ in range(3)]
print(tabulate(fast, count, normalise, verdict))

# %% [markdown]
# The same measured for this course with 8 ranks on 2 cores, whole tracebacks in each of 8 to 12 runs:
#
# | launcher and ending | all come at once | 0.2 s apart (spread) | 2 s |
# |---|---|---|---|
# | Open MPI 5.0.11, plain | always 8 | always 8 | always 8 |
# | Open MPI 5.0.11, hook | 6 to 8 | 1 to 8 | 1 or 2 |
# | Open MPI 5.0.11, mpi4py | always 8 | 1 to 7 | 1 |
# | Open MPI 5.0.11, delayed by 3 s | | always 8 | always 8 |
# | MPICH 5.0.2, hook | 1 to 3 | 1 or 2 | 1 |
#
# So **count = N is strong, whatever ended the job. Count < N proves nothing if the job was aborted at once.**
# The marks of an abort in a log: `MPI_Abort`, `MPI_ABORT was invoked`, `Sending process ... closing signal
# SIGTERM`, the banner of ChainerMN.
#
# ### Exercise: `decide`
#
# A log has 1 whole traceback of 4 ranks, and the line `application called MPI_Abort`. Which experiment decides
# whether the fault depends on the rank?
#
# * a) The same run again, three times.
# * b) The same run on 8 ranks.
# * c) One process; or the same ranks with an abort that waits some seconds.
# * d) The same run with a longer time limit.

# %% exercise="decide"
### BEGIN SOLUTION
decide = "c"
### END SOLUTION

# %% check="decide"
desk.check("decide", decide)

# %% [markdown]
# For programs of your own: `allhands.train.excepthook.end_job_on_error(comm)` is such a hook. It writes the
# traceback in **one** write, so that it cannot be cut, waits 3 s, and aborts. Then nothing hangs, and the
# count is worth something.

# %% [markdown]
# ## 6. When the count is neither one nor N
#
# Many programs label their lines themselves, because not every launcher does. Here is the type error again,
# in a program that writes its own rank: `rank 2: Traceback ...`. On the left is the label of the launcher.
#
# **Predict:** it is a fault of all four ranks, and nobody aborts. What will the count by the program's own
# names be?

# %%
named = run("ids")
print("\n".join(line for line in named.text.splitlines() if re.search("Traceback|Error", line)))

# %%
for name, text in by_label(named.text, OWN_NAME).items():
    print(f"the program's rank {name}: {text.count('Traceback')} tracebacks")
print("by the launcher's labels:", count(by_label(named.text, NOT_OWN_NAME), normalise)["complete"])

# %% [markdown]
# Four tracebacks, and two names. Whoever counts names says: "two ranks of four; ranks 2 and 3 are in good
# health". Both are wrong. If each process wrote a file `error.rank0.log`, two files would be overwritten.
#
# Two tracebacks under one name, and ranks that never say a word: look for a **rank that is set twice**.
#
# ### Exercise: `identify`
#
# The program runs on two nodes with two processes and two devices each. (Both nodes are this machine.) Repair
# the function.


# %% exercise="identify"
def identify(world):
    """Who am I? Return {"rank": ..., "device": ..., "size": ...}.

    rank: this process among all, 0 .. size - 1. It names the process in the log, and it says which
    share of the sentences is its own: numbers[rank::size]. device: the number of its device on its
    node, from 0. A node has two processes here. world: the communicator of all processes.
    """
    ### SOLUTION FROM allhands.train.faults.bug1_errorcount:identify


# %%
for process, me in enumerate(start(identify, ranks=4, time_limit_s=20)):
    print(f"process {process}: {me}")

# %% check="identify"
desk.check("identify", identify)

# %% [markdown]
# The wrong label is the smaller damage. The rank also says which sentences a process reads:

# %%
both = readings("bug1_errorcount:identify")
for name, function in (("as it was given", both.faulty), ("repaired", both.repaired)):
    found = start(function, ranks=4, time_limit_s=20)
    read = {n for me in found for n in range(102)[me["rank"] :: me["size"]]}
    print(f"{name}: {len(read)} of 102 sentences are read by somebody")
# > as it was given: 52 of 102 sentences are read by somebody
# > repaired: 102 of 102 sentences are read by somebody

# %% [markdown]
# Half of the data is read twice, and the other half by nobody. No error, no hang, only a worse model.
# `bug3_togpu` has the same for devices: a device that is set twice.

# %% [markdown]
# ## 7. When N of N depends on the device
#
# A log of two nodes with two GPUs each. (This one was written for the lab, in the words of public reports.)

# %%
duplicate = recorded("duplicate")
print(duplicate.output[2])
print("\nlast lines:")
for rank, text in duplicate.output.items():
    print(rank, text.splitlines()[-1])

# %%
print(tabulate([duplicate], count, normalise, verdict))

# %% [markdown]
# ### Exercise: `trap`
#
# Four of four. What follows?
#
# * a) All ranks print it, so it is no matter of ranks or devices: debug it with one process.
# * b) The message compares ranks, so all print it: one process alone cannot show it.
# * c) Rank 0 is at fault, because its name comes in two messages.
# * d) The count is not 4: the last lines are all different.

# %% exercise="trap"
### BEGIN SOLUTION
trap = "b"
### END SOLUTION

# %% check="trap"
desk.check("trap", trap)

# %% [markdown]
# What to look at besides the count:
#
# | what you see | what it points to |
# |---|---|
# | all but rank 0 | GPU 0 or process 0 is special |
# | the ranks of exactly one node | that node, or its network |
# | N−1 ranks with "connection closed" or a time-out, and one with another error | the one: the others only lost it |
# | all ranks, and the message names ranks or devices | they compare themselves; read who is the odd one |
# | one traceback, and no rank in it | the launcher itself: a port in use, a wrong option |
# | N tracebacks, and the job went on | an exception that was caught: nothing failed |
#
# In 40 logs that were made after public bug reports, the plain rule of counting gives a wrong answer in 8.

# %% [markdown]
# ## 8. A tool that counts
#
# `allhands triage LOG` does what you did, for the labels of many launchers, and looks at those signs too. Let
# it read the logs of this lab.
#
# **Predict:** for which logs will it say something else than your verdict?

# %%
temporary = tempfile.TemporaryDirectory(prefix="bug1-")  # goes with the kernel
folder = Path(temporary.name)
for log in (*logs.values(), *race[1:], duplicate):
    path = folder / f"{log.name.replace(', ', '_')}.log"
    path.write_text(log.text + "\n", encoding="utf-8")
    answer = triage.triage([path])
    depends = {True: "yes", False: "no", None: "undetermined"}[answer.rank_dependent]
    print(
        f"{path.name:18} {answer.duplicate_count} of {answer.world_size}, depends on the rank: {depends}"
    )

# %%
print(triage.report(triage.triage([folder / "device.log"])))

# %% [markdown]
# Where it differs from your verdict, read its reasons (`triage.report`): it also uses cut tracebacks, and the
# kind of the error. A missing argument is missing on all ranks, whoever had the time to say so. And for the
# duplicate GPU its "no" means: all ranks have the same cause. For `index_delayed` it says "undetermined": you knew that
# the abort had waited, and the tool sees only that the log ends with an abort.

# %% [markdown]
# ## On the cluster
#
# `cluster_jobs/submit bug1_errorcount` starts the same program on four ranks of two nodes, with the fault
# `type` and 1 s between the ranks. It fails on purpose. How many tracebacks does **your** launcher let through?
# `allhands triage` reads its log. With `-- --ending hook` it aborts at once, with `-- --ending delayed` it waits.

# %% [markdown]
# ## What you saw
#
# * The same fault has different texts on different ranks: normalise, then count **ranks**.
# * Count = N: the code that all run. Debug it with one process. Unless the message compares ranks or devices.
# * Count < N, and nobody ended the job early: it depends on the rank.
# * Count < N after an abort: undetermined. One process, or a delayed abort, decides.
# * Two tracebacks under one name: a rank was set twice.

# %%
desk.score()
