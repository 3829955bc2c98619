"""What does a data-parallel program look like? Lab 1's translator on N ranks, to change.

    mpiexec -n 2 python handson/lab2_dataparallel/my_parallel.py           # train it
    allhands compare handson/lab2_dataparallel/my_parallel.py --ranks 2    # is it still right?

The eight edits of the lab carry their numbers. Things to break, one at a time, and then compare:
the seed of the shuffle, the weight of the loss, the sums of the evaluation, the vocabulary.
"""

import argparse
import dataclasses
from pathlib import Path

import chainer
import chainermn
import numpy as np

from allhands import config as configs
from allhands import launch
from allhands.data.batch import batch_of
from allhands.train import device as devices
from allhands.train import parallel
from allhands.train.build import open_corpus
from allhands.train.compare.parts import Parts
from allhands.train.excepthook import end_job_on_error
from allhands.train.translator import Evaluation, Translator

BATCH_SIZE = 64  # of one rank
SEED = 0


def build(comm, rate=3e-3):
    """The program on this rank: what it is made of, ready for the first step."""
    device = parallel.device_of(comm)  # edit 2: before any array is made
    config = dataclasses.replace(configs.lab1_cpu(), device=device)
    devices.choose(config.device)
    corpus = open_corpus(config)  # all ranks read all of it: so all have the same vocabulary
    translator = Translator.new(config, corpus.source_vocab, corpus.target_vocab)
    model, n_samples = translator.model, len(corpus.train)

    # edit 4: the optimizer takes the mean of the gradients over the ranks
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(rate), comm)
    optimizer.setup(model)

    def epoch(number):  # edit 3: this rank's batches of sample numbers, shuffled
        order = np.random.default_rng([SEED, number]).permutation(n_samples)
        mine = order[comm.rank :: comm.size]
        n_steps = -(-n_samples // (BATCH_SIZE * comm.size))  # on all ranks as many
        return np.array_split(mine, n_steps)

    def loss(numbers):  # weighted, so that a short batch does not count too much
        weight = len(numbers) * comm.size / comm.allreduce_obj(len(numbers))
        return weight * model.loss(devices.send(batch_of(corpus.train, numbers), translator.device))

    def evaluate():  # edit 5: sums over the ranks first, then ratios
        counts = translator.count(corpus.valid[comm.rank :: comm.size])
        counts = {name: comm.allreduce_obj(counts[name]) for name in sorted(counts)}
        found = Evaluation.of(counts)
        return {
            "n_sentences": counts["n_sentences"],
            "n_tokens": counts["n_tokens"],
            "loss_per_token": found.loss_per_token,
            "exact_match": found.quality.exact_match,
            "bleu": found.quality.bleu,
        }

    vocabularies = {"source": corpus.source_vocab.tokens, "target": corpus.target_vocab.tokens}
    return Parts(model, optimizer, n_samples, epoch, loss, evaluate, same=vocabularies)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the model there, and go on from it")
    options = parser.parse_args()
    name = "pure_nccl" if devices.gpu_is_usable() else "naive"
    comm = chainermn.create_communicator(name)  # edit 1
    end_job_on_error(comm)
    launch.expect_world(comm.mpi_comm)
    program = build(comm, rate=3e-3 * comm.size)  # edit 7: the linear rule
    if options.out and options.out.exists():  # edit 8: all ranks load the same file
        chainer.serializers.load_npz(options.out, program.model)
    program.optimizer.update()  # the first one learns nothing: rank 0's parameters go to all
    for number in range(options.epochs):
        for numbers in program.epoch(number):
            loss = program.loss(numbers)
            program.model.cleargrads()
            loss.backward()
            program.optimizer.update()
        found = program.evaluate()  # on all ranks
        if comm.rank == 0:  # edit 6: rank 0 speaks, and writes files
            print(f"epoch {number}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items()))
            if options.out:
                chainer.serializers.save_npz(options.out, program.model)


if __name__ == "__main__":
    main()
