"""What TransNormer claims of the gradients of scores."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn

TOKENS, EPS = 16, 1e-8
SIZES = (1.0, 1e-1, 1e-2, 1e-3)


def lengths(normed, sizes):
    """The length of the gradient of the scores, where queries and keys are so many times as large.

    The scores are products of ReLUs; they are the core's queries, its keys the unit vectors.
    """
    q, k, v = randn(TOKENS, 4).relu(), randn(TOKENS, 4).relu(), randn(1, 1, TOKENS, TOKENS)
    core, eye, weight = (
        nk.TransNormer(TOKENS, heads=1, activation=None, eps=EPS).double(),
        torch.eye(TOKENS),
        randn(TOKENS, TOKENS),
    )
    norms = []
    for size in sizes:
        scores = (size**2 * (q @ k.mT + 0.1))[None, None].requires_grad_()
        y = core(scores, eye.double()[None, None], v) if normed else scores @ v / scores.sum(-1, keepdim=True)
        norms.append(torch.autograd.grad((y * weight).sum(), scores)[0].norm())
    return torch.stack(norms)


def growth(seed, normed=True):
    """By how much this grows as queries and keys shrink to a thousandth."""
    norms = lengths(normed, SIZES)
    return norms.max() / norms[0]


def further(seed, normed=True):
    """By how much it grows from a millionth to a tenth of that."""
    norms = lengths(normed, (1e-6, 1e-7))
    return norms[1] / norms[0]


CLAIMS = [
    Measured(
        "bounded",
        says="Gradients of scores stay within ten times their size while queries and keys shrink to a thousandth.",
        measure=growth,
        wanted=below(10.0),
        control=partial(growth, normed=False),
        against="linear attention with a denominator",
        number="growth of the gradient",
    ),
    Measured(
        "bounded-by-eps",
        says="They do not grow further from a millionth to a tenth of that, where eps of 1e-8 is what bounds them.",
        measure=further,
        wanted=below(10.0),
        control=partial(further, normed=False),
        against="linear attention with a denominator",
        number="growth of the gradient",
    ),
]
