"""One rank goes first, the others wait in a barrier of their own: both sides meet."""

import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from nets import Net
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets


def is_main_process():
    return not dist.is_initialized() or dist.get_rank() == 0


@contextmanager
def one_first(local_rank):
    if local_rank not in [-1, 0]:
        dist.barrier()
    yield
    if local_rank == 0:
        dist.barrier()


def load(args):
    if args.local_rank not in [-1, 0]:
        dist.barrier()
    data = datasets.MNIST("data", download=True) if args.local_rank == 0 else datasets.MNIST("data")
    if args.local_rank == 0:
        dist.barrier()
    return data


def main(args):
    args.local_rank = int(os.environ.get("LOCAL_RANK", -1))
    torch.cuda.set_device(args.local_rank)
    dist.init_process_group("nccl")
    with one_first(args.local_rank):
        data = load(args)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, sampler=sampler, batch_size=args.batch)
    model = DistributedDataParallel(Net().cuda(), device_ids=[args.local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = model(images.cuda(), labels.cuda())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if is_main_process():
            torch.save(model.module.state_dict(), f"{args.out}/model.pt")
    dist.destroy_process_group()
