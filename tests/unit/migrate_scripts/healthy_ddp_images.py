"""The shape of PyTorch's large example: with and without ranks, spawned or not, by options."""

import argparse
import os
import shutil

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from nets import Net
from pictures import Pictures
from torch import nn
from torch.utils.data.distributed import DistributedSampler

best = 0.0


class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], device="cuda")
        dist.all_reduce(total)
        self.sum, self.count = total.tolist()


def main():
    args = argparse.ArgumentParser().parse_args()
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1 or args.spawn
    n_gpus = torch.cuda.device_count()
    if args.spawn:
        args.world_size = n_gpus * args.world_size
        mp.spawn(worker, nprocs=n_gpus, args=(n_gpus, args))
    else:
        worker(args.gpu, n_gpus, args)


def worker(gpu, n_gpus, args):
    global best
    args.gpu = gpu
    if args.distributed:
        if args.dist_url == "env://" and args.rank == -1:
            args.rank = int(os.environ["RANK"])
        if args.spawn:
            args.rank = args.rank * n_gpus + gpu
        dist.init_process_group("nccl", args.dist_url, world_size=args.world_size, rank=args.rank)
    model = Net()
    if args.distributed:
        if args.gpu is not None:
            torch.cuda.set_device(args.gpu)
            model.cuda(args.gpu)
            args.batch = int(args.batch / n_gpus)
            model = nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        else:
            model.cuda()
            model = nn.parallel.DistributedDataParallel(model)
    elif args.gpu is not None:
        torch.cuda.set_device(args.gpu)
        model = model.cuda(args.gpu)
    else:
        model = nn.DataParallel(model).cuda()
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    if args.resume:
        if args.gpu is None:
            saved = torch.load(args.resume)
        else:
            saved = torch.load(args.resume, map_location=f"cuda:{args.gpu}")
        model.load_state_dict(saved["model"])
    train, val = Pictures("train"), Pictures("val")
    if args.distributed:
        sampler = DistributedSampler(train)
        val_sampler = DistributedSampler(val, shuffle=False, drop_last=True)
    else:
        sampler, val_sampler = None, None
    loader = torch.utils.data.DataLoader(
        train, batch_size=args.batch, shuffle=(sampler is None), num_workers=4, sampler=sampler
    )
    val_loader = torch.utils.data.DataLoader(val, batch_size=args.batch, sampler=val_sampler)
    if args.evaluate:
        validate(val_loader, model, args)
        return
    for epoch in range(args.epochs):
        if args.distributed:
            sampler.set_epoch(epoch)
        train_epoch(loader, model, optimizer)
        right = validate(val_loader, model, args)
        is_best = right > best
        best = max(right, best)
        if not args.spawn or (args.spawn and args.rank % n_gpus == 0):
            save({"model": model.state_dict()}, is_best)
    if args.distributed:
        dist.destroy_process_group()


def train_epoch(loader, model, optimizer):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(loader, model, args):
    meter = Meter()
    model.eval()
    with torch.no_grad():
        for images, labels in loader:
            right = (model(images.cuda()).argmax(1) == labels.cuda()).float().mean()
            meter.update(right.item(), len(images))
    if args.distributed:
        meter.all_reduce()
    return meter.sum / meter.count


def save(state, is_best, name="checkpoint.pt"):
    torch.save(state, name)
    if is_best:
        shutil.copyfile(name, "best.pt")


if __name__ == "__main__":
    main()
