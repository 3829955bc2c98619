"""The shape of vision trainers: the process group and the saving are functions of another file."""

import argparse
import os
import time

import helpers
import torch
from nets import Net
from pictures import Pictures
from torch.utils.tensorboard import SummaryWriter


def main(args):
    helpers.init_distributed_mode(args)
    device = torch.device(args.device)
    torch.manual_seed(args.seed + helpers.get_rank())
    train, val = Pictures("train"), Pictures("val")
    if args.distributed:
        n_ranks = helpers.get_world_size()
        sampler = torch.utils.data.DistributedSampler(
            train, num_replicas=n_ranks, rank=helpers.get_rank(), shuffle=True
        )
    else:
        sampler = torch.utils.data.RandomSampler(train)
    if helpers.get_rank() == 0 and args.log_dir is not None:
        log = SummaryWriter(log_dir=args.log_dir)
    else:
        log = None
    loader = torch.utils.data.DataLoader(train, sampler=sampler, batch_size=args.batch)
    val_loader = torch.utils.data.DataLoader(val, batch_size=args.batch, shuffle=False)
    model = Net().to(device)
    without_ddp = model
    args.lr = args.base_lr * args.batch * helpers.get_world_size() / 256
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[args.gpu])
        without_ddp = model.module
    optimizer = torch.optim.AdamW(without_ddp.parameters(), lr=args.lr)
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu")
        without_ddp.load_state_dict(checkpoint["model"])
    start_s = time.time()
    for epoch in range(args.epochs):
        if args.distributed:
            loader.sampler.set_epoch(epoch)
        found = train_epoch(model, loader, optimizer, device, log)
        helpers.save_on_master({"model": without_ddp.state_dict()}, "checkpoint.pt")
        found |= helpers.evaluate(model, val_loader, device)
        if args.out and helpers.is_main_process():
            if log is not None:
                log.flush()
            with open(os.path.join(args.out, "log.txt"), mode="a", encoding="utf-8") as file:
                file.write(f"{epoch} {found}\n")
    print(f"training time {time.time() - start_s:.0f} s")


def train_epoch(model, loader, optimizer, device, log):
    meter = helpers.MetricLogger()
    for step, (images, labels) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.update(loss=loss)
        if log is not None and step % 100 == 0:
            log.add_scalar("loss", helpers.all_reduce_mean(loss))
    meter.synchronize_between_processes()
    return meter.averages()


if __name__ == "__main__":
    main(argparse.ArgumentParser().parse_args())
