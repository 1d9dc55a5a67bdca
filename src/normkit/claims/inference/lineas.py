"""What is claimed of maps that are learned for all layers together."""

from functools import partial

import torch
from torch import nn

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

DIM, LAYERS, SAMPLES = 8, 3, 32


def share(seed, joint=True):
    """The distance at the last layer, on new samples, as a share of that of maps fitted one layer after the other."""
    layers = [nn.Linear(DIM, DIM).double() for _ in range(LAYERS)]
    mixing, shift = randn(DIM, DIM) / DIM**0.5, randn(DIM)
    source, target = randn(SAMPLES, DIM), randn(SAMPLES, DIM) @ mixing + shift
    own = together(layers, source, target) if joint else [nk.LinEAS(DIM).double() for _ in range(LAYERS)]
    new, reference = randn(1000, DIM), run(layers, randn(1000, DIM) @ mixing + shift)[-1]
    distances = [
        own[-1].wasserstein(run(layers, new, maps)[-1], reference) for maps in (own, one_by_one(layers, source, target))
    ]
    return (distances[0] / distances[1]).detach()


def run(layers, x, maps=None):
    """The activations of each layer, steered where there are maps."""
    activations = []
    for index, layer in enumerate(layers):
        x = torch.tanh(1.5 * layer(x))
        x = x if maps is None else maps[index](x)
        activations.append(x)
    return activations


def one_by_one(layers, source, target):
    """Maps of each layer that give its coordinates the target's mean and deviation, behind those before it."""
    maps, x, expected = [], source, run(layers, target)
    for index, layer in enumerate(layers):
        x = torch.tanh(1.5 * layer(x)).detach()
        own = nk.LinEAS(DIM).double()
        with torch.no_grad():
            own.weight.copy_(expected[index].std(0) / x.std(0))
            own.bias.copy_(expected[index].mean(0) - own.weight * x.mean(0))
        x = own(x)
        maps.append(own)
    return maps


def together(layers, source, target):
    """Maps that 200 steps of Adam on the sum of all layers' distances learn."""
    maps, expected = [nk.LinEAS(DIM).double() for _ in layers], [x.detach() for x in run(layers, target)]
    optimizer = torch.optim.Adam([weight for own in maps for weight in own.parameters()], lr=0.03)
    for _ in range(200):
        steered = run(layers, source, maps)
        loss = sum(own.wasserstein(x, y) for own, x, y in zip(maps, steered, expected, strict=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return maps


CLAIMS = [
    Measured(
        "end-to-end",
        says="With 32 samples maps learned together leave at most 0.8 of what maps fitted layer by layer leave.",
        measure=share,
        wanted=below(0.8),
        control=partial(share, joint=False),
        against="no maps",
        number="share of the distance with maps fitted layer by layer",
        draws=10,
        rule="median",
        reach="proxy",
    )
]
