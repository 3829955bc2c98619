"""A healthy PyTorch program: a classifier under DistributedDataParallel, in mixed precision."""

import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

BATCH_SIZE = 64
PATH = "model.pt"


def open_data(train):
    return datasets.MNIST("data", train=train, transform=transforms.ToTensor())


def train_epoch(model, loader, sampler, optimizer, scaler, epoch, device):
    model.train()
    sampler.set_epoch(epoch)
    total = torch.zeros((), device=device)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        total += loss.detach()
    return total


def evaluate(model, loader, device):
    model.eval()
    counts = torch.zeros(2, device=device)
    with torch.no_grad():
        for images, labels in loader:
            right = model(images.to(device)).argmax(1) == labels.to(device)
            counts += torch.stack([right.sum(), torch.tensor(len(labels), device=device)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main(epochs=5):
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(0)

    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    model = model.to(device)
    if os.path.exists(PATH):
        model.load_state_dict(torch.load(PATH, map_location=device))
    model = DDP(model, device_ids=[local_rank])
    rate = 0.1 * dist.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    scaler = torch.amp.GradScaler("cuda")

    train_set, test_set = open_data(True), open_data(False)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, BATCH_SIZE, sampler=sampler, num_workers=2)
    test_sampler = DistributedSampler(test_set, shuffle=False)
    test_loader = DataLoader(test_set, BATCH_SIZE, sampler=test_sampler)

    for epoch in range(epochs):
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        train_epoch(model, train_loader, sampler, optimizer, scaler, epoch, device)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start_s
        accuracy = evaluate(model, test_loader, device)
        if rank == 0:
            print(f"epoch {epoch}: {accuracy:.1%} right, {seconds:.1f} s")
            torch.save(model.module.state_dict(), PATH)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
