# %% [markdown]
# # Lab 3: mixed precision
#
# **Aim.** Train in mixed precision (FP16 to compute, FP32 master weights, loss scaling), in PyTorch and in
# Chainer, and prove that Tensor Cores ran.
#
# **You need** lab 1, or its idea: forward, backward, update. No GPU: the numbers of FP16 are the same on
# every chip, and a CPU computes them too, slowly. The traces of GPUs come with the course. It takes
# about two hours.
#
# A number in FP16 takes two bytes where FP32 takes four. So half of the bytes move, and **Tensor Cores**
# multiply FP16 matrices many times as fast. The price: far fewer numbers exist. This lab is about that
# price, and how to pay it.
#
# | symbol | in code | meaning |
# |---|---|---|
# | $w$ | `master` | a weight in FP32, the **master** weight |
# | $\tilde w$ | `half` | the same weight, rounded to FP16 |
# | $g$ | `grad` | the gradient of the loss by a weight |
# | $\eta$ | `rate` | the learning rate: the update is $-\eta g$ |
# | $S$ | `scale` | the loss scale: the loss is multiplied by it, and the gradient divided by it |
# | $\delta$ | `epsilon` | the step from 1 to the next number |
# | $\epsilon$ | `eps` | Adam's small number, which keeps it from dividing by 0 |
# | $I$ | `intensity` | arithmetic operations for each byte that is moved |

# %%
import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from rich.console import Console

from allhands.grade.desk import Desk

desk = Desk("lab3_mixedprec")
show = Console(width=100).print

# %% [markdown]
# ## 1. What FP16 is
#
# A floating-point number has a sign, an exponent and a fraction. The exponent decides how far the numbers
# reach. The fraction decides how close they stand.

# %%
from allhands.precision.formats import BF16, FP16, FP32, TF32

print("format  exponent  fraction    largest  smallest  step at 1")
for f in (FP32, TF32, BF16):
    print(
        f"{f.name:7} {f.exponent_bits:8} {f.fraction_bits:9} {f.largest:10.3g} "
        f"{f.smallest:9.2g} {f.epsilon:10.2g}"
    )
print(f"{FP16.name:7} {FP16.exponent_bits:8} {FP16.fraction_bits:9} {'?':>10} {'?':>9} {'?':>10}")
# > format  exponent  fraction    largest  smallest  step at 1
# > FP32           8        23    3.4e+38   1.4e-45    1.2e-07
# > TF32           8        10    3.4e+38   1.1e-41    0.00098
# > BF16           8         7   3.39e+38   9.2e-41     0.0078
# > FP16           5        10          ?         ?          ?

# %% [markdown]
# BF16 and TF32 have the exponent of FP32: they reach as far. FP16 has five bits only. TF32 is no format of
# memory: Tensor Cores round FP32 numbers to it on the way in.
#
# You fill in the last line: `np.float16` rounds to FP16, so find its limits by experiment.
#
# **Predict:** which is the smallest number above 0? The largest? And how large must an update be so that a
# weight of 1 notices it?
#
# ### Exercise: `limits`
#
# * `smallest`: the smallest FP16 number above 0;
# * `largest`: the largest that is finite;
# * `unheard`: the largest power of two $u$ for which $1 + u$ is still 1 in FP16.
#
# Give `limits = {"smallest": ..., "largest": ..., "unheard": ...}`. A loop that halves finds two of them.

# %% exercise="limits"
### BEGIN SOLUTION
smallest = 1.0
while np.float16(smallest / 2) > 0:
    smallest /= 2

whole = np.arange(60_000, 65_520).astype(np.float16)
largest = float(whole[np.isfinite(whole)].max())

unheard = 1.0
while np.float16(1) + np.float16(unheard) != np.float16(1):
    unheard /= 2

limits = {"smallest": smallest, "largest": largest, "unheard": unheard}
### END SOLUTION
limits

# %% check="limits"
desk.check("limits", limits)

# %% [markdown]
# Here are the four formats, drawn to scale. Near 0 a format runs out of exponents. It goes on with fewer bits of
# fraction: these numbers are called **subnormal**.
#
# ![A number line: where FP16 begins and ends, and FP32, TF32 and BF16 beside it; below, how fine each is near 1](../slides/figures/lab3_mixedprec_numberline.svg)

# %% [markdown]
# Two things can go wrong with a small number, and they are not the same:
#
# * **It is 0.** A gradient below 3e-8 rounds to 0: it dies.
# * **Nobody hears it.** An update can be a fine FP16 number, and still be too small beside its weight.
#
# **Predict:** a weight of 0.1, and updates of 0.00003. After 1,000 updates in FP16, where is the weight?

# %%
weight, update = np.float16(0.1), np.float16(3e-5)
for _ in range(1000):
    weight = weight - update
print(f"FP16: {weight:.4f}   exact: {0.1 - 1000 * 3e-5:.4f}")
# > FP16: 0.1000   exact: 0.0700

# %% [markdown]
# It has not moved at all. Now the gradients of a real model: the translator of lab 1, after 100 updates.
# All its gradients, each a number in FP32, in one array.
#
# **Predict:** how many of them does FP16 make zero? (The 100 updates take 5 to 10 seconds.)

# %%
from allhands.train.gradients import gradients as gradients_of

gradients = np.concatenate([each.ravel() for each in gradients_of(100).values()])
alive = gradients[gradients != 0]
print(f"{len(gradients):,} gradients, {len(alive):,} of them not 0 in FP32")
print(f"0 in FP16: {np.mean(np.float16(alive) == 0):.4%}")

# %%
from allhands.trace import draw_precision

draw_precision.gradient_histogram({"as they are": np.abs(alive)}, FP16)

# %% [markdown]
# Almost none. Be honest about it: this model needs no loss scaling. Its loss is a sum over tokens, and so
# its gradients are large.
#
# But many a loss is small: one of several, with a small weight; a mean over millions of pixels. Here is the
# same model with a loss weight of $10^{-5}$. All gradients move to the left by the same distance.

# %%
small = np.float32(1e-5) * gradients

# %% [markdown]
# ### Exercise: `lost`
#
# Of the gradients in `small` that are not 0 in FP32:
#
# * `share`: which share becomes 0 in FP16?
# * `scale`: which is the smallest power of two $S$ so that less than 1 % of $S g$ becomes 0?
#
# Give `lost = {"share": ..., "scale": ...}`.

# %% exercise="lost"
### BEGIN SOLUTION
left = small[small != 0]


def zeroed(scale):
    return float(np.mean(np.float16(np.float32(scale) * left) == 0))


scale = 1.0
while zeroed(scale) >= 0.01:
    scale *= 2
lost = {"share": zeroed(1), "scale": scale}
### END SOLUTION
lost

# %% check="lost"
desk.check("lost", lost, small)

# %% [markdown]
# Here they are before and after the scale that you found. A power of two changes the exponent only: the hill moves,
# and keeps its shape.

# %%
sizes = np.abs(small[small != 0])
scale = lost["scale"] if isinstance(lost, dict) else 1
draw_precision.gradient_histogram(
    {"scale 1": sizes, f"your scale, {scale:g}": np.float32(scale) * sizes}, FP16
)

# %% [markdown]
# Is there room at the other end? PyTorch's scaler begins with 2^16. The limit is 65504.

# %%
print(f"largest gradient: {np.abs(small).max():.2g}")
print(f"times 2^16:       {2**16 * np.abs(small).max():.2g}")

# %% [markdown]
# ## 2. The four steps by hand
#
# The recipe is from *Mixed Precision Training* (Micikevicius et al., ICLR 2018, section 3):
#
# 1. forward and backward on an **FP16 copy**;
# 2. **master weights** in FP32 take the update;
# 3. the **loss is scaled**, so that small gradients survive;
# 4. the **step** must give the master weights the true gradient, clipped, or skip. What must it do, and in which
#    order?
#
# The task is small and real: 8x8 images of handwritten digits, from the UCI repository.

# %%
from allhands.train import digits, mixed, mixed_table

data = digits.load()
net = mixed_table.new_net(mixed_table.TASK, seed=0)
print(f"{len(data.train_images)} images of 8x8 to train on, {len(data.test_images)} to test")
print(net)

# %% [markdown]
# ### Exercise: `half_copy`
#
# The first step looks like one word, `model.half()`. It is a trap: try what that does to `model` itself.


# %% exercise="half_copy"
def half_copy(model):
    """A copy of the model with FP16 weights. The model itself keeps its FP32 weights."""
    ### BEGIN SOLUTION
    return copy.deepcopy(model).half()
    ### END SOLUTION


# %% check="half_copy"
desk.check("half_copy", half_copy)

# %%
half_copy = desk.carry_on("half_copy", half_copy, mixed.half_copy)

# %% [markdown]
# How far apart are the two models? **Predict:** to how many decimal places do the five numbers agree?

# %%
logits_32 = net(data.test_images)[0]
logits_16 = half_copy(net)(data.test_images.half())[0]
print("FP32", [f"{x:.4f}" for x in logits_32.tolist()[:5]])
print("FP16", [f"{x:.4f}" for x in logits_16.tolist()[:5]])

# %% [markdown]
# To three decimal places, rounded: enough for a forward pass. The update is the problem, not the product.
#
# ### Exercise: `master_step`
#
# Each weight exists twice: exactly (FP32), and rounded (FP16). The gradient belongs to the rounded one, since
# that one was used. The exact one takes the update:
#
# $$w \leftarrow w - \eta\, g, \qquad \tilde w \leftarrow \text{round}_{16}(w)$$


# %% exercise="master_step"
@torch.no_grad()
def master_step(masters, halves, rate):
    """One step of SGD, in place; returns nothing.

    masters: list of FP32 tensors. halves: list of FP16 tensors of the same shapes, each with its
    `.grad` in FP16. Afterwards each half is its master, rounded. All of the sum is FP32.
    """
    ### BEGIN SOLUTION
    for master, half in zip(masters, halves, strict=True):
        master -= rate * half.grad.float()
        half.copy_(master)
    ### END SOLUTION


# %% check="master_step"
desk.check("master_step", master_step)


# %% [markdown]
# The weight of section 1 again: 0.1, and 1,000 updates of 0.00003. This time it has a master.


# %%
def by_the_package(masters, halves, rate):
    """The package's version: torch's own SGD on each master, and then the copy."""
    for master, half in zip(masters, halves, strict=True):
        master.grad = half.grad.float()
        torch.optim.SGD([master], lr=rate).step()
        half.copy_(master)


master_step = desk.carry_on("master_step", master_step, by_the_package)
master, half = torch.tensor([0.1]), torch.tensor([0.1]).half()
half.grad = torch.tensor([3e-5]).half()
for _ in range(1000):
    master_step([master], [half], rate=1.0)
print(f"master: {master.item():.4f}   half: {half.item():.4f}")

# %% [markdown]
# Does that not spend the memory that FP16 saved? The weights now take $2 + 4$ bytes instead of 4. But in
# training most memory holds activations, and they are FP16 alone.
#
# ### Loss scaling
#
# By the chain rule, every gradient of $S \cdot \text{loss}$ is $S$ times the gradient of the loss. So one
# multiplication, before backward, moves all gradients to the right on the number line.
#
# **Predict:** the loss weight is $10^{-5}$. Which share of the gradients is 0 without a scale? With 2^16?
# With 2^40?

# %%
half = half_copy(net)
images, answers = data.train_images[:64].half(), data.train_digits[:64]

for power in (0, 8, 16, 24, 40):
    half.zero_grad()
    loss = 1e-5 * F.cross_entropy(half(images).float(), answers)
    (2.0**power * loss).backward()
    grads = torch.cat([weight.grad.flatten() for weight in half.parameters()])
    print(
        f"scale 2^{power:2}: {(grads == 0).float().mean():6.1%} are 0,"
        f" {(~grads.isfinite()).float().mean():6.1%} are inf or nan"
    )

# %% [markdown]
# Too small a scale, and gradients die. Too large, and they overflow. Between the two is a wide valley. (The
# zeros that stay are real: rectified units that are off have no gradient in FP32 either.)
#
# A scale that never changes is called **static**. It may be right today and wrong after 10,000 updates. A
# **dynamic** scale looks for itself:
#
# * an overflow (inf or nan in any gradient): **skip** this step, and **back off**, $S \leftarrow S/2$;
# * `interval` good steps in a row: **grow**, $S \leftarrow 2S$, and count anew.
#
# ### Exercise: `next_scale`


# %% exercise="next_scale"
def next_scale(scale, good_steps, found_inf, growth=2.0, backoff=0.5, interval=2000):
    """The scale and the count of good steps after one step: two values.

    good_steps: how many steps in a row were good, before this one. found_inf: True if this step
    overflowed. An overflow and a growth both set the count to 0.
    """
    ### BEGIN SOLUTION
    if found_inf:
        return scale * backoff, 0
    if good_steps + 1 == interval:
        return scale * growth, 0
    return scale, good_steps + 1
    ### END SOLUTION


# %% check="next_scale"
desk.check("next_scale", next_scale)


# %%
from allhands.precision.scaler import LossScaler


def ours(scale, good_steps, found_inf, interval):
    """The package's scaler, `allhands.precision.scaler`, as a function."""
    scaler = LossScaler(scale, interval=interval, good_steps=good_steps)
    scaler.update(found_inf)
    return scaler.scale, scaler.good_steps


next_scale = desk.carry_on("next_scale", next_scale, ours)

# %% [markdown]
# The check gave your function 60 steps with overflows at planted places, and PyTorch's own `GradScaler` the
# same steps. The scales were equal at each step.
#
# ### The step
#
# Now all together. The last piece makes the update, and its order matters. `weights` are the masters; their
# `.grad` holds the gradient as backward left it, in FP32, still multiplied by the scale.
#
# The function below runs without an error. Do not mend it yet.

# %%
from torch.nn.utils import clip_grad_norm_


def unscale(weights, scale):
    for weight in weights:
        weight.grad = weight.grad / scale


def all_finite(weights):
    return all(weight.grad.isfinite().all() for weight in weights)


# %% exercise="clipped_step"
def clipped_step(weights, scale, max_norm, rate):
    """One SGD step with the true gradient, clipped to the norm `max_norm` over all weights.

    weights: list of FP32 tensors whose `.grad` is `scale` times the true gradient. If any number of
    any gradient is inf or nan, no bit of any weight changes. Returns True, or False if skipped.
    """
    ### BEGIN SOLUTION
    unscale(weights, scale)
    if not all_finite(weights):
        return False
    clip_grad_norm_(weights, max_norm)
    ### FAULT if not all_finite(weights):
    ### FAULT     return False
    ### FAULT clip_grad_norm_(weights, max_norm)
    ### FAULT unscale(weights, scale)
    ### END SOLUTION
    with torch.no_grad():
        for weight in weights:
            weight -= rate * weight.grad
    return True


# %% [markdown]
# Here is the whole of mixed precision in one loop: copy, scale, backward, step, next scale, copy. (The gradient must
# be tested and clipped in between. So `clipped_step` does the first half of `master_step`, and `mixed.to_half` the
# second.)
#
# The scale begins far too large, at 2^24.
#
# **Predict:** what happens in the first steps? The loss begins near $\ln 10 = 2.3$. Where is it after 200 steps?


# %%
def train(steps=200, scale=2.0**24, max_norm=1.0, rate=0.1):
    masters, half = mixed.master_weights(net), half_copy(net)
    batches = torch.Generator().manual_seed(0)
    good_steps, history = 0, []
    for _ in range(steps):
        rows = torch.randint(len(data.train_images), (64,), generator=batches)
        logits_bc = half(data.train_images[rows].half())
        loss = F.cross_entropy(logits_bc.float(), data.train_digits[rows])
        half.zero_grad()
        (scale * loss).backward()
        for master, weight in zip(masters, half.parameters(), strict=True):
            master.grad = weight.grad.float()
        made = clipped_step(masters, scale, max_norm, rate)
        history.append((loss.item(), math.log2(scale), made))
        scale, good_steps = next_scale(scale, good_steps, not made, interval=50)
        mixed.to_half(masters, half)
    return history


history = train()
for step in (0, 1, 2, 3, 10, 50, 100, 150, 199):
    loss, power, made = history[step]
    print(f"step {step:3}: loss {loss:.3f}, scale 2^{power:g}, {'made' if made else 'skipped'}")
print(sum(not made for _, _, made in history), "steps skipped")

# %% [markdown]
# The scaler finds its scale. But with the fault the loss stands still: no error, no nan. Why? How large is the
# gradient at the moment of clipping?
#
# ### Exercise: `clipped_step`
#
# Mend the order in `clipped_step` above, and run the cells again. Now the loss falls.

# %% check="clipped_step"
desk.check("clipped_step", clipped_step)

# %%
clipped_step = desk.carry_on("clipped_step", clipped_step, mixed.sgd_step)

# %% [markdown]
# ## 3. What fails, and why
#
# Seven recipes on the same task, with the same batches. Two things were made hard on purpose, and the table
# says which recipe survives which:
#
# * the loss has a weight of $10^{-5}$, so that gradients are small;
# * the learning rate is small, $2.5 \cdot 10^{-5}$, so that updates are small.
#
# FP32 does not care about the first. The optimizer is Adam: for each weight it keeps two running means, its
# **moments**: $m$ of the gradient and $v$ of its square. The update is $\eta\, m / (\sqrt{v} + \epsilon)$, so the
# gradient's size cancels. (If $\epsilon$ is far smaller: it is $10^{-12}$ here. The usual $10^{-8}$ is as large as
# these gradients.) The run takes about 25 seconds.
#
# **Predict:** which rows learn? Which row becomes nan?

# %%
outcomes = [mixed_table.run(recipe, seed=0) for recipe in mixed_table.RECIPES]
show(mixed_table.table(outcomes))

# %% [markdown]
# Chance is 10 %. The same on three seeds, in percent (measured on a CPU with PyTorch 2.13; the runs are kept in
# `slides/recorded/lab3_table.json`):
#
# | recipe | seed 0 | seed 1 | seed 2 |
# |---|---|---|---|
# | FP32 | 91.1 | 89.2 | 85.0 |
# | pure FP16 | nan | nan | nan |
# | FP16, loss scaling | 84.7 | 85.0 | 80.3 |
# | FP16, master weights | 8.3 | 17.5 | 8.9 |
# | FP16, master weights, loss scaling | 91.1 | 88.9 | 85.0 |
# | BF16 alone | 7.8 | 17.8 | 7.8 |
# | BF16, master weights | 91.1 | 89.7 | 85.0 |
#
# ![Left: the training loss of each recipe over 2,500 steps, three seeds. Right: the digits that each recognises in the test](../slides/figures/lab3_mixedprec_table.svg)
#
# Mixed precision is as good as FP32, on each seed. Pure FP16 leaves Adam in FP16 too, and is nan after one
# update: section 4 says why. Masters without scaling have nothing to add up: 98 % of the gradients are 0.
#
# ### Exercise: `recipe`
#
# Look at the row **FP16, loss scaling**: the weights are FP16 alone, without masters. On each seed it stays
# behind the row of mixed precision. Why?
#
# * **a** The gradients are smaller than the smallest FP16 number.
# * **b** Many updates are smaller than half a step of their weights.
# * **c** The activations are larger than 65504.
# * **d** FP16 makes the matrix products wrong.
#
# Give the letter as `answer`.

# %% exercise="recipe"
### BEGIN SOLUTION
answer = "b"
### END SOLUTION

# %% check="recipe"
desk.check("recipe", answer)

# %% [markdown]
# BF16 needs no scaling: it reaches as far as FP32. But it has 8 bits where FP16 has 11, so it needs master
# weights even more: in the table **BF16 alone** learns nothing. **Predict:** which update does a weight of 1 not hear in BF16?

# %%
from allhands.precision.formats import round_to

for f in (FP32, FP16, BF16):
    print(f"{f.name}: 1 + 0.003 = {round_to(1 + 0.003, f):.6f}")
# > FP32: 1 + 0.003 = 1.003000
# > FP16: 1 + 0.003 = 1.002930
# > BF16: 1 + 0.003 = 1.000000

# %% [markdown]
# ### What stays in FP32
#
# A Tensor Core multiplies FP16 numbers and adds up in FP32. Other operations have no such help. **Predict**
# each line before you run it:
#
# * the sum of 10,000 times 0.001, added up one after the other;
# * the sum of 5,000 ones;
# * the norm of 5,000 gradients of 4.0, and of 0.0001;
# * the softmax of the logits 12 and 0.

# %%
from allhands.precision import arithmetic

lines = {
    "sum of 10,000 x 0.001": lambda f: arithmetic.running_sum(np.full(10_000, 0.001), f),
    "sum of 5,000 ones": lambda f: arithmetic.running_sum(np.ones(5_000), f),
    "norm of 5,000 x 4.0": lambda f: arithmetic.norm(np.full(5_000, 4.0), f),
    "norm of 5,000 x 0.0001": lambda f: arithmetic.norm(np.full(5_000, 0.0001), f),
    "softmax of 12 and 0": lambda f: arithmetic.softmax([12.0, 0.0], f, shifted=False)[0],
}
print(f"{'':24}{'FP32':>10}{'FP16':>10}")
for name, of in lines.items():
    print(f"{name:24}{of(FP32):10.4g}{of(FP16):10.4g}")
# >                               FP32      FP16
# > sum of 10,000 x 0.001           10         4
# > sum of 5,000 ones             5000      2048
# > norm of 5,000 x 4.0          282.8       inf
# > norm of 5,000 x 0.0001    0.007071         0
# > softmax of 12 and 0              1       nan

# %% [markdown]
# Each has its own reason. At 4 the step of FP16 is 0.0039, and 0.001 is less than half of it: the sum stops.
# Counting stops at 2048, where the step becomes 2. The sum of 5,000 squares of 4 is 80,000, which is inf; the
# square of 0.0001 is 0. And $e^{12}$ = 162,755 is more than 65504. (Libraries subtract the largest logit first.
# That saves the softmax, and not the sums.)

#
# So these stay in FP32: **sums over many numbers** (losses, means, norms, the statistics of batch
# normalization), **exponentials** (softmax, the loss), and **the optimizer**. They are a small part of the work.
# The matrix products, nearly all of the work, run in FP16.

# %% [markdown]
# ## 4. The library's way: PyTorch
#
# `torch.amp` has two halves, and each does what you have done:
#
# * `torch.autocast` chooses for each operation: products in FP16, softmax and losses in FP32. The model keeps
#   its FP32 weights. They are the masters; FP16 copies are made on the way.
# * `torch.amp.GradScaler` is the scaler with its `scale`, `unscale_`, `step` (which skips) and `update`.
#
# ### Exercise: `amp_step`
#
# One step with both. After it, the scaler has been updated once.


# %% exercise="amp_step"
def amp_step(model, optimizer, scaler, x_bf, y_b, max_norm):
    """One step of training on the CPU, in FP16 under autocast; returns the loss (a tensor).

    model: FP32 weights; gives logits (B, C) for x_bf. The loss is F.cross_entropy(logits, y_b).
    The norm of the true gradient is clipped to max_norm with clip_grad_norm_. Old gradients are
    cleared first.
    """
    ### BEGIN SOLUTION
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(model(x_bf), y_b)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()
    ### END SOLUTION


# %% check="amp_step"
desk.check("amp_step", amp_step)

# %% [markdown]
# The same batches, rate and first scale as in your own loop of section 2, which runs once more here. **Predict:** does it end at the same
# loss? At the same scale?


# %%
def library(model, optimizer, scaler, x_bf, y_b, max_norm):
    """The package's step with torch.amp."""
    losses = []

    def loss_of(network):
        losses.append(F.cross_entropy(network(x_bf), y_b))
        return losses[-1]

    mixed.library_step(model, loss_of, optimizer, scaler, max_norm)
    return losses[-1].detach()


amp_step = desk.carry_on("amp_step", amp_step, library)

model = copy.deepcopy(net)
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=50)
batches = torch.Generator().manual_seed(0)
for _ in range(200):
    rows = torch.randint(len(data.train_images), (64,), generator=batches)
    loss = amp_step(model, sgd, scaler, data.train_images[rows], data.train_digits[rows], 1.0)
history = train()
print(f"torch.amp: loss {loss.item():.3f}, scale 2^{math.log2(scaler.get_scale()):g}")
print(f"by hand:   loss {history[-1][0]:.3f}, scale 2^{history[-1][1]:g}")

# %% [markdown]
# **Trap one: a scaler that is not there.** `torch.amp.GradScaler()` without arguments is a scaler for CUDA.
# **Predict:** what does it do on a machine without a GPU?

# %%
import warnings

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    silent = torch.amp.GradScaler()
    loss = silent.scale(torch.tensor(1.0))
print("enabled:", silent.is_enabled())
print("a loss of 1 becomes", loss.item())
print(*(str(each.message) for each in said))

# %% [markdown]
# On a CPU it is switched off: a warning, and then nothing is scaled. Say where it works:
# `torch.amp.GradScaler("cpu")`.
#
# **Trap two: an epsilon that is zero.** Adam divides by $\sqrt{v} + \epsilon$, usually with $\epsilon = 10^{-8}$,
# so that it never divides by 0. **Predict:** what is $10^{-8}$ in FP16?

# %%
weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
adam = torch.optim.Adam([weight], lr=1e-3)
weight.grad = torch.tensor([1.0, 1e-5, 0.0], dtype=torch.float16)
adam.step()
print("epsilon:", np.float16(1e-8), "  weights:", weight.tolist())

# %% [markdown]
# The gradient of 0.00001 has a square that FP16 makes 0. So $v$ and $\epsilon$ are both 0, the update is $m/0$, and
# the weight is -inf. The gradient of 0 gives 0/0: nan. That is the row "pure FP16" of the table. With master weights the
# optimizer works in FP32, and the question does not come up.
#
# ## 5. The library's way: Chainer
#
# Chainer has the same three parts, a line each:
#
# * `chainer.mixed16`: links hold FP16 weights; batch normalization keeps FP32;
# * `optimizer.use_fp32_update()`: master weights;
# * `optimizer.loss_scaling()`: a dynamic scale (with `scale=...`: a static one).
#
# Here is the translator of lab 1, small (preset `lab3_cpu`). Most CPUs have no FP16 units, so it is slow here.
#
# **Predict:** Chainer's dynamic scale begins at 1 and doubles at each update, until the first overflow. What is it
# after ten?

# %%
import chainer

from allhands import config as configs
from allhands.data.batch import BatchIterator
from allhands.train import precision
from allhands.train.build import open_corpus
from allhands.train.translator import Translator

config = configs.lab3_cpu()
corpus = open_corpus(config)


def ten_updates(masters):
    with chainer.using_config("dtype", chainer.mixed16):
        model = Translator.new(config, corpus.source_vocab, corpus.target_vocab).model
    adam = chainer.optimizers.Adam(config.learning_rate).setup(model)
    if masters:
        adam.use_fp32_update()
    adam.loss_scaling()
    losses, batches = [], BatchIterator(corpus.train, config.batch_size, seed=0)
    for _ in range(10):
        with np.errstate(all="ignore"):
            loss = model.loss(next(batches))
        model.cleargrads()
        precision.backward(loss, adam)  # loss.backward(loss_scale=...)
        precision.update(adam)  # adam.update()
        losses.append(float(loss.array))
    return losses, adam._loss_scale


losses, scale = ten_updates(masters=True)
print("loss:", *(f"{each:.0f}" for each in losses), f"  scale {scale:g}")

# %% [markdown]
# (The loss is a sum over the tokens of a sentence, so it jumps with the sentences' length.)
#
# **Predict:** what happens without `use_fp32_update()`?

# %%
losses, scale = ten_updates(masters=False)
print("loss:", *(f"{each:.0f}" for each in losses), f"  scale {scale:g}")

# %% [markdown]
# No error, and the model is lost after one update. Adam keeps $v$, the mean of squared gradients, in the type of
# the weight. A gradient of 0.005 gives $v = 0.001 \cdot 0.005^2 = 2.5 \cdot 10^{-8}$: zero in FP16. Then it
# divides by $\epsilon$ alone.
#
# One more trap. `chainer.optimizer_hooks.GradientClipping` sees gradients that are still scaled: Chainer
# unscales later, in each weight's update. It is the fault of `clipped_step` again. The package's own hook
# (`allhands.train.precision.ClipUnscaled`) multiplies its limit by the scale.

# %% [markdown]
# Most CPUs have no FP16 units. On the one measured, one epoch of `lab3_cpu` takes 38 s of one core where FP32 takes 3.3 s, and says 64.8 % of
# the sentences exactly where FP32 says 65.4 % (measured, one seed). The gain is for chips with Tensor Cores.

# %% [markdown]
# ### One idea, four names
#
# It all began with TensorFlow 1 on Volta. Whoever reads old code meets these names:
#
# | idea | TensorFlow 1 | Keras (TensorFlow 2) | Chainer 7 | PyTorch |
# |---|---|---|---|---|
# | FP16 model, FP32 weights | `float32_variable_storage_getter`, given as `custom_getter` to `tf.variable_scope`: stored in FP32, cast where used | `Policy("mixed_float16")` | `chainer.mixed16` | `torch.autocast` |
# | master weights | the stored variable itself | the layer's variable | `use_fp32_update()` | the model's own weights |
# | static scale | `FixedLossScaleManager` | `LossScaleOptimizer(..., dynamic=False)` | `loss_scaling(scale=128)` | `GradScaler` with a very long `growth_interval` |
# | dynamic scale | `ExponentialUpdateLossScaleManager` | `LossScaleOptimizer` | `loss_scaling()`: begins at 1 | `GradScaler`: begins at 2^16 |
# | scale, unscale, skip | `LossScaleOptimizer(optimizer, manager)` | `LossScaleOptimizer` | `backward(loss_scale=...)`, `update()`; a static scale does **not** skip | `scale`, `unscale_`, `step`, `update` |
# | clip the true gradient | divide first, then clip | `get_unscaled_gradients`, then clip | no hook of its own; here `ClipUnscaled` | `unscale_`, then `clip_grad_norm_` |
#
# Sources: NVIDIA, *Training With Mixed Precision*; TensorFlow 1.15, `tf.contrib.mixed_precision`; Keras 2, *Mixed
# precision*; Chainer 7.8 and PyTorch 2.13, their sources.

# %% [markdown]
# ## 6. Are Tensor Cores really running?
#
# The loss falls, `autocast` is there, the GPU is busy. Nothing of that proves that Tensor Cores run. The
# library chooses a **kernel** for each product, and only its name says which cores it uses. Here are names from
# several chips:
#
# | on Tensor Cores | on the ordinary cores |
# |---|---|
# | `volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn` | `volta_sgemm_128x64_nn` |
# | `turing_fp16_s1688gemm_fp16_128x64_ldg8_f2f_tn` | `volta_fp16_sgemm_fp16_128x128_nn` |
# | `ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn` | `ampere_sgemm_128x64_nn` |
# | `cutlass_80_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_nn_align8` | `cutlass_80_simt_sgemm_128x64_8x5_nn_align1` |
# | `sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize128x64x64_stage3_warpsize2x2x1_tensor16x8x16_kernel` | `sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas` |
# | `nvjet_hsh_128x128_64x6_1x2_h_bz_coopA_NNT` | `gemvNSP_kernel` |
# | `RNN_blockPersist_fp_LSTM_HMMA<__half, __half, float, 1, 128>` | `RNN_blockPersist_fp_LSTM<float, float, float, 128>` |
#
# A Tensor Core instruction multiplies small matrices of fixed shape. The shape stands in the name: `884` is
# 8x8x4 (Volta), `1688` is 16x8x8 (Turing), `16816` is 16x8x16 (Ampere). The letter before it is the sum's
# format: `s` is FP32, `h` is FP16.
#
# ### Exercise: `on_tensor_cores`
#
# Write a rule. The check has other names of the same families.


# %% exercise="on_tensor_cores"
def on_tensor_cores(name):
    """True if a kernel of this name multiplies matrices on Tensor Cores, else False."""
    ### BEGIN SOLUTION
    signs = ("884", "1688", "16816", "tensorop", "tensor16x8", "nvjet", "HMMA")
    return any(sign in name for sign in signs)
    ### END SOLUTION


# %% check="on_tensor_cores"
desk.check("on_tensor_cores", on_tensor_cores)

# %% [markdown]
# `allhands profile TRACE` has such rules too, about seventy, each with its source. It reads what
# `torch.profiler`, Nsight Systems and nvprof write. These traces come with the course:

# %%
from allhands import profile

reports = {name: profile.report(profile.read(profile.trace(name))) for name in profile.names()}
for name, report in reports.items():
    print(f"{name:22} {report.trace.format:16} {report.tensor_core_share:7.1%}")

# %% [markdown]
# They were **written from public documentation**, not recorded: the kernel names are published ones, the times
# are invented. The names are what this section is about. (With a GPU you record your own: section 10.)
#
# Does your rule agree? For each trace, the share of the matrix time by your function:

# %%
on_tensor_cores = desk.carry_on(
    "on_tensor_cores", on_tensor_cores, lambda name: profile.kernels.said(name).tensor_core is True
)
for name, report in reports.items():
    matrix = [kernel for kernel in report.kernels if kernel.kind == "matrix"]
    mine_s = sum(kernel.total_s for kernel in matrix if on_tensor_cores(kernel.name))
    print(f"{name:22} {mine_s / report.matrix_s:7.1%}")

# %% [markdown]
# `v100_mixed` and `v100_vocab101` are the same training step on the same chip. In the second the vocabulary has 101
# words, in the first a few more. **Predict:** can a few words make a difference?

# %%
report = reports["v100_vocab101"]
print(report)

# %% [markdown]
# ### Exercise: `off`
#
# Read from `report`:
#
# * `share`: the share of the **matrix** time on Tensor Cores, between 0 and 1;
# * `layer`: the layer with a dimension that does not fit;
# * `padded`: to how many words would you pad the vocabulary?
#
# Give `off = {"share": ..., "layer": "...", "padded": ...}`.

# %% exercise="off"
### BEGIN SOLUTION
blamed = next(one for one in report.not_on_tensor_cores if one["reason"] == "dimension")
off = {
    "share": report.tensor_core_share,
    "layer": blamed["layer"],
    "padded": 8 * math.ceil(blamed["size"] / 8),
}
### END SOLUTION
off

# %% check="off"
desk.check("off", off, report)

# %% [markdown]
# ## 7. Speed and memory
#
# A product of an $M \times K$ by a $K \times N$ matrix makes $2MNK$ operations: for each of the $MN$ results,
# $K$ products and $K$ sums. It reads both matrices and writes the result. Its **arithmetic intensity** is
#
# $$I = \frac{\text{operations}}{\text{bytes moved}}$$
#
# ### Exercise: `intensity`


# %% exercise="intensity"
def intensity(m, n, k, bytes_per_number):
    """Operations for each byte of the product (m, k) by (k, n). Each number is moved once."""
    ### BEGIN SOLUTION
    moved_bytes = bytes_per_number * (m * k + k * n + m * n)
    return 2 * m * n * k / moved_bytes
    ### END SOLUTION


# %% check="intensity"
desk.check("intensity", intensity)

# %% [markdown]
# A chip has two limits: its **peak** (operations a second) and its **bandwidth** (bytes a second). At the
# **ridge** they meet. Left of it the memory is the limit, right of it the cores:
#
# $$\text{rate} \le \min(\text{peak},\; \text{bandwidth} \cdot I)$$
#
# ![Left: the rooflines of an A100 in FP32 and FP16, with five products of the translator as predicted. Right: one CPU core in FP32 and BF16, products as predicted (open) and measured (full)](../slides/figures/lab3_mixedprec_roofline.svg)
#
# The makers' own figures (each with its source in `allhands/precision/chips.py`):

# %%
from allhands.precision.chips import CHIPS, chip

for one in CHIPS:
    half_peak, full_peak = one.peak("FP16"), one.peak("FP32")
    print(
        f"{one.name}: FP16 {half_peak / 1e12:5.0f} TFLOP/s, {half_peak / full_peak:4.1f} times FP32; "
        f"ridge at {one.ridge('FP16'):3.0f} operations a byte"
    )
# > V100: FP16   125 TFLOP/s,  8.0 times FP32; ridge at 139 operations a byte
# > T4: FP16    65 TFLOP/s,  8.0 times FP32; ridge at 203 operations a byte
# > A100: FP16   312 TFLOP/s, 16.0 times FP32; ridge at 201 operations a byte
# > H100: FP16   990 TFLOP/s, 14.8 times FP32; ridge at 295 operations a byte
# > H200: FP16   990 TFLOP/s, 14.8 times FP32; ridge at 206 operations a byte

# %% [markdown]
# So FP16 is 8 to 16 times as fast as FP32? Here are the matrix products of one training step of the translator
# (sentences of 8 and 10 tokens), by the roofline and the time of a **launch**, 5 microseconds each.
#
# **Predict:** lab 1's model has 128 hidden units and a batch of 64. How much does FP16 gain on an A100?

# %%
from allhands.precision import roofline

for preset in (configs.lab1_cpu(), configs.lab1_gpu(), configs.lab3_gpu()):
    size = roofline.Translator(69, 30, preset.n_embed, preset.n_hidden)
    for one in (chip("V100"), chip("A100")):
        fp32_s, fp16_s = (
            roofline.total_s(
                roofline.translator(size, preset.batch_size, 8, 10, dtype, backward=True), one
            )
            for dtype in ("FP32", "FP16")
        )
        print(
            f"{preset.preset} ({preset.n_hidden} hidden, batch {preset.batch_size}) on {one.name}: "
            f"{1e3 * fp32_s:.2f} ms and {1e3 * fp16_s:.2f} ms, {fp32_s / fp16_s:.1f} times as fast"
        )
# > lab1_cpu (128 hidden, batch 64) on V100: 0.43 ms and 0.40 ms, 1.1 times as fast
# > lab1_cpu (128 hidden, batch 64) on A100: 0.42 ms and 0.39 ms, 1.1 times as fast
# > lab1_gpu (512 hidden, batch 256) on V100: 3.95 ms and 0.85 ms, 4.6 times as fast
# > lab1_gpu (512 hidden, batch 256) on A100: 3.23 ms and 0.60 ms, 5.4 times as fast
# > lab3_gpu (2048 hidden, batch 1024) on V100: 195.35 ms and 25.35 ms, 7.7 times as fast
# > lab3_gpu (2048 hidden, batch 1024) on A100: 157.09 ms and 10.50 ms, 15.0 times as fast

# %% [markdown]
# (From the A100 on, a program in FP32 may use Tensor Cores too, with TF32: then FP16 is twice as fast as that.)
#
# These are bounds: no real program reaches them, and a step is more than its products. But they say **when it does
# not pay**. The small model spends its time in launches, and a launch takes as long in FP16. It does not pay for
# small models, small batches, and work that is not a matrix product.
#
# Predicted and measured, on this machine. The roofline is measured first; then products that were not used for it.
#
# **Predict:** for which product is the prediction worst?

# %%
from allhands.train import roofline_here

here = roofline_here.measure(dtypes=("FP32", "BF16"))
print(here)

# %% [markdown]
# A ratio above 1 is slower than predicted. The large product keeps the promise; thin and small ones keep it less
# well. The roofline knows nothing of caches (a matrix that is still in one comes sooner), nor of units that are half
# full. (FP16 itself is no race on a CPU: without FP16 units
# it is many times slower than FP32.)
#
# ### Memory
#
# **Predict:** does mixed precision halve the memory of the weights, with Adam?

# %%
from allhands.precision import memory

size = roofline.Translator(69, 30, n_embed=512, n_hidden=2048)
print(memory.table(size, 8, 10, chip("V100").memory_bytes))

# %% [markdown]
# In MB. Weights, gradients, masters and moments: 16 bytes for each weight, as in FP32. What halves is what each
# sentence leaves for the backward pass. So twice the batch fits, and a larger batch has a larger intensity. (This is
# arithmetic: a framework needs more than that.)

# %% [markdown]
# ## 8. On many ranks
#
# In lab 2 the ranks add up their gradients. Gradients in FP16 are half as many bytes. But the sum of many
# numbers below 65504 can be above it.
#
# ### Exercise: `average`
#
# Scaled gradients are large: that is what the scale is for. Here are four ranks. This mean is infinite. Mend it.


# %% exercise="average"
def average(grads_n):
    """The mean of the ranks' gradients: an FP16 array. grads_n: list of N FP16 arrays."""
    n_ranks = np.float16(len(grads_n))
    total = np.zeros_like(grads_n[0])
    ### BEGIN SOLUTION
    for grad in grads_n:
        total = total + grad / n_ranks
    return total
    ### FAULT for grad in grads_n:
    ### FAULT     total = total + grad
    ### FAULT return total / n_ranks
    ### END SOLUTION


# %%
with np.errstate(over="ignore"):
    print(average([np.float16([value]) for value in (30000, 40000, 20000, 10000)]))

# %% check="average"
desk.check("average", average)

# %% [markdown]
# Now the four ways on eight ranks, over the ring of lab 2. (Eight ranks in one process: each is a thread, and
# every message is counted.) Each rank brings the same three gradients: a large one, an ordinary one, and one
# of $2^{-24}$.
#
# **Predict:** which way loses which gradient?

# %%
from allhands.train import half_all_reduce
from allhands.train.rehearsal import rehearse

outcomes = rehearse(lambda comm, _: half_all_reduce.outcomes_of(comm), [None] * 8).results[0]
print(half_all_reduce.table(outcomes))

# %% [markdown]
# Sum first: the large one overflows. Divide first: the small one dies. BF16 keeps both, with three digits at
# most. The bytes halve in all three.
#
# And on two real ranks:

# %%
print(half_all_reduce.table(half_all_reduce.run(ranks=2)))

# %% [markdown]
# What does it gain? A message costs $a + b s$: the bytes halve, the start-up $a$ stays. On the link of lab 4 (64
# workers, 10 Gbit Ethernet, its published model), by the size of the FP32 gradient:

# %%
from allhands.mgwfbp import measured

for n_bytes in (1e5, 1e6, 1e7, 1e8):
    times = half_all_reduce.gain(measured.k80_10gbe(64), n_bytes)
    print(f"{n_bytes / 1e6:5g} MB: {times:.2f} times as fast")
# >   0.1 MB: 1.04 times as fast
# >     1 MB: 1.28 times as fast
# >    10 MB: 1.79 times as fast
# >   100 MB: 1.97 times as fast

# %% [markdown]
# The gradient of lab 1 is one megabyte: FP16 gains little there. Merge first, then compress.

# %% [markdown]
# ## 9. A GAN: two losses, two scalers
#
# A generator makes points out of noise; a discriminator says which points are real. Each has a loss of its own.
# Here their sizes are set far apart on purpose: one is multiplied by 1,000, the other by 0.000001. Adam
# divides by the size, so FP32 does not care. FP16 does.
#
# **Predict:** with one `GradScaler` for both, where will the scale end? And with two? (The three runs take about
# 10 seconds.)

# %%
from allhands.train.gan import train_gan

runs = {name: train_gan(name, seed=0) for name in ("fp32", "one_scaler", "mixed")}
for name, run in runs.items():
    print(
        f"{name:10} scales 2^{math.log2(run.scales_d[-1]):g} and 2^{math.log2(run.scales_g[-1]):g}, "
        f"distance to the real points {run.distance:.3f}, zero gradients {run.zero_share:.0%}"
    )

# %%
from allhands.trace import draw

draw.points({name: run.made for name, run in runs.items()}, "what the generators make")

# %%
two, one = runs["mixed"], runs["one_scaler"]
scales = {
    "two scalers: discriminator": np.log2(two.scales_d),
    "two scalers: generator": np.log2(two.scales_g),
    "one scaler for both": np.log2(one.scales_d),
}
steps = range(1, len(two.scales_d) + 1)
draw.curves(steps, scales, "the loss scales", x="step", y="log2 of the scale")

# %% [markdown]
# ### Exercise: `two_scalers`
#
# Why does each loss have a scaler of its own?
#
# * **a** One GradScaler can only serve one optimizer.
# * **b** The generator needs FP32 and the discriminator FP16.
# * **c** The two losses have gradients of different size, and an overflow of one should not change the scale of
#   the other.
# * **d** Two scalers are faster than one.
#
# Give the letter as `answer`.

# %% exercise="two_scalers"
### BEGIN SOLUTION
answer = "c"
### END SOLUTION

# %% check="two_scalers"
desk.check("two_scalers", answer)

# %% [markdown]
# With one scaler the discriminator's overflows hold the scale down, and the generator's gradients are lost. With
# two, each finds its own scale. (Distances on three seeds: FP32 0.028, 0.024, 0.022; one scaler 0.14, 0.44,
# 0.065; two scalers 0.030, 0.036, 0.034.)

# %% [markdown]
# ## 10. On a GPU
#
# Nothing in this notebook needed a GPU, and no point waits for one. What awaits a GPU is the last proof: your own
# traces, and your own times. On a machine with one:
#
# ```
# python handson/lab3_mixedprec/gpu_level.py       # ten minutes at most; --rehearse: the same, tiny, on a CPU
# ```
#
# It trains the translator in FP32, TF32, FP16 and BF16, and writes `record.txt` with the times of a step, the memory,
# the largest batch that fits, the share on Tensor Cores and the chip's own roofline. Its traces lie beside it, for
# `allhands profile`. Look for three things:
#
# 1. **Did they run?** The share of the matrix time, in each of the four.
# 2. **Was it worth it?** Times of a step, beside the bound that the roofline gives.
# 3. **What fits?** The largest batch, beside the arithmetic of section 7.
#
# As a cluster job, Chainer's translator in mixed precision, and then the same in FP32:
#
# ```
# cluster_jobs/submit lab3_mixedprec --dry-run     # what would be done
# cluster_jobs/submit lab3_mixedprec --wait        # do it, and follow the log
# cluster_jobs/submit lab3_mixedprec -- --set precision=fp32
# ```
#
# On a laptop without a scheduler the site `local` runs the small preset `lab3_cpu` here.

# %% [markdown]
# ## 11. What you saw
#
# * FP16 ends at 65504, begins at 6e-8, and near 1 it does not hear an update of 0.0002.
# * Two ills, two cures: loss scaling saves the gradient, master weights save the update.
# * Unscale, test, clip, step. The wrong order raises no error and learns nothing.
# * Sums, exponentials and the optimizer stay in FP32.
# * Only the kernel's name proves that Tensor Cores ran.
# * FP16 halves the bytes: of memory, and of the all-reduce. It does not halve start-ups.
#
# **Next:** lab 4 plans when the gradients travel.

# %%
desk.score()
