"""The shape of ChainerMN's large example: loader processes, a checkpointer, an own evaluator."""

import argparse
import multiprocessing

import chainer
import chainermn
from chainer import training
from chainer.training import extensions
from nets import Net
from pictures import Pictures


class TestModeEvaluator(extensions.Evaluator):
    def evaluate(self):
        self.get_target("main").train = False
        found = super().evaluate()
        self.get_target("main").train = True
        return found


def nothing(*anything):
    return anything


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--communicator", default="pure_nccl")
    args = parser.parse_args()
    multiprocessing.set_start_method("forkserver")
    process = multiprocessing.Process(target=nothing)
    process.start()
    process.join()

    comm = chainermn.create_communicator(args.communicator)
    device = comm.intra_rank
    model = Net()
    if args.initial:
        print("from", args.initial)
        chainer.serializers.load_npz(args.initial, model)
    chainer.cuda.get_device_from_id(device).use()
    model.to_gpu()
    if comm.rank == 0:
        train, val = Pictures(args.train), Pictures(args.val, random=False)
    else:
        train = None
        val = None
    train = chainermn.scatter_dataset(train, comm, shuffle=True)
    val = chainermn.scatter_dataset(val, comm)
    train_iter = chainer.iterators.MultiprocessIterator(train, args.batch, n_processes=args.jobs)
    val_iter = chainer.iterators.MultiprocessIterator(val, 250, repeat=False)
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.MomentumSGD(0.01), comm)
    optimizer.setup(model)
    updater = training.StandardUpdater(train_iter, optimizer, device=device)
    trainer = training.Trainer(updater, (args.epochs, "epoch"), args.out)
    checkpointer = chainermn.create_multi_node_checkpointer(name="images", comm=comm)
    checkpointer.maybe_load(trainer, optimizer)
    trainer.extend(checkpointer, trigger=(1, "epoch"))
    evaluator = TestModeEvaluator(val_iter, model, device=device)
    trainer.extend(chainermn.create_multi_node_evaluator(evaluator, comm))
    if comm.rank == 0:
        trainer.extend(extensions.DumpGraph("main/loss"))
        trainer.extend(extensions.LogReport())
        trainer.extend(extensions.ProgressBar(update_interval=10))
    trainer.run()


if __name__ == "__main__":
    main()
