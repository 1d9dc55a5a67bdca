"""What continuous flows claim of their trace."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, randomized

DIM = 6


def jacobians():
    """A field's Jacobian at 8 places, and the divergence that it returns."""
    module, x, t = randomized(nk.CNF(DIM, hidden=16)), randn(8, DIM), torch.tensor(0.3, dtype=torch.float64)
    slopes = [torch.autograd.functional.jacobian(lambda x: module.field(t, x[None])[0][0], row) for row in x]
    return torch.stack(slopes), module.field(t, x)[1]


def estimates(slopes, count, probe):
    """The products of probes with the Jacobian and themselves."""
    v = probe(len(slopes), count, DIM)
    return torch.einsum("nki,nij,nkj->nk", v, slopes, v)


def signs(*shape):
    """Probes of -1 and 1."""
    return torch.randint(2, shape).double() * 2 - 1


def trace(slopes):
    """The sum of the diagonal."""
    return slopes.diagonal(0, -2, -1).sum(-1)


def trace_error(seed, exact=True):
    """The largest error of the divergence."""
    slopes, divergence = jacobians()
    return ((divergence if exact else estimates(slopes, 1, signs)[:, 0]) - trace(slopes)).abs().max()


def bias(seed, probe=signs):
    """The bias of Hutchinson's estimate, at one place, in standard errors of 20,000 probes."""
    slopes = jacobians()[0][:1]
    terms = estimates(slopes, 20_000, probe)[0]
    return (terms.mean() - trace(slopes)[0]).abs() / (terms.std() / len(terms) ** 0.5)


def even(*shape):
    """Probes that are even between -1 and 1, whose variance is a third."""
    return torch.rand(shape, dtype=torch.float64) * 2 - 1


CLAIMS = [
    Measured(
        "trace",
        says="The trace of a field with any Jacobian is exact.",
        measure=trace_error,
        wanted=below(1e-10),
        control=partial(trace_error, exact=False),
        against="one probe of Hutchinson's",
        number="error",
    ),
    Measured(
        "hutchinson",
        says="Hutchinson's estimate of it has no bias.",
        measure=bias,
        wanted=below(3.0),
        control=partial(bias, probe=even),
        against="probes whose variance is a third",
        number="bias in standard errors",
    ),
]
