"""The shape of a class with everything: the rank as an attribute, a property, an early return."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets, transforms


class Experiment:
    def __init__(self):
        self.rank = int(os.environ["RANK"])
        self.local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(self.local_rank)
        dist.init_process_group("nccl")
        self.device = torch.device("cuda", self.local_rank)
        self.net = DistributedDataParallel(
            nn.Linear(10, 2).to(self.device), device_ids=[self.local_rank]
        )
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        if self.rank == 0:
            datasets.MNIST("data", download=True)
        dist.barrier()
        data = datasets.MNIST("data", transform=transforms.ToTensor())
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=64, sampler=self.sampler)

    @property
    def is_chief(self):
        return self.rank == 0

    def epoch(self, number):
        self.sampler.set_epoch(number)
        total = torch.zeros(2, device=self.device)
        for x, y in self.loader:
            x, y = x.to(self.device), y.to(self.device)
            self.opt.zero_grad()
            loss = nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            self.opt.step()
            total[0] += loss.detach() * len(x)
            total[1] += len(x)
        dist.all_reduce(total)
        if self.is_chief:
            print(number, (total[0] / total[1]).item())

    def save(self):
        if not self.is_chief:
            return
        torch.save(self.net.module.state_dict(), "model.pt")


def main():
    experiment = Experiment()
    for number in range(10):
        experiment.epoch(number)
    experiment.save()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
