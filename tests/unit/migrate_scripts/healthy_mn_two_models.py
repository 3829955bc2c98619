"""The shape of a GAN under ChainerMN: two models, two optimizers made by one function."""

import argparse

import chainer
import chainermn
from chainer import training
from chainer.training import extensions
from nets import Discriminator, Generator
from updater import Updater


def main():
    args = argparse.ArgumentParser().parse_args()
    if args.gpu:
        if args.communicator == "naive":
            exit(-1)
        comm = chainermn.create_communicator(args.communicator)
        device = comm.intra_rank
    else:
        comm = chainermn.create_communicator("naive")
        device = -1
    gen, dis = Generator(), Discriminator()
    if device >= 0:
        chainer.cuda.get_device_from_id(device).use()
        gen.to_gpu()
        dis.to_gpu()

    def make_optimizer(model, comm):
        optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(2e-4), comm)
        optimizer.setup(model)
        optimizer.add_hook(chainer.optimizer.WeightDecay(1e-4), "decay")
        return optimizer

    optimizers = {"gen": make_optimizer(gen, comm), "dis": make_optimizer(dis, comm)}
    train = chainer.datasets.get_cifar10(withlabel=False)[0] if comm.rank == 0 else None
    train = chainermn.scatter_dataset(train, comm)
    iterator = chainer.iterators.SerialIterator(train, args.batch)
    updater = Updater(models=(gen, dis), iterator=iterator, optimizer=optimizers, device=device)
    trainer = training.Trainer(updater, (args.epochs, "epoch"), out=args.out)
    if comm.rank == 0:
        trainer.extend(extensions.snapshot_object(gen, "gen_{.updater.iteration}.npz"))
        trainer.extend(extensions.LogReport())
    trainer.run()


if __name__ == "__main__":
    main()
