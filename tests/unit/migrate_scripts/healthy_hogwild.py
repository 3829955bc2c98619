"""The shape of Hogwild: processes that share one model in memory, and no collectives at all."""

import torch
import torch.multiprocessing as mp
from nets import Net
from torch.nn import functional
from torchvision import datasets


def train(rank, model, device, data):
    torch.manual_seed(1 + rank)
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for images, labels in loader:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    mp.set_start_method("spawn", force=True)
    model = Net().to("cpu")
    model.share_memory()
    processes = []
    for rank in range(2):
        process = mp.Process(target=train, args=(rank, model, "cpu", datasets.MNIST("data")))
        process.start()
        processes.append(process)
    for process in processes:
        process.join()
