"""A classifier on one device: somebody's own program, before the migration.

    python handson/hack_owncode/one_device.py --epochs 2
    allhands check handson/hack_owncode/one_device.py      # which lines will change?

It imports nothing of this course, as your own program does not.
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def samples(n, seed):
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(99))
    x = torch.randn(n, 64, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x @ teacher).argmax(1))


def network():
    return nn.Sequential(
        nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(samples(8192, seed=1), batch_size=options.batch, shuffle=True)

    for epoch in range(options.epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        x, y = samples(512, seed=2).tensors
        with torch.no_grad():
            right = (model(x.to(device)).argmax(1) == y.to(device)).float().mean().item()
        print(f"epoch {epoch}: loss {loss.item():.3f}, {right:.1%} right")
    options.out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), options.out / "model.pt")


if __name__ == "__main__":
    main()
