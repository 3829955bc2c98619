"""The same program, migrated in haste by a colleague. It starts on two ranks, and then?

    allhands check handson/hack_owncode/in_haste.py

Read it first: how many faults do you see? It does not come to its end on two ranks, and what it
says then names another line.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from one_device import network, samples
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def evaluate(model, device):
    x, y = samples(512, seed=2).tensors
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    n_right = (model.module(x[mine].to(device)).argmax(1) == y[mine].to(device)).sum()
    counts = torch.tensor([n_right, len(y[mine])], dtype=torch.float64)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main(epochs=2, batch=1024):
    device = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = samples(8192, seed=1)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=batch // dist.get_world_size(), sampler=sampler)
    for epoch in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {evaluate(model, device):.1%} right")
        torch.save(model.module.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
