"""Two networks, two losses: how many loss scales does a mixed-precision GAN need?

A generator turns noise into points; a discriminator says which points are real. Each has its own
loss, its own gradients, and its own size of gradients. Here their sizes are set far apart on
purpose: the discriminator's loss is multiplied by 1,000 and the generator's by 0.000001. Adam
divides by the gradient's size, so in FP32 that changes nothing. In FP16 it does: the scale that
saves the generator's gradients lets the discriminator's overflow.

The real points lie in eight heaps on a circle of radius 1. Everything runs in PyTorch on the CPU;
the arithmetic is FP16 where `torch.autocast` says so, and the weights are FP32.

Sources: Goodfellow et al., "Generative adversarial nets", NIPS 2014 (here with the loss that does
not saturate); PyTorch, "Automatic mixed precision examples: working with multiple models, losses,
and optimizers".
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

PRECISIONS = ("fp32", "mixed", "one_scaler")
DISCRIMINATOR_WEIGHT = 1e3
GENERATOR_WEIGHT = 1e-6
BATCH, NOISE, HIDDEN, HEAPS, SPREAD = 128, 4, 64, 8, 0.05
LAST = 200  # steps over which the share of zero gradients is taken
JUDGED = 2000  # points on which the distance is measured


@dataclass(frozen=True)
class GanRun:
    """What a run left. Lists have one number a step; scales are 1 where there is no scaling.

    `zero_share` is the share of the generator's gradients that were exactly 0, over the last steps;
    `distance` the energy distance between made and real points (0: the same distribution; Székely
    and Rizzo 2013), and `made` the made points, shape (2000, 2).
    """

    precision: str
    seed: int
    losses_d: list[float]
    losses_g: list[float]
    scales_d: list[float]
    scales_g: list[float]
    zero_share: float
    distance: float
    made: np.ndarray


def train_gan(precision: str, seed: int, steps: int = 1000) -> GanRun:
    """Train a GAN of two small networks and judge what its generator makes.

    precision: `fp32`; `mixed`, FP16 with a scaler for each loss; or `one_scaler`, FP16 with one
    scaler for both, which must then suit the more delicate of the two. Raises ValueError for
    another one, or for fewer than one step.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"The precision is one of {', '.join(PRECISIONS)}; it was {precision!r}.")
    if steps < 1:
        raise ValueError(f"A run needs at least one step; {steps} were asked.")
    random = torch.Generator().manual_seed(seed)
    generator, discriminator = _network(NOISE, 2, random), _network(2, 1, random)
    adam_g, adam_d = _adam(generator), _adam(discriminator)
    half = precision != "fp32"
    scaler_d = torch.amp.GradScaler("cpu", growth_interval=50, enabled=half)
    own = torch.amp.GradScaler("cpu", growth_interval=50, enabled=half)
    scaler_g = scaler_d if precision == "one_scaler" else own
    run = GanRun(precision, seed, [], [], [], [], 0.0, 0.0, np.empty((0, 2)))
    zeros = []
    for _ in range(steps):
        with torch.autocast("cpu", torch.float16, enabled=half):
            made = generator(_noise(BATCH, random)).detach()
            said_real, said_made = discriminator(real_points(BATCH, random)), discriminator(made)
        loss_d = F.softplus(-said_real.float()).mean() + F.softplus(said_made.float()).mean()
        adam_d.zero_grad()
        scaler_d.scale(DISCRIMINATOR_WEIGHT * loss_d).backward()
        scaler_d.step(adam_d)
        if scaler_d is not scaler_g:
            scaler_d.update()

        with torch.autocast("cpu", torch.float16, enabled=half):
            said_made = discriminator(generator(_noise(BATCH, random)))
        loss_g = F.softplus(-said_made.float()).mean()
        adam_g.zero_grad()
        scaler_g.scale(GENERATOR_WEIGHT * loss_g).backward()
        zeros.append(_zero_share(generator))
        scaler_g.step(adam_g)
        scaler_g.update()  # of one scaler: after both steps, as PyTorch's documentation says

        run.losses_d.append(loss_d.item())
        run.losses_g.append(loss_g.item())
        run.scales_d.append(scaler_d.get_scale())
        run.scales_g.append(scaler_g.get_scale())
    return _judged(run, generator, zeros)


def real_points(n: int, random: torch.Generator) -> torch.Tensor:
    """Draw n points (n, 2) of the real distribution: eight heaps on a circle of radius 1."""
    angle = torch.randint(HEAPS, (n,), generator=random) * (2 * math.pi / HEAPS)
    centre = torch.stack([angle.cos(), angle.sin()], dim=1)
    return centre + SPREAD * torch.randn(n, 2, generator=random)


def energy_distance(x: torch.Tensor, y: torch.Tensor) -> float:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'| of two samples (n, d) and (m, d); never negative."""
    between, within_x, within_y = (torch.cdist(a, b).mean() for a, b in ((x, y), (x, x), (y, y)))
    return float(2 * between - within_x - within_y)


def _network(n_in: int, n_out: int, random: torch.Generator) -> torch.nn.Sequential:
    network = torch.nn.Sequential(
        torch.nn.Linear(n_in, HIDDEN),
        torch.nn.LeakyReLU(0.2),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.LeakyReLU(0.2),
        torch.nn.Linear(HIDDEN, n_out),
    )
    with torch.no_grad():
        for layer in network[::2]:
            layer.weight.normal_(0, math.sqrt(2 / layer.in_features), generator=random)
            layer.bias.zero_()
    return network


def _adam(network: torch.nn.Module) -> torch.optim.Adam:
    # The usual eps of 1e-8 is as large as the generator's gradients here, and would slow it down.
    return torch.optim.Adam(network.parameters(), lr=1e-3, betas=(0.5, 0.9), eps=1e-12)


def _noise(n: int, random: torch.Generator) -> torch.Tensor:
    return torch.randn(n, NOISE, generator=random)


def _zero_share(network: torch.nn.Module) -> float:
    grads = torch.cat([p.grad.flatten() for p in network.parameters()])
    return (grads == 0).float().mean().item()


def _judged(run: GanRun, generator: torch.nn.Module, zeros: list[float]) -> GanRun:
    """Complete a run by its quality, judged on points that do not depend on the run's seed."""
    random = torch.Generator().manual_seed(99)
    with torch.no_grad():
        made = generator(_noise(JUDGED, random))
    last = zeros[-LAST:]
    quality = (sum(last) / len(last), energy_distance(made, real_points(JUDGED, random)))
    lists = (run.losses_d, run.losses_g, run.scales_d, run.scales_g)
    return GanRun(run.precision, run.seed, *lists, *quality, made.numpy())
