"""The shape of programs with contexts: the group, who is first, other names for all modules."""

import contextlib
import io
import os
import sys

import torch as th
from torch import distributed as td
from torch import nn, optim
from torch.utils.data import ConcatDataset, DataLoader
from torch.utils.data.distributed import DistributedSampler as Shard


@contextlib.contextmanager
def group():
    td.init_process_group("nccl" if th.cuda.is_available() else "gloo")
    try:
        yield td.get_rank(), td.get_world_size()
    finally:
        td.destroy_process_group()


@contextlib.contextmanager
def main_first(rank):
    if rank != 0:
        td.barrier()
    yield
    if rank == 0:
        td.barrier()


def save(rank, net, path):
    if rank:
        return
    th.save(net.state_dict(), path)


def run():
    gpu = int(os.getenv("LOCAL_RANK", "0"))
    where = th.device("cuda", gpu) if th.cuda.is_available() else th.device("cpu")
    if where.type == "cuda":
        th.cuda.set_device(where)
    with group() as (rank, world):
        if rank != 0:
            sys.stdout = io.StringIO()
        with main_first(rank):
            data = ConcatDataset([prepare("a"), prepare("b")])
        net = nn.parallel.DistributedDataParallel(nn.Linear(3, 3).to(where))
        opt = optim.SGD(net.parameters(), lr=0.1 * world)
        shard = Shard(data, world, rank)
        batches = DataLoader(data, 10, sampler=shard, drop_last=True)
        for epoch in range(4):
            shard.set_epoch(epoch)
            for batch in batches:
                batch = batch.to(where, non_blocking=True)
                opt.zero_grad()
                net(batch).sum().backward()
                opt.step()
            print("epoch", epoch)
            save(rank, net.module, f"{epoch}.pt")


def prepare(name):
    path = f"{name}.pt"
    if os.path.exists(path):
        return th.load(path)
    th.save(th.randn(100, 3), path)
    return th.load(path)


if __name__ == "__main__":
    run()
