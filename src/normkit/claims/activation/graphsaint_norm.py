"""What GraphSAINT claims of its coefficients."""

from functools import partial

import torch

import normkit as nk
from normkit.claims.kinds import Measured, below
from normkit.claims.measures import randn, slope

NODES, COUNTS = 40, (100, 1000, 10000)


def errors(weighted):
    """The relative error of the neighbours' mean over so many sampled subgraphs that hold the node.

    Each node is sampled on its own, with a chance of its own, so that how often nodes and edges occur is known.
    """
    chance = 0.1 + 0.8 * torch.rand(NODES, dtype=torch.float64)
    target, source = (torch.rand(NODES, NODES) < 0.15).fill_diagonal_(True).nonzero().unbind(1)
    x, degree = randn(NODES, 4), torch.bincount(target, minlength=NODES).double()
    norm, every = nk.GraphSAINTNorm(NODES), torch.ones(NODES, dtype=torch.bool)
    both = torch.where(target == source, chance[target], chance[target] * chance[source])
    coefficient = norm(target, both, chance, 1.0, every, ~every)[0]
    coefficient = coefficient if weighted else torch.ones_like(coefficient)
    exact = norm.aggregate(x, target, source, torch.ones_like(coefficient), degree)
    total, counts, gaps = torch.zeros_like(x), torch.zeros_like(degree), {}
    for done in range(0, max(COUNTS), 100):
        here = torch.rand(100, NODES, dtype=torch.float64) < chance
        graph, edge = (here[:, target] & here[:, source]).nonzero().unbind(1)
        ends = (graph * NODES + end[edge] for end in (target, source))
        own = norm.aggregate(x.repeat(100, 1), *ends, coefficient[edge], degree.repeat(100))
        total += (own.unflatten(0, (100, NODES)) * here[..., None]).sum(0)
        counts += here.sum(0)
        gaps[done + 100] = ((total / counts[:, None] - exact).norm() / exact.norm()).log()
    return [gaps[count] for count in COUNTS]


def rate_error(seed, weighted=True):
    """How far the slope of this error against their number, both as logarithms, is from -1/2."""
    numbers = torch.tensor(COUNTS, dtype=torch.float64).log()
    return abs(slope(numbers, torch.stack([torch.stack(errors(weighted)) for _ in range(6)]).mean(0)) + 0.5)


CLAIMS = [
    Measured(
        "unbiased",
        says="With its coefficients the error of sampled sums falls as one over the root of the number of subgraphs.",
        measure=rate_error,
        wanted=below(0.1),
        control=partial(rate_error, weighted=False),
        against="no coefficients",
        number="|slope + 0.5|",
        draws=3,
    )
]
