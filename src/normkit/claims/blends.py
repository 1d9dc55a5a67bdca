"""Channels of which each was normalized by its image or by itself, and a layer that learns which."""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn import functional as F

import normkit as nk
from normkit.claims.kinds import Measured, Trained, above, below
from normkit.claims.measures import randn
from normkit.claims.training import Bed

CHANNELS, IMAGES, SIZE, STEPS, RATE = 8, 16, 6, 200, 2e-2
OWN = torch.arange(CHANNELS) < CHANNELS // 2  # channels that are normalized by themselves


def images() -> Tensor:
    """Images whose channels differ in mean and spread."""
    return randn(1, CHANNELS, 1, 1).exp() * randn(IMAGES, CHANNELS, SIZE, SIZE) + randn(IMAGES, CHANNELS, 1, 1)


def targets(x: Tensor, own: Tensor) -> Tensor:
    """Each channel normalized by itself or by the whole image."""
    return torch.where(own[:, None, None], F.instance_norm(x), F.layer_norm(x, x.shape[1:]))


def shares(name: str, own: Tensor) -> Tensor:
    """What a layer has learned of each channel."""
    module = nk.create(name, CHANNELS).double()
    optimizer = torch.optim.Adam([module.rho], lr=RATE)
    ones = torch.ones(IMAGES, CHANNELS, dtype=torch.float64)
    more = (ones, 0 * ones) if name == "adalin" else ()
    for _ in range(STEPS):
        x = images()
        optimizer.zero_grad()
        F.mse_loss(module(x, *more), targets(x, own)).backward()
        optimizer.step()
        module.clip_rho()
    return module.rho.detach()


def off(seed: int, name: str, mixed: bool = True) -> float:
    """How far the share of a channel is at most from 1, where it was normalized by itself, or from 0."""
    return (shares(name, OWN if mixed else torch.ones_like(OWN)) - OWN.double()).abs().max().item()


def apart(seed: int, own: bool = True) -> float:
    """How far instance norm is from what an image's norm makes of channels, as a share of its variance."""
    x = images()
    wanted = F.layer_norm(x, x.shape[1:])
    given = F.instance_norm(x) if own else targets(x, torch.zeros_like(OWN))
    return ((given - wanted).square().mean() / wanted.var()).item()


def separates(name: str) -> Trained:
    """The claim that a layer learns which channels want which norm."""
    return Trained(
        "separates",
        says="Its share goes beyond 0.9 for channels that want their own statistics, and below 0.1 for others.",
        measure=functools.partial(off, name=name),
        wanted=below(0.1),
        control=functools.partial(off, name=name, mixed=False),
        against="channels that all want their own",
        number="largest error of a share",
        rule="every",
        further=0,
        reach="full",
        bed="channels",
    )


CHANNELS_BED = Bed(
    "channels",
    "Random images of 8 channels that differ in mean and spread, of which 4 were normalized by themselves and 4 by the "
    "whole image; 200 steps of Adam at 0.02 on the shares of both.",
    (
        Measured(
            "differ",
            says="An instance norm is off by 10 % of the variance where a whole image's norm was right.",
            measure=apart,
            wanted=above(0.1),
            control=functools.partial(apart, own=False),
            against="the right norm",
            number="share of the variance",
            draws=8,
        ),
    ),
    "Real images, and layers between which gradients must pass.",
)
