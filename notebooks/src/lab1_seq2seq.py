# %% [markdown]
# # Lab 1: a translator on one device
#
# **Aim.** Train and evaluate a Chainer seq2seq translator on one device, and say where the time goes.
#
# **You need** Python and some deep learning. No GPU: everything here runs on one CPU core. It takes
# about 90 minutes.
#
# ![An encoder reads the English words, a decoder says the Japanese characters](../slides/figures/lab1_seq2seq_model.svg)
#
# An **encoder** reads the source sentence. A **decoder** says the target sentence, one token after the
# other. At each step it looks back at the source: this is **attention** (Luong et al. 2015).
#
# How this notebook works:
#
# * Write your answer where you see `# your code here`. Then run the check below it.
# * A check answers in sentences. It gives points, and never an error.
# * Stuck? `desk.hint("pad")` gives one hint, and then the next.
# * You can go on without an answer: the notebook then uses the package's version.

# %%
import chainer.functions as F
import numpy as np

from allhands import config as configs
from allhands.data.batch import BatchIterator
from allhands.data.vocab import BOS, EOS, PAD
from allhands.grade.desk import Desk
from allhands.trace import draw
from allhands.trace.summary import read_metrics, time_by
from allhands.train import run
from allhands.train.build import open_corpus
from allhands.train.translator import Translator

desk = Desk("lab1_seq2seq")

# %% [markdown]
# ## 1. The sentences
#
# The corpus has 8,000 pairs: English numbers and dates, and their Japanese. It was generated, so nobody
# has to download it. But the task is real. English counts in thousands and Japanese in man
# (万, 10,000). And the parts of a date change their places.

# %%
config = configs.lab1_cpu()
corpus = open_corpus(config)

for pair in corpus.valid[:6]:
    print(f"{pair.source:60} {pair.target}")
# > Jul 24, 1916                                                 1916年7月24日
# > Oct 30, 2009                                                 2009年10月30日
# > Jun 16, 2030                                                 2030年6月16日
# > one thousand one hundred and seven                           千百七
# > four hundred and ninety five                                 四百九十五
# > Apr 2, 1922                                                  1922年4月2日

# %% [markdown]
# A model reads numbers, not words. A **vocabulary** gives each token an id. English is cut into words
# and single digits, Japanese into characters. Four ids are special:
#
# | id | name | meaning |
# |---|---|---|
# | 0 | `PAD` | nothing: fills up a row |
# | 1 | `BOS` | the sentence begins |
# | 2 | `EOS` | the sentence has ended |
# | 3 | `UNK` | a token that the vocabulary does not know |
#
# **Predict:** the corpus has English numbers up to 999,999. How many English tokens does it need?

# %%
print("source vocabulary:", len(corpus.source_vocab))
print("target vocabulary:", len(corpus.target_vocab))
# > source vocabulary: 69
# > target vocabulary: 30

# %% [markdown]
# Few tokens, and yet a million numbers: words are put together. The model must learn how.
#
# This is what the model is given:

# %%
from allhands.data import tokens

cut = tokens.split("Apr 2, 1922", config.source_tokens)
print(cut)
print(corpus.source_vocab.encode(cut))
# > ['apr', '2', ',', '1', '9', '2', '2']
# > [40, 7, 11, 6, 8, 7, 7]

# %% [markdown]
# ## 2. One rectangle
#
# A device is fast when it works on one large array. But sentences have different lengths. So the short
# ones are filled up with `PAD` on the right.
#
# ### Exercise: `pad`


# %% exercise="pad"
def pad(rows):
    """Rows of ids as one array (B, T), int32.

    rows: a list of B lists (or arrays) of ids. T is the length of the longest row.
    PAD fills the right side.
    """
    ### SOLUTION FROM allhands.data.batch:pad


# %% check="pad"
desk.check("pad", pad)

# %%
from allhands.data import batch as ours

pad = desk.carry_on("pad", pad, ours.pad)

# %% [markdown]
# `PAD` costs time like any other token, and nobody reads the result. How much of the work is that?
#
# One epoch is one pass over all pairs. `BatchIterator` first shuffles them. Then it takes a **pool** of
# batches, sorts the pool by length, and cuts it into batches. With `pool=1`, sentences meet by chance.
# With `pool=20`, a batch is made of sentences of similar length.
#
# **Predict:** which share of all cells is `PAD`, by chance? And pooled?


# %%
def padding_share(batches):
    """The share of PAD among all cells of the target rectangles, between 0 and 1."""
    batches = list(batches)
    cells = sum(batch.target_out_bt.size for batch in batches)
    tokens = sum(batch.n_tokens for batch in batches)
    return 1 - tokens / cells


# %% [markdown]
# ### Exercise: `waste`
#
# Measure both shares over one epoch: `BatchIterator(corpus.train, 64, seed=0, repeat=False, pool=...)`.
# Give them as `shares = {"by chance": ..., "pooled": ...}`.

# %% exercise="waste"
### BEGIN SOLUTION
shares = {
    name: padding_share(list(BatchIterator(corpus.train, 64, seed=0, repeat=False, pool=pool)))
    for name, pool in (("by chance", 1), ("pooled", 20))
}
### END SOLUTION
shares

# %% check="waste"
desk.check("waste", shares, corpus.train)

# %% [markdown]
# ## 3. What the decoder is told
#
# In training the decoder does not wait for its own words. It is given the right words, and must say the
# next one. This is **teacher forcing**. So the target is needed twice:
#
# * `inputs`: what the decoder knows at each step,
# * `outputs`: what it must say at each step.
#
# The function below has a fault. Do not mend it yet. First look at what the fault does.


# %% exercise="shift"
def shift(rows):
    """Inputs and outputs of the decoder for B target sentences (lists of ids without BOS and EOS).

    Returns two lists of B rows. Row by row they have the same length.
    """
    ### BEGIN SOLUTION
    inputs = [[BOS, *row] for row in rows]
    ### FAULT inputs = [[*row, EOS] for row in rows]
    ### END SOLUTION
    outputs = [[*row, EOS] for row in rows]
    return inputs, outputs


# %% [markdown]
# Here is a training loop without a framework around it. It is all that a step does: **forward,
# backward, update**.

# %%
import inspect

from allhands.train.by_hand import train_by_hand

print(inspect.getsource(train_by_hand))

# %% [markdown]
# It trains a fresh model with your `pad` and `shift`, 150 updates, a few seconds.
#
# **Predict:** the loss per token begins near ln(vocabulary size). Where will it be in the end? And how
# many of the three translations will be right?

# %%
from allhands.model.seq2seq import masked_loss as our_masked_loss

pairs = [(corpus.train.source(i), corpus.train.target(i)) for i in range(len(corpus.train))]
questions = ["twenty four", "three thousand and seventy", "March 5, 1998"]

fresh = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
losses = train_by_hand(fresh.model, pairs, 150, pad=pad, shift=shift, masked_loss=our_masked_loss)

print(f"loss per token: {losses[0]:.2f} at first, {np.mean(losses[-10:]):.3f} in the end")
for question, answer in zip(questions, fresh.translate(questions), strict=True):
    print(f"{question:30} {answer}")

# %% [markdown]
# With the fault, the loss is excellent and the translations are nonsense. Why?
#
# ### Exercise: `shift`
#
# Find the fault, mend `shift` above, and run the cells again. Now the loss is higher, and the
# translations begin to make sense.

# %% check="shift"
desk.check("shift", shift)

# %% [markdown]
# ## 4. The loss
#
# The model says a probability for each token of the vocabulary. The **loss** is −log of the probability
# of the right token. `PAD` is no token: it must cost nothing.
#
# $$\text{loss} = \frac{1}{B} \sum_{b=1}^{B} \; \sum_{t:\, y_{bt} \neq \text{PAD}} -\log p(y_{bt})$$
#
# $B$ is the number of sentences of the batch, $y_{bt}$ the right token at step $t$ of sentence $b$.
#
# ### Exercise: `masked_loss`


# %% exercise="masked_loss"
def masked_loss(logits_btv, target_out_bt):
    """The loss of the formula above, as a Chainer variable.

    logits_btv: (B, T, V), before the softmax. target_out_bt: (B, T), int32, with PAD.
    """
    ### SOLUTION FROM allhands.model.seq2seq:masked_loss


# %% check="masked_loss"
desk.check("masked_loss", masked_loss)

# %% [markdown]
# ## 5. A real run
#
# `allhands train lab1_cpu` does the same in a run folder: with validation, snapshots, and a log. The
# next cell is that run, from Python. It takes about half a minute on one core.
#
# **Predict:** after one pass over the pairs, how many of 100 validation sentences are right, to the last
# character?

# %%
folder = run.new_folder(config.preset)
result = run.train(config, folder)

# %%
metrics = read_metrics(folder)
draw.learning_curve({"seed 0": metrics}, "lab1_cpu")

# %%
for line in metrics.evaluations:
    print(
        f"update {line['update']:4}: loss per token {line['valid_loss']:.3f}, "
        f"exact match {line['valid_exact_match']:5.1f} %, "
        f"BLEU {line['valid_bleu']:5.1f}, chrF {line['valid_chrf']:5.1f}"
    )

# %% [markdown]
# ### Exercise: `curve`
#
# At the first evaluation the loss per token has already fallen far, and BLEU is high. But about four of
# ten sentences are still wrong. Why?
#
# * **a** The validation pairs are harder than the training pairs.
# * **b** A sentence counts only if all its tokens are right.
# * **c** The model has overfitted.
# * **d** Exact match is computed on fewer pairs, so it is noise.
#
# Give the letter as `answer`.

# %% exercise="curve"
### BEGIN SOLUTION
answer = "b"
### END SOLUTION

# %% check="curve"
desk.check("curve", answer)

# %% [markdown]
# ## 6. Translate
#
# In training the decoder knew the right words. Now it has only its own. **Greedy search** takes the most
# probable token, gives it back to the decoder, and goes on until the token is `EOS`.
#
# A model offers two functions:
#
# * `state = model.start(source_bt)` reads the source;
# * `state, log_prob_bv = model.step(state, token_b)` takes the last token of each sentence, as an array,
#   and gives the log-probabilities of the next one, shape (B, V).
#
# ### Exercise: `greedy`


# %% exercise="greedy"
def greedy(model, source_bt, max_length):
    """The ids that the model says for one sentence: a list, without BOS and EOS.

    source_bt: (1, S). At most `max_length` ids. The first token that the decoder is given is BOS.
    """
    ### BEGIN SOLUTION
    state = model.start(source_bt)
    token, said = BOS, []
    for _ in range(max_length):
        state, log_prob_bv = model.step(state, np.array([token], np.int32))
        token = int(log_prob_bv[0].argmax())
        if token == EOS:
            break
        said.append(token)
    return said
    ### END SOLUTION


# %% check="greedy"
desk.check("greedy", greedy)

# %% [markdown]
# Now play. The run's folder holds the model. Write your own numbers and dates.
#
# **Predict:** the test says that nearly all sentences are right. Is "ten thousand" right (一万)? It is a
# short sentence of common words, but it stands in no file as a whole sentence. And what does the model do
# with a word that it never saw, such as "million"?

# %%
translator = Translator.load(folder)

for text in [
    "six hundred and fourteen thousand two hundred and five",
    "ten thousand",
    "March 6, 2026",
    "two million",
]:
    print(f"{text:60} {translator.translate([text])[0]}")

# %% [markdown]
# Where does the decoder look while it speaks? Each row of the picture is one character of the answer.
# The darker a cell, the more the decoder looks at that source token.
#
# **Predict:** in a date, where does it look for the year?

# %%
draw.alignment(*translator.alignment("March 6, 2026"))

# %% [markdown]
# ## 7. Where the time goes
#
# The run wrote an **event** for each part of each step: when it began, and when it ended. Here are three
# steps from the middle.

# %%
from allhands.trace.events import read_events

steps = read_events(folder / "events.rank0.jsonl")
draw.gantt([event for event in steps if 201 <= event.step <= 203], "three steps of lab1_cpu")

# %% [markdown]
# Which functions is a step made of? A **function hook** of Chainer is called before and after each
# function, forward and backward. `FunctionSpans` makes an event of each call.
#
# **Predict:** which takes longer, forward or backward? By what factor? Which function is the slowest?

# %%
from allhands.trace.events import Recorder
from allhands.train.recorder import FunctionSpans

batch = next(BatchIterator(corpus.train, 64, seed=1))
recorder = Recorder()
with FunctionSpans(recorder):
    for _ in range(5):
        loss = translator.model.loss(batch)
        translator.model.cleargrads()
        loss.backward()
events = recorder.events

draw.time_shares(time_by(events, named=True), "five steps, function by function")

# %% [markdown]
# ### Exercise: `time`
#
# Read two things from your own events: the slowest function (with the word `forward` or `backward`, as
# in the figure), and the share of backward in the whole time, between 0 and 1. `time_by(events)` adds up
# by kind of work. Give them as `where = {"slowest": "...", "backward share": ...}`.

# %% exercise="time"
### BEGIN SOLUTION
where = {
    "slowest": time_by(events, named=True)[0].label,
    "backward share": next(s.share for s in time_by(events) if s.label == "backward"),
}
### END SOLUTION
where

# %% check="time"
desk.check("time", where, events)

# %% [markdown]
# ## 8. What will travel
#
# In lab 2 several devices train one model. After each backward pass they add up their gradients: every
# device sends and receives the whole gradient.
#
# ### Exercise: `gradient_mb`
#
# How many `megabytes` (1 MB = 1,000,000 bytes) is the gradient of `translator.model` in FP32?

# %% exercise="gradient_mb"
### BEGIN SOLUTION
megabytes = 4 * sum(parameter.size for parameter in translator.model.params()) / 1e6
### END SOLUTION
megabytes
# = 1.028472

# %% check="gradient_mb"
desk.check("gradient_mb", megabytes, translator.model)

# %% [markdown]
# ## 9. The same run as a cluster job
#
# A job script says what a run needs, and runs one command. Read
# `cluster_jobs/lab1_seq2seq.slurm` (or `.pbs`) in a terminal, and then:
#
# ```
# cluster_jobs/submit lab1_seq2seq --dry-run     # what would be done
# cluster_jobs/submit lab1_seq2seq --wait        # do it, and follow the log
# ```
#
# On a laptop without a scheduler the site `local` runs the same script here. On a cluster the job asks
# for one GPU and runs `allhands train lab1_gpu`. It saves and stops before its time limit, and goes back
# into the queue: nothing is lost.
#
# More to try:
#
# * `allhands train lab1_real`: real sentences from Tatoeba. A minute, and honest, lower figures.
# * `python handson/lab1_seq2seq/step_time.py`: time and memory of a step against batch size.
# * `allhands train lab1_cpu --set train=mine.tsv --set valid=... --set test=...`: your own sentences.

# %% [markdown]
# ## 10. What you saw
#
# * Sentences become one rectangle. Sorting by length takes most of the padding away.
# * A loss that is too good is a symptom. Always look at translations.
# * The loss is divided by the number of sentences. That will matter on many devices.
# * Backward takes longer than forward. Its gradients are ready one after the other.
# * The gradient is about a megabyte, whatever the batch size.
#
# **Next:** lab 2 turns this program into one that runs on many devices and gives the same answer.

# %%
desk.score()
