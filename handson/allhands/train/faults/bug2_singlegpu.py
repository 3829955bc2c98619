"""Seven faults: programs that run alone and fail together, in silence, or alone as well.

Each function is a small program of one rank: `program(comm)`, with mpi4py's communicator (or one
that notes its calls). The body is the repaired code; the lines `### FAULT code` above it are the
whole faulty body (`readings.py`). A program imports what it needs, so that its source alone runs.
What each shows on one rank and on several: SYMPTOMS.
"""

from dataclasses import dataclass

import numpy as np


def report(comm):
    """Rank 0 prints how many sentences all ranks have together. All return that number."""
    ### FAULT n_sentences = 10 + comm.rank
    ### FAULT if comm.rank != 0:
    ### FAULT     return None  # only rank 0 prints
    ### FAULT total = comm.allreduce(n_sentences)  # the sum over all ranks
    ### FAULT print(f"{total} sentences")
    ### FAULT return total
    n_sentences = 10 + comm.rank
    total = comm.allreduce(n_sentences)  # the sum over all ranks
    if comm.rank == 0:
        print(f"{total} sentences")
    return total


def fit_line(comm):
    """One epoch of least squares on 102 points, batches of 5; return the loss of all points."""
    ### FAULT x = np.linspace(-1, 1, 102)
    ### FAULT y = 3 * x
    ### FAULT mine = np.arange(comm.rank, len(x), comm.size)  # the numbers of this rank's points
    ### FAULT n_steps = -(-len(mine) // 5)  # the last batch may have fewer points
    ### FAULT slope = 0.0
    ### FAULT for step in range(n_steps):
    ### FAULT     batch = mine[5 * step : 5 * step + 5]
    ### FAULT     gradient = np.sum((slope * x[batch] - y[batch]) * x[batch])
    ### FAULT     slope -= comm.allreduce(gradient) / comm.allreduce(len(batch))
    ### FAULT return comm.allreduce(np.sum((slope * x[mine] - y[mine]) ** 2))
    x = np.linspace(-1, 1, 102)
    y = 3 * x
    mine = np.arange(comm.rank, len(x), comm.size)  # the numbers of this rank's points
    n_steps = max(comm.allgather(-(-len(mine) // 5)))  # as many as the rank with the most points
    slope = 0.0
    for step in range(n_steps):
        batch = mine[5 * step : 5 * step + 5]  # may be empty: it adds 0, and counts 0
        gradient = np.sum((slope * x[batch] - y[batch]) * x[batch])
        slope -= comm.allreduce(gradient) / comm.allreduce(len(batch))
    return comm.allreduce(np.sum((slope * x[mine] - y[mine]) ** 2))


SENTENCES = (
    *("one two three", "two two four", "five six", "six one"),
    *("seven six two", "eight nine", "one ten", "two ten"),
)


def count_words(comm):
    """Return {word: how often it comes in SENTENCES}. Each rank counts in its own sentences."""
    ### FAULT from allhands.train.faults.bug2_singlegpu import SENTENCES
    ### FAULT mine = " ".join(SENTENCES[comm.rank :: comm.size]).split()  # the words of this rank
    ### FAULT vocabulary = sorted(set(mine))
    ### FAULT counts = np.array([mine.count(word) for word in vocabulary], float)
    ### FAULT total = np.zeros(len(vocabulary))
    ### FAULT comm.Allreduce(counts, total)  # adds the arrays of all ranks, number by number
    ### FAULT return dict(zip(vocabulary, total.tolist(), strict=True))
    from allhands.train.faults.bug2_singlegpu import SENTENCES

    mine = " ".join(SENTENCES[comm.rank :: comm.size]).split()  # the words of this rank
    vocabulary = sorted(set().union(*comm.allgather(set(mine))))  # of all ranks together
    counts = np.array([mine.count(word) for word in vocabulary], float)
    total = np.zeros(len(vocabulary))
    comm.Allreduce(counts, total)  # adds the arrays of all ranks, number by number
    return dict(zip(vocabulary, total.tolist(), strict=True))


def train_line(comm):
    """Least squares from a random start; return {"slope", "offset", "loss"} after 50 steps."""
    ### FAULT x = np.linspace(-1, 1, 102)
    ### FAULT y = 3 * x + 1
    ### FAULT line = np.random.default_rng(comm.rank).normal(size=2)  # slope and offset
    ### FAULT mine = np.arange(comm.rank, len(x), comm.size)
    ### FAULT for _ in range(50):
    ### FAULT     error = line[0] * x[mine] + line[1] - y[mine]
    ### FAULT     gradient = np.array([np.mean(error * x[mine]), np.mean(error)])
    ### FAULT     line = line - 0.5 * comm.allreduce(gradient) / comm.size
    ### FAULT loss = np.mean((line[0] * x + line[1] - y) ** 2)
    ### FAULT return {"slope": float(line[0]), "offset": float(line[1]), "loss": float(loss)}
    x = np.linspace(-1, 1, 102)
    y = 3 * x + 1
    line = np.random.default_rng(comm.rank).normal(size=2)  # slope and offset: each rank its own
    line = comm.bcast(line)  # rank 0's, on all ranks
    mine = np.arange(comm.rank, len(x), comm.size)
    for _ in range(50):
        error = line[0] * x[mine] + line[1] - y[mine]
        gradient = np.array([np.mean(error * x[mine]), np.mean(error)])
        line = line - 0.5 * comm.allreduce(gradient) / comm.size
    loss = np.mean((line[0] * x + line[1] - y) ** 2)
    return {"slope": float(line[0]), "offset": float(line[1]), "loss": float(loss)}


def name_labels(comm):
    """Give each label its name; return how many labels all ranks have together."""
    ### FAULT names = ["zero", "one", "two"]
    ### FAULT labels = [0, 1, 2, 1, 0, 2, 2, 3]
    ### FAULT mine = [names[label] for label in labels[comm.rank :: comm.size]]
    ### FAULT return comm.allreduce(len(mine))
    names = ["zero", "one", "two", "three"]
    labels = [0, 1, 2, 1, 0, 2, 2, 3]
    mine = [names[label] for label in labels[comm.rank :: comm.size]]
    return comm.allreduce(len(mine))


def begin_lazily(comm):
    """Broadcast a layer whose input size shows at its first call; return the sum of its weights."""
    ### FAULT import chainer
    ### FAULT import chainermn
    ### FAULT comm = chainermn.create_communicator("naive", mpi_comm=comm)
    ### FAULT np.random.seed(comm.rank)
    ### FAULT layer = chainer.links.Linear(None, 3)
    ### FAULT if comm.rank == 0:  # rank 0 shows the shape
    ### FAULT     layer(np.zeros((1, 4), np.float32))
    ### FAULT     print(layer.W.shape)
    ### FAULT comm.bcast_data(layer)
    ### FAULT layer(np.zeros((1, 4), np.float32))
    ### FAULT return float(layer.W.array.sum())
    import chainer
    import chainermn

    comm = chainermn.create_communicator("naive", mpi_comm=comm)
    np.random.seed(comm.rank)
    layer = chainer.links.Linear(None, 3)
    layer(np.zeros((1, 4), np.float32))  # on every rank: now the weights are there
    if comm.rank == 0:
        print(layer.W.shape)
    comm.bcast_data(layer)
    return float(layer.W.array.sum())


def share_the_loader(comm):
    """Add up 100 numbers that a loader process of this rank makes, over all ranks."""
    ### FAULT import multiprocessing
    ### FAULT fork = multiprocessing.get_context("fork")
    ### FAULT queue = fork.Queue()
    ### FAULT def load():
    ### FAULT     for step in range(100):
    ### FAULT         seed = comm.bcast(step)  # in the loader: a copy of this rank
    ### FAULT         queue.put(int(np.random.default_rng(seed).integers(10)))
    ### FAULT loader = fork.Process(target=load)
    ### FAULT loader.start()
    ### FAULT total = sum(comm.allreduce(queue.get()) for _ in range(100))
    ### FAULT loader.join()
    ### FAULT return total
    import multiprocessing

    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    seeds = comm.bcast(list(range(100)))  # before the loader starts

    def load():
        for seed in seeds:
            queue.put(int(np.random.default_rng(seed).integers(10)))

    loader = fork.Process(target=load)
    loader.start()
    total = sum(comm.allreduce(queue.get()) for _ in seeds)
    loader.join()
    return total


@dataclass(frozen=True)
class Symptom:
    """What the faulty reading of `name` shows, on which rung (of 1, 2 and 4 ranks) at first.

    kind: "error" (a rank raises), "hang", "differs" (the ranks return different results, without a
    word), "any" (now this, now that). title, repair: what is wrong, and one sentence that mends
    it; `python -m allhands.train.faults NAME --repaired` says both.
    """

    name: str
    title: str
    rung: int
    kind: str
    repair: str


SYMPTOMS = (
    Symptom(
        *("report", "a collective that some ranks do not call", 2, "hang"),
        "All ranks call the collective; the `if` stands around the print alone.",
    ),
    Symptom(
        *("fit_line", "ranks with different numbers of steps", 4, "hang"),
        "All ranks make as many steps as the one with the most; a step without samples adds 0.",
    ),
    Symptom(
        *("count_words", "arrays whose size comes from the rank's own data", 2, "differs"),
        "Build the vocabulary from the words of all ranks.",
    ),
    Symptom(
        *("train_line", "no broadcast of the parameters", 2, "differs"),
        "Broadcast rank 0's parameters before the first step.",
    ),
    Symptom(
        *("name_labels", "an ordinary fault: a label without a name", 1, "error"),
        "Give each label a name.",
    ),
    Symptom(
        *("begin_lazily", "parameters that some ranks have not made yet", 2, "error"),
        "Call the model once on every rank before the broadcast, or give all sizes.",
    ),
    Symptom(
        *("share_the_loader", "a forked loader that uses the communicator", 2, "any"),
        "Ask the other ranks before the loader starts, and hand it the answer.",
    ),
)
