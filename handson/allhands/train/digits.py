"""A small real task: 8x8 images of handwritten digits; which digit is it?

1,797 images of the UCI repository (see data/images/README.md), 1,437 to train on and 360 to test.
"""

import gzip
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch

TEST_IMAGES = 360


@dataclass(frozen=True)
class Digits:
    """Images (N, 64), float32 from -1 (white) to 1 (black), and the digits (N,), int64."""

    train_images: torch.Tensor
    train_digits: torch.Tensor
    test_images: torch.Tensor
    test_digits: torch.Tensor


def load(seed: int = 0) -> Digits:
    """Read the embedded images; `seed` decides which of them are for the test."""
    packed = (files("allhands.data") / "images" / "digits.csv.gz").read_bytes()
    rows = np.array(
        [line.split(",") for line in gzip.decompress(packed).decode().split()], np.int64
    )
    rows = rows[np.random.RandomState(seed).permutation(len(rows))]
    images = torch.tensor(rows[:, :64] / 8 - 1, dtype=torch.float32)
    digits = torch.tensor(rows[:, 64])
    test, train = slice(TEST_IMAGES), slice(TEST_IMAGES, None)
    return Digits(images[train], digits[train], images[test], digits[test])
