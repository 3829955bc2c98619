"""The shape of model and data parallel at once: the world is split along two axes."""

import chainer
import chainer.links as L
import chainermn
from chainer import training
from chainer.training import extensions


class First(chainermn.MultiNodeChainList):
    def __init__(self, comm):
        super().__init__(comm=comm)
        self.add_link(L.Linear(784, 100), rank_in=None, rank_out=1)


def main(batch=100):
    comm = chainermn.create_communicator("pure_nccl")
    data_axis, model_axis = comm.rank % 2, comm.rank // 2
    data_comm = comm.split(data_axis, comm.rank)
    model_comm = comm.split(model_axis, comm.rank)
    model = L.Classifier(First(model_comm)) if data_axis == 0 else First(model_comm)
    chainer.cuda.get_device_from_id(comm.intra_rank).use()
    model.to_gpu()
    optimizer = chainermn.create_multi_node_optimizer(chainer.optimizers.Adam(), data_comm)
    optimizer.setup(model)
    if model_axis == 0:
        train, _ = chainer.datasets.get_mnist()
        if data_axis == 1:
            train = chainermn.datasets.create_empty_dataset(train)
    else:
        train = None
    train = chainermn.scatter_dataset(train, data_comm, shuffle=True)
    iterator = chainer.iterators.SerialIterator(train, batch)
    trainer = training.Trainer(training.StandardUpdater(iterator, optimizer), (20, "epoch"))
    if comm.rank == 0:
        trainer.extend(extensions.LogReport())
    trainer.run()


if __name__ == "__main__":
    main()
