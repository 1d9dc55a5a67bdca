"""PA&DA's sampling of data: by the lengths of samples' gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.statistics import accurate

PAPER = "PA&DA: Jointly Sampling PAth and DAta for Consistent NAS (Lu et al., 2023), arXiv 2302.14772"


@method(
    "panda-data-probability",
    paper=PAPER,
    shape="N : unit",
    over="N",
    inputs={"index": "N : index size"},
    example={"size": 4},
)
def panda_data_probability(norms: Tensor, index: Tensor, *, size: int, tau: float = 0.5) -> Tensor:
    """Return the probability to draw each sample in the next epoch: its gradient's share, mixed with an equal one.

    For training a network in many epochs, in the paper a supernet of architecture search, with batches whose gradients
    differ less. It needs a length a sample, for which ``el2n`` is a cheap stand-in. The paths of the supernet are drawn
    by ``panda-path-probability``.

    Samples with long gradients are drawn more often, so that those of a batch differ less. In the order of the epoch, a
    sample's value is its first norm that is not 0, and half of the sum of old and new at each later one; with none, 0.

        probability = tau value / sum(value) + (1 - tau) / size

    If all values are 0 it is equal for all. The authors take ``tau = epoch / epochs``, ``el2n`` for the norms, and
    ``torch.utils.data.WeightedRandomSampler(probability, size)``. They do not divide a sample's loss by
    ``size * probability``, so that the mean gradient leans to long ones; multiply by :func:`correction` to undo it.

    Args:
        norms: lengths of the gradients that the epoch has seen, in order, (M,).
        index: whose they are, int64 (M,).
        size: of the data set.
        tau: the share that goes by the lengths; with 1, samples not seen never come back.

    PA&DA (Lu et al., 2023), arXiv 2302.14772.
    """
    owner = "panda-data-probability"
    size = check.size(owner, "size", size)
    check.values(owner, "norms", norms, (None,), norms)
    check.index(owner, "index", index, norms.shape, size, norms)
    tau = check.number(owner, "tau", tau, 0.0, 1.0)
    wide = accurate(norms)
    value = wide.new_zeros(size).index_add(0, index, visits(wide.detach(), index, size) * wide)
    return mix(value, tau).to(norms.dtype)


def visits(norms: Tensor, index: Tensor, size: int) -> Tensor:
    """How much each visit counts in its sample's value; those before the first norm that is not 0 are none.

    >>> visits(torch.tensor([1.0, 1.0, 1.0, 1.0]), torch.tensor([0, 1, 0, 0]), 2)
    tensor([0.2500, 1.0000, 0.2500, 0.5000])
    """
    order = torch.argsort(index, stable=True)
    counts = torch.bincount(index, minlength=size)
    place = torch.empty_like(index)  # of a visit, among those of its sample
    place[order] = torch.arange(len(index), device=index.device) - (counts.cumsum(0) - counts)[index[order]]
    real = torch.where(norms != 0, place, len(index))
    first = torch.full_like(counts, len(index)).scatter_reduce(0, index, real, "amin")
    later = (counts[index] - 1 - place).to(norms.dtype)
    return 0.5 ** torch.where(place == first[index], later, later + 1)


def mix(value: Tensor, tau: float) -> Tensor:
    """Mix the shares of values with equal ones; if all are 0, equal ones alone."""
    total, equal = value.sum(), torch.full_like(value, 1 / max(len(value), 1))
    share = torch.where(total > 0, value / torch.where(total > 0, total, 1), equal)
    return tau * share + (1 - tau) * equal


def correction(probability: Tensor) -> Tensor:
    """Factors for the samples' losses that make the mean gradient that of equal sampling.

    >>> correction(torch.tensor([0.5, 0.25, 0.25]))
    tensor([0.6667, 1.3333, 1.3333])
    """
    return 1 / (len(probability) * probability)
