"""Three faults of one small program, and four functions that read the log of its ranks.

The program counts the words of sentences, a share of them on each rank. Each fault has two readings
(`readings.py`): a TypeError on all ranks; an IndexError on the ranks that meet a certain sentence;
a rank that is set twice, so that two processes have one name. What the ranks print depends on how
the job ends, too: `bug1_errorcount_job.py`.
"""

import re

import numpy as np

N_WORDS = 12  # words have the numbers 0 .. 11; 0 stands for a word that is not known
N_SENTENCES = 102
HEADER = "Traceback (most recent call last):"


def sentences(numbers):
    """The sentences with these numbers, each four word numbers. One holds a word that is not known:
    sentence 2, word 12."""
    return [[12 if (n, k) == (2, 3) else 1 + (n + k) % 11 for k in range(4)] for n in numbers]


def table(n_words, n_sentences):
    """A matrix of zeros: a row for each word, a column for each sentence."""
    ### FAULT return np.zeros(n_words, n_sentences)
    return np.zeros((n_words, n_sentences))


def count_words(counts, sentences):
    """Count the words of each sentence in its column of `counts`; return how many they are."""
    ### FAULT for column, sentence in enumerate(sentences):
    ### FAULT     for word in sentence:
    ### FAULT         counts[word, column] += 1
    ### FAULT return int(counts.sum())
    for column, sentence in enumerate(sentences):
        for word in sentence:
            counts[word if word < len(counts) else 0, column] += 1
    return int(counts.sum())


def identify(world):
    """Who am I? Return {"rank": ..., "device": ..., "size": ...}.

    rank: this process among all, 0 .. size - 1. It names the process in the log, and it says which
    share of the sentences is its own: numbers[rank::size]. device: the number of its device on its
    node, from 0. A node has two processes here. world: the communicator of all processes.
    """
    ### FAULT rank, size = world.rank, world.size
    ### FAULT node = world.Split(rank // 2)  # the communicator of this node's two processes
    ### FAULT rank = node.rank  # devices are numbered from 0 on each node
    ### FAULT return {"rank": rank, "device": rank, "size": size}
    rank, size = world.rank, world.size
    node = world.Split(rank // 2)  # the communicator of this node's two processes
    return {"rank": rank, "device": node.rank, "size": size}


def normalise(message):
    """The message without what differs from rank to rank: two ranks with one fault say the same.

    Addresses (0x7f3a9c) become "<address>". Numbers (26, -1, 0.5, 1e-05) become "<n>", also behind
    a colon or in brackets: cuda:1, (26, 4). Digits inside a name stay: float32, conv1.
    """
    message = re.sub(r"0x[0-9a-fA-F]+", "<address>", message)
    return re.sub(r"(?<!\w)-?\d+(\.\d+)?(e[+-]?\d+)?(?!\w)", "<n>", message)


def count(output, normalise):
    """Which ranks printed a whole traceback, which a part of one, and which none?

    output: {rank: the text of this rank}. Return {"complete": {message: ranks}, "cut": ranks,
    "silent": ranks}, where `ranks` are sorted lists.

    A traceback begins with the line "Traceback (most recent call last):". It is complete if a line
    without indent follows, the error ("TypeError: ..."); then `normalise(line)` is its message. A
    rank counts once, under its first error: a second traceback is a consequence of the first.
    """
    complete, cut, silent = {}, [], []
    for rank in sorted(output):
        lines = output[rank].splitlines()
        if "Traceback (most recent call last):" not in lines:
            silent.append(rank)
            continue
        after = lines[lines.index("Traceback (most recent call last):") + 1 :]
        errors = [line for line in after if line and not line.startswith(" ")]
        if errors:
            complete.setdefault(normalise(errors[0]), []).append(rank)
        else:
            cut.append(rank)
    return {"complete": complete, "cut": cut, "silent": silent}


def verdict(n_ranks, n_complete, had_time):
    """What does the count say? "all ranks", "some ranks" or "undetermined".

    n_complete: how many of the `n_ranks` ranks printed this error whole. had_time: False if the job
    was ended at the first failure, True if the other ranks had time to print an error of theirs.

    All ranks fail in the same way: "all ranks", not a matter of rank or device. Fewer, and the
    others had time: "some ranks", it depends on the rank. Fewer, and they had none: nobody knows.
    """
    if n_complete == n_ranks:
        return "all ranks"
    return "some ranks" if had_time else "undetermined"
