"""What is claimed of alignment and uniformity: labels collapse, and lie opposite each other."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, above
from normkit.claims.measures import randn

LABELS = torch.arange(16) % 2


def cosines(uniformity, alignment=1.0):
    """Cosines of free points of two labels after 600 steps, of pairs of one label and of pairs of two."""
    x, loss, pace = unit(randn(16, 8)), nk.AlignmentUniformity(), 0.0
    for _ in range(600):
        x.requires_grad_()
        near, even = loss(unit(x), LABELS)
        pace = 0.9 * pace + torch.autograd.grad(alignment * near + uniformity * even, x)[0]
        x = unit(x.detach() - 3 * pace)
    same = LABELS[:, None] == LABELS
    return (x @ x.mT)[same], (x @ x.mT)[~same]


def unit(x):
    """Vectors of length 1."""
    return x / x.norm(dim=1, keepdim=True)


def collapse(seed, alignment=1.0):
    """The least cosine of two points of one label, of alignment alone."""
    return cosines(0.0 if alignment else 1.0, alignment)[0].min()


def opposite(seed, uniformity):
    """The least of: cosines within a label, and cosines between labels with the other sign."""
    within, between = cosines(uniformity)
    return torch.cat([within, -between]).min()


CLAIMS = [
    Measured(
        "collapse",
        says="Alignment alone makes a point of each label.",
        measure=collapse,
        wanted=above(0.99),
        control=partial(collapse, alignment=0.0),
        against="uniformity alone",
        number="least cosine within a label",
        draws=3,
    ),
    Measured(
        "opposite",
        says="With a tenth of the uniformity added each of two labels is a point, and the two lie opposite.",
        measure=partial(opposite, uniformity=0.1),
        wanted=above(0.95),
        control=partial(opposite, uniformity=0.0),
        against="alignment alone",
        number="least cosine, its sign turned between labels",
        draws=3,
    ),
    Measured(
        "opposite-sum",
        says="The same with the plain sum of both.",
        measure=partial(opposite, uniformity=1.0),
        wanted=above(0.95),
        control=partial(opposite, uniformity=0.0),
        against="alignment alone",
        number="least cosine, its sign turned between labels",
        draws=3,
    ),
]
