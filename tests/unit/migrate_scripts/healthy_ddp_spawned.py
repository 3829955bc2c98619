"""The shape of PyTorch's first DDP tutorial: ranks are spawned, a checkpoint, a barrier."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "12355")
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


def checkpoint(rank, world_size):
    print(f"rank {rank} is here")
    setup(rank, world_size)
    model = nn.Linear(10, 5).to(rank)
    ddp_model = DDP(model, device_ids=[rank])
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.001)
    path = tempfile.gettempdir() + "/model.pt"
    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier()
    where = {"cuda:0": f"cuda:{rank}"}
    ddp_model.load_state_dict(torch.load(path, map_location=where))
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10))
    nn.functional.mse_loss(outputs, torch.randn(20, 5).to(rank)).backward()
    optimizer.step()
    dist.barrier()
    if rank == 0:
        os.remove(path)
    cleanup()


def spawn(function, world_size):
    mp.spawn(function, args=(world_size,), nprocs=world_size, join=True)


if __name__ == "__main__":
    spawn(checkpoint, torch.cuda.device_count())
