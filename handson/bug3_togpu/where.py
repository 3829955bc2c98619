"""Where does everything lie? The first lines of a parallel program, to change and to take along.

    mpiexec -n 4 python handson/bug3_togpu/where.py

Real GPUs if the node has one for each rank, else virtual devices. Rank 0 prints what all ranks have
found. Things to try: the numbered lines in another order; `model.to_gpu()` in place of line 4;
`comm.rank` in place of `comm.intra_rank`; an array that is made above line 3; and
CUDA_VISIBLE_DEVICES=2,3 in front of the command, with 2 ranks.
"""

import chainer
import chainermn

from allhands import launch
from allhands.train.excepthook import end_job_on_error
from allhands.train.on_gpus import where_is
from allhands.train.virtual_gpu import bytes_on, gpus


def main():
    comm = chainermn.create_communicator("naive")  # 1: who am I?
    end_job_on_error(comm)
    launch.expect_world(comm.mpi_comm)
    cupy = gpus(comm.intra_size)
    n_gpus = cupy.cuda.runtime.getDeviceCount()  # 2: which devices do I see?
    device = chainer.get_device(f"@cupy:{comm.intra_rank % n_gpus}")
    device.use()  # 3: choose one. Nothing is made above this line
    model = chainer.Sequential(chainer.links.Linear(4, 8), chainer.links.Linear(8, 2))
    model.to_device(device)  # 4: move the model
    optimizer = chainer.optimizers.Adam().setup(model)  # 5: and now the optimizer
    x = cupy.ones((8, 4), dtype="float32")
    loss = chainer.functions.sum(model(x))
    model.cleargrads()
    loss.backward()
    optimizer.update()

    mine = f"sees {n_gpus} GPUs, uses {device}; {where_is(model)}; bytes {bytes_on(cupy)}"
    everyone = comm.mpi_comm.gather(mine)  # on all ranks
    if comm.rank == 0:
        for rank, told in enumerate(everyone):
            print(f"rank {rank}: {told}")


if __name__ == "__main__":
    main()
