# %% [markdown]
# # Lab 4: merging gradients
#
# **Aim.** Fit the cost of a link, plan which gradients travel together, and find out how good the
# published plan really is.
#
# **You need** lab 1, or its idea: gradients become ready one after the other, while the backward pass
# still runs. No GPU and no cluster. Most times are simulated, and the text says from what; some are
# measured here.
#
# Two things cost time when N workers add up their gradients: each message has a **start-up**, and each
# byte takes its time. Many small messages pay many start-ups. One large message starts late, when the
# last gradient is ready. The best plan lies between: **merged gradients**.
#
# ![Three plans for the same gradients: one message each, one for all, merged](../slides/figures/lab4_mgwfbp_timelines.svg)
#
# | symbol | in code | meaning |
# |---|---|---|
# | $L$ | `len(gradients)` | number of gradients |
# | $i$ | index from 0 | order of **arrival**: gradient 0 is the last layer's, and ready first |
# | $r_i$ | `ready_s[i]` | when gradient $i$ is ready, in seconds from the start of the forward pass |
# | $s_i$ | `n_bytes[i]` | its size in bytes |
# | $P_i$ | `bytes_before[i]` | bytes of all gradients before $i$ |
# | $a$ | `cost.startup_s` | start-up of one all-reduce |
# | $b$ | `cost.s_per_byte` | time of one byte |
# | $T(s)$ | `cost(s)` | time of one all-reduce of $s$ bytes: $a + b s$ |

# %%
import itertools

import numpy as np

from allhands.grade.desk import Desk
from allhands.mgwfbp import measured, optimal, rules
from allhands.mgwfbp.cost import AffineCost
from allhands.mgwfbp.fit import fit
from allhands.mgwfbp.gradients import Gradients
from allhands.mgwfbp.plan import Plan, finish_s, one_per_gradient, single_bucket
from allhands.mgwfbp.schedule import simulate
from allhands.trace import draw

desk = Desk("lab4_mgwfbp")

# %% [markdown]
# ## 1. What one all-reduce costs
#
# The authors of MG-WFBP measured `osu_allreduce` on their cluster: K80 nodes, 10 Gbit Ethernet. Here is
# their table for 8 nodes.
#
# **Predict:** a message of 4 bytes takes 82 microseconds. How many bytes may a message have, until it
# takes twice as long? 8? 100? 1,000?

# %%
sizes, times_s = measured.osu_allreduce_10gbe(8)
for i in (0, 4, 8, 9, 11, 12, 20, 60, 120, 180, 265):
    print(f"{sizes[i]:10,.0f} bytes {1e6 * times_s[i]:8.1f} us")

# %% [markdown]
# For small messages the size hardly matters: that is the start-up $a$. For large ones the time grows
# with the size: that is $b$. `fit` finds both. It makes the *relative* error small, since the sizes span
# six orders of magnitude.
#
# ### Exercise: `link`
#
# Fit the sizes from 10,000 to 1,100,000 bytes: these are the sizes that a plan will send. Use the
# argument `window_bytes`. Give `link = {"startup_us": ..., "ns_per_byte": ...}`, in microseconds and
# nanoseconds.

# %% exercise="link"
### BEGIN SOLUTION
found = fit(sizes, times_s, window_bytes=(1e4, 1.1e6))
link = {"startup_us": 1e6 * found.cost.startup_s, "ns_per_byte": 1e9 * found.cost.s_per_byte}
### END SOLUTION
link

# %% check="link"
desk.check("link", link, sizes, times_s)

# %% [markdown]
# One line does not fit all sizes. At about 10,000 bytes the time jumps: there MPI changes its protocol.
# So the window belongs to the answer. Always look at the worst point.

# %%
print(fit(sizes, times_s, window_bytes=(1e4, 1.1e6)))
print(fit(sizes, times_s))

# %% [markdown]
# ## 2. Two simple plans
#
# A **plan** cuts the gradients into groups of neighbours. A group is one all-reduce. It starts when its
# last gradient is ready and the group before is through.
#
# * **WFBP** (wait-free backpropagation): each gradient alone.
# * **Single bucket**: all in one. This is what ChainerMN does on GPUs.
#
# Three gradients, small numbers: $a = 5$, $b = 1$; ready at 0, 4 and 9; sizes 4, 1 and 1.
#
# **Predict:** when does WFBP end? And the single bucket?

# %%
three = Gradients(ready_s=(0, 4, 9), n_bytes=(4, 1, 1))
slow_link = AffineCost(startup_s=5, s_per_byte=1)

print(f"WFBP:          {finish_s(three, one_per_gradient(3), slow_link):g}")
print(f"single bucket: {finish_s(three, single_bucket(3), slow_link):g}")
# > WFBP:          21
# > single bucket: 20

# %% [markdown]
# The picture of WFBP: gradient 0 is on its way while the backward pass goes on. Then the link never
# rests, but it pays three start-ups.

# %%
draw.gantt(simulate(three, one_per_gradient(3), slow_link).events(), "WFBP", unit="s")

# %% [markdown]
# No plan can beat two **bounds**: all bytes and one start-up must pass after the first gradient is ready;
# and the last gradient must pass after it is ready.

# %%
print(f"no plan ends before {optimal.lower_bound_s(three, slow_link):g}")
# > no plan ends before 15

# %% [markdown]
# Does ChainerMN really send a single bucket? Here is the translator of lab 1 on two real ranks of this
# machine, with a record of each part of two steps.
#
# **Predict:** does any communication overlap with the backward pass?

# %%
import tempfile
from pathlib import Path

from allhands import launch
from allhands.trace.events import read_events

temporary = tempfile.TemporaryDirectory(prefix="lab4-")  # goes with the kernel
folder = Path(temporary.name)
launch.mpirun("allhands.train.exchange", "--out", folder, "--steps", 3, ranks=2, time_limit_s=200)
events = [e for rank in (0, 1) for e in read_events(folder / f"events.rank{rank}.jsonl")]
draw.gantt([e for e in events if e.step in (2, 3)], "two steps of ChainerMN on two ranks")

# %% [markdown]
# One exchange a step, and it starts when the backward pass is over. On GPUs `pure_nccl` packs it into one
# message. Here `naive` sends the parameters one after the other, in one go. The rank that comes first waits
# inside the exchange for the other.
#
# ChainerMN cannot merge gradients in a clean way: Chainer keeps the gradients of parameters to itself and
# hands them over (`param.grad`) when the whole backward pass is done. There is no public hook in between.
# PyTorch has one.

# %% [markdown]
# ## 3. The published rule
#
# MG-WFBP (Shi, Chu and Li, INFOCOM 2019) goes through the gradients once:
#
# > Merge a gradient with the next one, if the next one arrives **less than one start-up** after the
# > moment at which this one could start.
#
# "Could start" means: it is ready, and the link is free. The idea: whoever waits less than $a$ saves a
# whole $a$.
#
# ### Exercise: `published`


# %% exercise="published"
def published(gradients, cost):
    """The plan of MG-WFBP: a `Plan`. `Plan.from_ends([1, 2])` has the groups (0, 1) and (2, 2).

    Go through the gradients in order. Keep the start of the open group (`first`) and the time at
    which the link is free (`free_s`). The last gradient always closes its group.
    """
    ### SOLUTION FROM allhands.mgwfbp.rules:mg_wfbp


# %% check="published"
desk.check("published", published)

# %%
published = desk.carry_on("published", published, rules.mg_wfbp)

# %%
plan = published(three, slow_link)
print(plan.groups, f"ends at {finish_s(three, plan, slow_link):g}")
# > ((0, 1), (2, 2)) ends at 20

# %% [markdown]
# ### Exercise: `by_hand`
#
# The abstract says "optimal". With three gradients you can try all four plans in your head. Which plan of
# `three` ends first, and when? Give `by_hand = {"groups": [[0, ...], ...], "ends": ...}`.

# %% exercise="by_hand"
### BEGIN SOLUTION
by_hand = {"groups": [[0, 0], [1, 2]], "ends": 16}
### END SOLUTION

# %% check="by_hand"
desk.check("by_hand", by_hand)

# %% [markdown]
# ## 4. All plans
#
# $L$ gradients have $2^{L-1}$ plans: between two neighbours there is a cut or there is none. For small
# $L$ we can try them all. It is slow, but it is certainly right: an **oracle** for everything that
# follows.
#
# ### Exercise: `brute_force`


# %% exercise="brute_force"
def brute_force(gradients, cost):
    """The least finish time (seconds) over all plans of neighbours. For small L only.

    `finish_s(gradients, plan, cost)` is the time of one plan.
    """
    ### BEGIN SOLUTION
    last = len(gradients) - 1
    times_s = []
    for cuts in itertools.product([False, True], repeat=last):
        ends = [i for i, cut in enumerate(cuts) if cut] + [last]
        times_s.append(finish_s(gradients, Plan.from_ends(ends), cost))
    return min(times_s)
    ### END SOLUTION


# %% check="brute_force"
desk.check("brute_force", brute_force)

# %% [markdown]
# How often is the published rule not the best? **Predict** a share, then run: 1,000 random cases of 7
# gradients.

# %%
oracle = desk.carry_on(
    "brute_force",
    brute_force,
    lambda gradients, cost: finish_s(gradients, optimal.optimum(gradients, cost), cost),
)

random = np.random.default_rng(0)
ratios = []
for _ in range(1000):
    case = Gradients.from_backward(random.random(7), random.random(7), forward_s=0)
    case_cost = AffineCost(random.random(), random.random())
    ratios.append(finish_s(case, published(case, case_cost), case_cost) / oracle(case, case_cost))
ratios = np.array(ratios)
print(
    f"not the best in {np.mean(ratios > 1 + 1e-9):.0%} of cases, at worst {ratios.max():.2f} times"
)

# %% [markdown]
# ## 5. The true optimum
#
# Let $F(e)$ be the least time at which the first $e$ gradients can all be through. Their last group
# begins after the first $j$ gradients, for some $j < e$:
#
# $$F(0) = 0, \qquad F(e) = \min_{0 \le j < e} \; \max\bigl(F(j),\, r_{e-1}\bigr) + T(P_e - P_j)$$
#
# This is exact: a group never ends earlier because the groups before it end later.
#
# ### Exercise: `best_plan`
#
# Write it. **The target:** on GoogLeNet with 64 workers your plan must end by 368.5 ms.


# %% exercise="best_plan"
def best_plan(gradients, cost):
    """A `Plan` with the least finish time, for any cost, in O(L^2).

    Fill F from left to right and remember which j was best. Then walk back from L:
    `Plan.from_ends` wants the last gradient of each group, in order.
    """
    ### BEGIN SOLUTION
    ready_s, before = gradients.ready_s, gradients.bytes_before
    finish, chosen = [0.0], [0]
    for e in range(1, len(gradients) + 1):
        ends_s = [max(finish[j], ready_s[e - 1]) + cost(before[e] - before[j]) for j in range(e)]
        chosen.append(int(np.argmin(ends_s)))
        finish.append(ends_s[chosen[-1]])
    ends, e = [], len(gradients)
    while e > 0:
        ends.append(e - 1)
        e = chosen[e]
    return Plan.from_ends(ends[::-1])
    ### END SOLUTION


# %% check="best_plan"
desk.check("best_plan", best_plan)

# %% [markdown]
# ## 6. The optimum, fast
#
# $O(L^2)$ is slow for a model with thousands of tensors that is planned again and again. For $T(s) = a +
# b s$ two candidates for each $e$ are enough:
#
# * if the link is free before gradient $e-1$ is ready, the group starts at once: take the **largest** $j$
#   with $F(j) \le r_{e-1}$ (fewest bytes);
# * else the group **queues** behind the one before: take the next $j$, the smallest with $F(j) > r_{e-1}$.
#
# The boundary between the two only moves to the right. So all of it is $O(L)$. (The proof is in
# `allhands/mgwfbp/optimal.py`.)
#
# ### Exercise: `fast`
#
# This version forgets something. It is fast, and wrong. Find out what, and mend it.


# %% exercise="fast"
def fast(gradients, cost):
    """The least finish time, in O(L), for an affine cost."""
    a, b = cost.startup_s, cost.s_per_byte
    before = gradients.bytes_before
    finish, j = [0.0], 0
    for e, ready in enumerate(gradients.ready_s, start=1):
        while j + 1 < e and finish[j + 1] <= ready:
            j += 1
        best = ready + a + b * (before[e] - before[j])
        ### BEGIN SOLUTION
        if j + 1 < e:
            best = min(best, finish[j + 1] + a + b * (before[e] - before[j + 1]))
        ### FAULT best = max(best, finish[-1])
        ### END SOLUTION
        finish.append(best)
    return finish[-1]


# %%
random = np.random.default_rng(1)
for _ in range(5):
    case = Gradients.from_backward(random.random(6), random.random(6), forward_s=0)
    case_cost = AffineCost(0.3, 1.0)
    print(f"fast {fast(case, case_cost):.3f}   all plans {oracle(case, case_cost):.3f}")

# %% check="fast"
desk.check("fast", fast)

# %% [markdown]
# ## 7. A real network
#
# The authors published the trace of GoogLeNet (batch 64, one K80) and their model of the link for any
# number of workers. Everything below is computed from these two.

# %%
from allhands.mgwfbp.report import compare, recommendation

googlenet = measured.googlenet_k80()
link_64 = measured.k80_10gbe(64)
print(f"{len(googlenet)} gradients, {googlenet.total_bytes / 1e6:.1f} MB")
print(f"start-up {1e3 * link_64.startup_s:.2f} ms, {1e9 * link_64.s_per_byte:.2f} ns a byte")
print()
print(compare(googlenet, link_64))

# %% [markdown]
# The published plan is better than both simple plans, and 31 % slower than the optimum. Look at the
# line **"send-when-ready"**: it needs no profile at all. Whenever the link is free, it sends all
# that is ready. Here it is as good as the optimum. Be honest about it: Horovod works much like that.
#
# Where does the published plan lose its time? Compare the two pictures.

# %%
draw.gantt(
    simulate(googlenet, rules.mg_wfbp(googlenet, link_64), link_64).events(),
    "GoogLeNet, 64 workers: MG-WFBP as published (simulated)",
)

# %%
draw.gantt(
    simulate(googlenet, optimal.fewest_messages(googlenet, link_64), link_64).events(),
    "GoogLeNet, 64 workers: the optimum (simulated)",
)

# %% [markdown]
# ## 8. When the rule collapses
#
# The rule merges while gaps are below the start-up. **Predict:** what does it do when the start-up is
# longer than every gap?
#
# ### Exercise: `collapse`
#
# Keep `link_64.s_per_byte` and change the start-up. From which start-up on (in milliseconds) is the
# published plan of GoogLeNet one single bucket? Half a millisecond is near enough. Give it as
# `collapse_ms`.

# %% exercise="collapse"
### BEGIN SOLUTION
collapse_ms = next(
    startup_ms
    for startup_ms in np.arange(0.5, 100, 0.5)
    if rules.mg_wfbp(googlenet, AffineCost(1e-3 * startup_ms, link_64.s_per_byte)).n_groups == 1
)
### END SOLUTION
collapse_ms

# %% check="collapse"
desk.check("collapse", collapse_ms)

# %%
startups_s = np.geomspace(1e-5, 1e-1, 80)
gaps = {}
for name, plan_of in (
    ("one per gradient", lambda g, c: one_per_gradient(len(g))),
    ("single bucket", lambda g, c: single_bucket(len(g))),
    ("MG-WFBP as published", rules.mg_wfbp),
    ("send when ready", rules.send_when_ready),
):
    gaps[name] = []
    for startup_s in startups_s:
        cost = AffineCost(startup_s, link_64.s_per_byte)
        best_s = finish_s(googlenet, optimal.optimum(googlenet, cost), cost)
        gaps[name].append(finish_s(googlenet, plan_of(googlenet, cost), cost) / best_s)

draw.curves(
    1e3 * startups_s,
    gaps,
    "GoogLeNet: how much longer than the optimum (simulated)",
    x="start-up (ms)",
    y="time / optimum",
    y_max=2,
)

# %% [markdown]
# ## 9. The headline
#
# The paper's headline is ResNet-50 on 64 workers: 1.75 times faster than WFBP, 1.45 times faster than a
# single bucket. The times of ResNet-50's layers were not published. So we split a measured total by
# arithmetic and bytes (`resnet50_k80`), and we must decide what counts as one gradient.

# %%
for pieces in measured.RESNET50_PIECES:
    resnet = measured.resnet50_k80(pieces)
    found = compare(resnet, link_64)
    published_s = found["MG-WFBP"].finish_s
    print(
        f"{pieces:8} L = {len(resnet):3}: {found['WFBP'].finish_s / published_s:.2f} over WFBP, "
        f"{found['SyncEASGD'].finish_s / published_s:.2f} over a single bucket"
    )
# > tensor   L = 161: 2.49 over WFBP, 1.43 over a single bucket
# > module   L = 107: 1.98 over WFBP, 1.43 over a single bucket
# > weights  L =  54: 1.48 over WFBP, 1.43 over a single bucket

# %% [markdown]
# None of the lines is the paper's 1.75. But keep the 161 tensors, and take the authors' start-up for 32
# workers instead of 64:

# %%
tensors = measured.resnet50_k80("tensor")
for n_workers in (32, 64):
    cost = AffineCost(measured.k80_10gbe(n_workers).startup_s, link_64.s_per_byte)
    found = compare(tensors, cost)
    published_s = found["MG-WFBP"].finish_s
    print(
        f"start-up {1e3 * cost.startup_s:.2f} ms: {found['WFBP'].finish_s / published_s:.2f} over WFBP, "
        f"{found['SyncEASGD'].finish_s / published_s:.2f} over a single bucket"
    )

# %% [markdown]
# ### Exercise: `headline`
#
# The 1.45 comes out nearly the same each time. The 1.75 does not. What does it hang on?
#
# * **a** On how good the planner is.
# * **b** On the number of gradients times the start-up: WFBP pays a start-up for each.
# * **c** On the speed of the GPU alone.
# * **d** On the bytes of the model.
#
# Give the letter as `answer`.

# %% exercise="headline"
### BEGIN SOLUTION
answer = "b"
### END SOLUTION

# %% check="headline"
desk.check("headline", answer)

# %% [markdown]
# ## 10. What is left
#
# Three closing experiments, all simulated.
#
# **Compression.** FP16 halves the bytes, and not the start-ups. **Predict:** does it gain twofold?

# %%
for name, cost in (("FP32", link_64), ("FP16", link_64.compressed(0.5))):
    best = optimal.fewest_messages(googlenet, cost)
    print(f"{name}: {1e3 * finish_s(googlenet, best, cost):.1f} ms, {best.n_groups} messages")

# %% [markdown]
# **Stragglers.** An all-reduce waits for the slowest. One rank of 64 computes 1.5 times as long.
# **Predict:** how much longer does the iteration take?

# %%
from allhands.mgwfbp.schedule import stragglers

best = optimal.fewest_messages(googlenet, link_64)
even = simulate(googlenet, best, link_64)
slow = simulate(
    googlenet, best, link_64, slow_down=stragglers(64, seed=0, share=1 / 64, factor=1.5)
)
print(f"all equal: {1e3 * even.finish_s:.1f} ms, one slow rank: {1e3 * slow.finish_s:.1f} ms")

# %% [markdown]
# **Re-planning.** A plan is made for one start-up. What if the link turns out to have another?
# **Predict:** is it worse to think the start-up too small, or too large?
#
# (In a real run, `allhands.train.merged.tuner.Tuner` fits the link again from what it sees, and changes the
# plan between two steps, on all ranks at once.)

# %%
for factor in (0.1, 1, 10):
    believed = AffineCost(factor * link_64.startup_s, link_64.s_per_byte)
    stale = optimal.fewest_messages(googlenet, believed)
    print(f"planned for {factor:4} x start-up: {1e3 * finish_s(googlenet, stale, link_64):.1f} ms")

# %% [markdown]
# ## 11. Your own link
#
# Two processes of this machine, and MPI between them: `launch.mpirun` starts them and waits. Each size is
# timed 15 times; the median counts. On a cluster the job script `cluster_jobs/lab4_mgwfbp.slurm` (or
# `.pbs`) measures the same between two nodes.
#
# **Predict:** is the start-up longer or shorter than the 5.8 ms of 64 workers on Ethernet?

# %%
table = folder / "link.csv"
done = launch.mpirun("allhands.train.measure_link", "--out", table, ranks=2, time_limit_s=120)
print(done.text(rank=0))

# %% [markdown]
# A measured table can be a cost as it is, with straight lines between its points. On this link, what would
# each plan take for GoogLeNet? (The backward times are still those of the K80.)

# %%
from allhands.mgwfbp.cost import TabulatedCost
from allhands.mgwfbp.table import read_table

print(compare(googlenet, TabulatedCost.from_measured(*read_table(table))))

# %% [markdown]
# Lab 0 has kept the line of such a measurement, in `runs/link.json` in the folder of the notebooks. After a job on your
# cluster, put the `link.json` of its run folder there: then this is the link between two of your nodes.

# %%
from allhands.mgwfbp import own_link

if own_link.KEPT.exists():
    print(own_link.load())
    print(compare(googlenet, own_link.load().cost))

# %% [markdown]
# On a link with a short start-up it is best to send each gradient at once: merging gains nothing here.
# Merging is for links that are slow for your model.
#
# ## 12. Predicted and measured
#
# So far all times were computed. Now a **real backward pass**: a deep network in PyTorch on one core. Its
# gradients are handed to a link that is **emulated**: a thread that sleeps $a + b s$ seconds for each
# message, in order. So a laptop meets the communication times of a cluster in wall-clock time.
#
# The link is made slow for this machine: all bytes take half of the backward pass, a start-up takes 5 % of
# it. Five plans race, step by step in random order. It takes half a minute.
#
# **Predict:** how near will the simulator be to the clock? Within 50 %, 10 %, 2 %?

# %%
from allhands.model.deep_cnn import deep_cnn, images
from allhands.train.race import Case, race

x_bchw = images(8)
result = race(Case(deep_cnn(), lambda model: model(x_bchw).logsumexp(dim=1).sum()), rounds=7)
print(result)

# %% [markdown]
# ### Exercise: `emulated`
#
# Read from your own `result.outcomes` (each has `name`, `predicted_s`, `measured_s` and `error`): which plan
# was fastest, and what is the median of the **absolute** errors of all five? Give
# `emulated = {"fastest": "...", "median error": ...}`, the error as a share (0.05 is 5 %).

# %% exercise="emulated"
### BEGIN SOLUTION
emulated = {
    "fastest": min(result.outcomes, key=lambda one: one.measured_s).name,
    "median error": float(np.median([abs(one.error) for one in result.outcomes])),
}
### END SOLUTION
emulated

# %% check="emulated"
desk.check("emulated", emulated, result.outcomes)

# %% [markdown]
# ## 13. Merged, on two real ranks
#
# The same network on two processes, with PyTorch's hooks and gloo. Each rank measures its backward times;
# all take the same plan, the optimum for a start-up of 2 ms. A group leaves as soon as its last gradient is
# ready, on all ranks in the same order.
#
# **Predict:** what does the faster rank do while it waits for the slower one?

# %%
done = launch.torchrun("allhands.train.merged.steps", "--out", folder, ranks=2, time_limit_s=200)
print(done.text(rank=0))
events = [e for rank in (0, 1) for e in read_events(folder / f"events.rank{rank}.jsonl")]
last = max(event.step for event in events)
draw.gantt([e for e in events if e.step == last], "one merged step on two ranks (gloo)")

# %% [markdown]
# Communication runs under the backward pass: compare it with ChainerMN's picture above. And both ranks end
# with the same parameters, to the last bit. `tests/mpi/test_merged.py` shows more: at two ranks the gradients
# are those of PyTorch's own DDP, bit for bit.
#
# On one machine the two ranks share cores and memory, so do not read speed from this picture.
#
# ## 14. Your own cluster
#
# In this order, and stop when it is fast enough:
#
# 1. **Measure** the ratio of communication to computing.
# 2. **Prototype in software**: merge, then compress.
# 3. Only then buy hardware.
#
# `allhands plan TRACE.csv --startup-s A --s-per-byte B` does the first two on paper, for your own model and
# link. `probe` measures when the gradients of a PyTorch or a Chainer model are ready; `write_trace` makes the
# file. Here is the network of section 12, on this core:

# %%
from allhands.mgwfbp.gradients import write_trace
from allhands.train.probe import probe

network = deep_cnn()
mine = probe(network, lambda: network(x_bchw).logsumexp(dim=1).sum())
write_trace(folder / "mine.csv", mine)
print(
    f"{len(mine)} gradients, {mine.total_bytes / 1e6:.1f} MB, backward {1e3 * (mine.compute_s - mine.forward_s):.0f} ms"
)

# %% [markdown]
# What would 64 of these machines gain on the authors' Ethernet?

# %%
print(recommendation(compare(mine, link_64)))

# %% [markdown]
# ## 15. What you saw
#
# * A message costs $a + b s$. Merging saves start-ups and waits for gradients.
# * The published rule looks one gradient ahead. It is good, and it is not the optimum.
# * The optimum is a short dynamic programme, and $O(L)$ with two candidates.
# * "Send when ready" needs no profile, and is near the optimum: know the simple rival.
# * A headline is a statement about its assumptions. Ask for them.

# %%
desk.score()
