"""A healthy Horovod program: a classifier on N ranks, with PyTorch."""

import horovod.torch as hvd
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


def average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def main(epochs=5):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    data = datasets.MNIST("data", transform=transforms.ToTensor())
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).cuda()
    optimizer = optim.SGD(model.parameters(), lr=0.01 * hvd.size())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.cuda()), labels.cuda())
            loss.backward()
            optimizer.step()
        last = average(loss.item(), "loss")
        if hvd.rank() == 0:
            print(f"epoch {epoch}: {last:.3f}")
            torch.save(model.state_dict(), f"model_{epoch}.pt")


if __name__ == "__main__":
    main()
