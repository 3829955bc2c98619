"""A small data-parallel program that is right: it translates word for word.

The programs beside it each change one function or setting of it, and so plant one mistake. A
sentence has 3 to 9 words of 12; each word has one translation. Conventions: as in
`allhands.train.compare.parts`.
"""

from types import SimpleNamespace

import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import numpy as np
import sacrebleu

from allhands.train.compare.parts import Parts

N_WORDS, N_TRAIN, N_VALID, BATCH = 12, 49, 31, 6


def sentences(n, seed):
    """Pairs of arrays of words: (source, target). The last word is in every 60th source alone."""
    random = np.random.RandomState(seed)
    rows = [random.randint(N_WORDS - 1, size=random.randint(3, 10)) for _ in range(n)]
    for row in rows[::60]:
        row[0] = N_WORDS - 1
    return [(row.astype("i"), ((5 * row + 3) % N_WORDS).astype("i")) for row in rows]


def vocabulary(pairs, comm):
    return sorted({int(word) for source, _ in pairs for word in source})


def shard(n, comm, seed):
    """This rank's samples: a share of one shuffled row."""
    return np.random.RandomState(seed).permutation(n)[comm.rank :: comm.size]


def batches(numbers, epoch, comm, n_samples):
    """This rank's batches of an epoch; all ranks have as many, sizes differ by one at most."""
    numbers = np.random.RandomState(1 + epoch).permutation(numbers)
    n_steps = -(-n_samples // (BATCH * comm.size))
    return np.array_split(numbers, n_steps)


def make_model(comm, n_words):
    np.random.seed(7)
    return chainer.Sequential(L.EmbedID(n_words, 8), F.tanh, L.Linear(8, N_WORDS))


def make_optimizer(model, comm):
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(0.02), comm)
    optimizer.setup(model)
    optimizer.add_hook(chainer.optimizer_hooks.GradientClipping(0.2))
    return optimizer


def weigh(loss, n, comm):
    """The mean of the ranks' weighted losses is the mean over all samples."""
    return loss * (n * comm.size / comm.allreduce_obj(n))


def held_out(n, comm):
    return range(comm.rank, n, comm.size)


def count(model, pairs):
    """Numerators and denominators on these pairs; `words` are needed for BLEU."""
    counts = SimpleNamespace(sentences=len(pairs), tokens=0, loss=0.0, right=0, words=[])
    for source, target in pairs:
        scores = model(source)
        counts.loss += float(F.softmax_cross_entropy(scores, target, reduce="no").array.sum())
        counts.tokens += len(target)
        said = scores.array.argmax(axis=1)
        counts.right += int((said == target).all())
        counts.words.append((" ".join(map(str, said)), " ".join(map(str, target))))
    return counts


def bleu(words):
    said, wanted = zip(*words, strict=True)
    return sacrebleu.corpus_bleu(said, [wanted], tokenize="none").score


def metrics(mine, comm):
    """Metrics of all ranks' counts: sums first, then ratios."""
    n, tokens = comm.allreduce_obj(mine.sentences), comm.allreduce_obj(mine.tokens)
    return {
        "n_sentences": n,
        "n_tokens": tokens,
        "loss_per_token": comm.allreduce_obj(mine.loss) / tokens,
        "exact_match": 100 * comm.allreduce_obj(mine.right) / n,
        "bleu": bleu(comm.allreduce_obj(mine.words)),
    }


def build(comm, **changes):
    """The program, with some of the functions above exchanged: build(comm, shard=...)."""
    do = SimpleNamespace(**(globals() | changes))
    pairs, valid = sentences(N_TRAIN, 0), sentences(N_VALID, 1)
    mine = do.shard(len(pairs), comm, seed=0)
    words = do.vocabulary([pairs[i] for i in mine] if "vocabulary" in changes else pairs, comm)
    model = do.make_model(comm, len(words) if "vocabulary" in changes else N_WORDS)
    optimizer = do.make_optimizer(model, comm)

    def loss(numbers):
        chosen = [pairs[i] for i in numbers]
        source, target = (np.concatenate(side) for side in zip(*chosen, strict=True))
        total = F.sum(F.softmax_cross_entropy(model(source), target, reduce="no"))
        return do.weigh(total / len(chosen), len(chosen), comm)

    def evaluate():
        mine = do.count(model, [valid[i] for i in do.held_out(len(valid), comm)])
        return do.metrics(mine, comm)

    return Parts(
        model,
        optimizer,
        len(pairs),
        lambda epoch: do.batches(mine, epoch, comm, len(pairs)),
        loss,
        lambda: do.metrics(
            do.count(model, [valid[i] for i in do.held_out(len(valid), comm)]), comm
        ),
        same={"vocabulary": words},
        n_held_out=len(valid),
        speaks=comm.rank == 0,
    )
