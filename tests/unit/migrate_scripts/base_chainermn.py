"""A healthy ChainerMN program: a classifier of digits on N ranks."""

import argparse

import chainer
import chainer.functions as F
import chainer.links as L
import chainermn
import chainermn.global_except_hook as global_except_hook
from chainer import training
from chainer.training import extensions


class Net(chainer.Chain):
    def __init__(self, n_units, n_out):
        super().__init__()
        with self.init_scope():
            self.l1 = L.Linear(None, n_units)
            self.l2 = L.Linear(n_units, n_out)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batchsize", type=int, default=100)
    parser.add_argument("--epoch", type=int, default=20)
    parser.add_argument("--out", default="result")
    parser.add_argument("--resume", default="")
    args = parser.parse_args()

    global_except_hook._add_hook()
    comm = chainermn.create_communicator("pure_nccl")
    device = comm.intra_rank
    chainer.cuda.get_device_from_id(device).use()
    if comm.rank == 0:
        print("ranks:", comm.size)

    model = L.Classifier(Net(1000, 10))
    model.to_gpu()
    rate = 0.001 * comm.size
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(rate), comm)
    optimizer.setup(model)

    if comm.rank == 0:
        train, test = chainer.datasets.get_mnist()
    else:
        train, test = None, None
    train = chainermn.scatter_dataset(train, comm, shuffle=True)
    test = chainermn.scatter_dataset(test, comm)
    train_iter = chainer.iterators.SerialIterator(train, args.batchsize)
    test_iter = chainer.iterators.SerialIterator(test, args.batchsize, repeat=False, shuffle=False)

    updater = training.StandardUpdater(train_iter, optimizer, device=device)
    trainer = training.Trainer(updater, (args.epoch, "epoch"), out=args.out)
    evaluator = extensions.Evaluator(test_iter, model, device=device)
    evaluator = chainermn.create_multi_node_evaluator(evaluator, comm)
    trainer.extend(evaluator)
    if comm.rank == 0:
        trainer.extend(extensions.LogReport())
        trainer.extend(extensions.PrintReport(["epoch", "main/loss", "validation/main/loss"]))
        trainer.extend(extensions.snapshot_object(model, "model_{.updater.epoch}.npz"))
    if args.resume:
        chainer.serializers.load_npz(args.resume, model)
    trainer.run()


if __name__ == "__main__":
    main()
