"""What is claimed of group-wise deep whitening and coloring."""

from functools import partial

import torch

import normkit as nk
from normkit.claims._clock import seconds
from normkit.claims.kinds import Measured, above, below
from normkit.claims.measures import randn


def cost(seed, groups=8):
    """The processor's time of a coloring of 256 channels over that of an eigendecomposition of their covariance."""
    module, content, style = nk.GDWCT(256, num_groups=groups), torch.randn(1, 256, 16, 16), torch.randn(1, 256)
    rows = content.flatten(2)[0]
    covariance = rows @ rows.mT
    with torch.no_grad():
        own, other = seconds(lambda: module(content, style), lambda: torch.linalg.eigh(covariance))
    return own / other


def cost_of_all(seed, groups=8):
    """The time of the same over that of whitening and coloring by two decompositions, products included."""
    module, content, style = nk.GDWCT(256, num_groups=groups), torch.randn(1, 256, 16, 16), torch.randn(1, 256, 16, 16)
    code = style.mean((2, 3))
    with torch.no_grad():
        own, other = seconds(lambda: module(content, code), lambda: recoloured(content, style))
    return own / other


def recoloured(content, style):
    """Whiten the content's channels, and give them the covariance of the style's."""
    rows = content.flatten(2)[0]
    values, vectors = decomposed(rows)
    white = vectors / values.sqrt() @ (vectors.mT @ (rows - rows.mean(1, keepdim=True)))
    values, vectors = decomposed(style.flatten(2)[0])
    return vectors * values.sqrt() @ (vectors.mT @ white)


def decomposed(rows):
    """Eigenvalues, with eps added, and eigenvectors of a covariance."""
    rows = rows - rows.mean(1, keepdim=True)
    values, vectors = torch.linalg.eigh(rows @ rows.mT / (rows.shape[1] - 1))
    return values.clamp(min=0) + 1e-5, vectors


def fall(seed, full=True):
    """By how much the whitening regularizer falls while a linear layer before it is trained on nothing else."""
    mixed = torch.einsum("oc,nchw->nohw", torch.nn.functional.normalize(randn(8, 8)), randn(64, 8, 4, 4))
    module = nk.GDWCT(8, num_groups=1, hidden_channels=4).double()
    layer, free = torch.eye(8, dtype=torch.float64, requires_grad=True), torch.ones(8, 8) if full else torch.eye(8)
    optimizer = torch.optim.Adam([layer])
    losses = []
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 400)
        content = torch.einsum("oc,nchw->nohw", layer * free, mixed)
        loss = module.regularizer(module(content, randn(64, 8))[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses[0] / losses[-1]


CLAIMS = [
    Measured(
        "cost",
        says="Coloring 256 channels costs a fifth of an eigendecomposition of their covariance at most.",
        measure=cost,
        wanted=below(0.2),
        control=partial(cost, groups=1),
        against="one group of all channels",
        number="share of the time",
        draws=5,
        rule="median",
    ),
    Measured(
        "cost-of-all",
        says="It costs a fifth at most of whitening and coloring by two decompositions, with covariances and products.",
        measure=cost_of_all,
        wanted=below(0.2),
        control=partial(cost_of_all, groups=1),
        against="one group of all channels",
        number="share of the time",
        draws=5,
        rule="median",
    ),
    Measured(
        "whitens",
        says="The regularizer makes what comes before it white: trained alone it falls to a tenth.",
        measure=fall,
        wanted=above(10.0),
        control=partial(fall, full=False),
        against="a layer of one factor a channel",
        number="regularizer before over after",
        draws=3,
        rule="median",
    ),
]
