"""A deep convolutional network in PyTorch, small enough for a laptop, shaped like GoogLeNet.

Its early layers have the work and their gradients arrive last; its late layers have the bytes. So
the order in which gradients are sent matters."""

import torch
from torch import nn

STAGES = ((16, 4), (32, 5), (64, 6), (128, 6), (256, 5), (512, 3))  # (channels, layers)
IMAGE = 128  # pixels, height and width
N_CLASSES = 1000


def deep_cnn(*, seed: int = 0) -> nn.Sequential:
    """Return the network: 29 convolutions and a linear layer, 60 gradients, 44.5 MiB in FP32."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    before = 3
    for channels, depth in STAGES:
        for i in range(depth):
            stride = 2 if i == 0 else 1
            layers += [nn.Conv2d(before, channels, 3, stride=stride, padding=1), nn.ReLU()]
            before = channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * 4, N_CLASSES))


def images(n_images: int, *, seed: int = 0) -> torch.Tensor:
    """Return random images, (n_images, 3, IMAGE, IMAGE): their content does not change the time."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_images, 3, IMAGE, IMAGE, generator=generator)
