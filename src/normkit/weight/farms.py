"""FARMS: the power law of a weight's spectrum, measured in windows of one aspect ratio."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method

NAME = "farms"
FITS = ("xmin_mid", "goodness_of_fit", "xmin_peak")


@method(
    NAME,
    paper="Eigenspectrum Analysis of Neural Networks without Aspect Ratio Bias (Hu et al., 2025), arXiv 2506.06280",
    shape="C I",
    over="C I",
    example={"num_row_samples": 4, "q_ratio": 1.0},
    exempt={"gradcheck": "it is taken of values, without a gradient"},
)
@torch.no_grad()
def farms(
    weight: Tensor,
    *,
    num_row_samples: int = 100,
    q_ratio: float = 2.0,
    sampling_ops_per_dim: int | None = 10,
    step_size: int = 10,
    conv_norm: float = 0.5,
    fit: str = "xmin_mid",
    xmin_pos: float = 2,
    bins: int = 100,
) -> tuple[Tensor, ...]:
    """Return the exponent of a power law in the tail of a weight's squared singular values, and measures beside it.

    For learning rates and pruning shares layer by layer: a heavier tail, a smaller alpha, tells a layer that is trained
    better. Measured over the whole matrix alpha depends on its aspect ratio; in windows of one ratio it does not. With
    the n largest, l_i, l_(i + 1), ..., of the sorted values of all windows,

        alpha = 1 + n / (sum ln l_j - n ln l_i),    D the largest distance of both distribution functions

    Args:
        weight: (rows, cols) or (out, in, kh, kw).
        num_row_samples: rows of a window; with ``sampling_ops_per_dim`` no more than the shorter side has.
        q_ratio: columns of a window for each row.
        sampling_ops_per_dim: windows along each axis; None: one every ``step_size``.
        step_size: between windows without it.
        conv_norm: what the squared entries of a convolution are multiplied by.
        fit: where the tail begins: ``"xmin_mid"``, at the 1 / xmin_pos of all values; ``"goodness_of_fit"``, where D
            is least; ``"xmin_peak"``, the same between log10(0.95 p) and 1.5 p, as in the authors' code. There p is the
            lower edge of the fullest of ``bins`` bins of log10 l.
        xmin_pos, bins: see ``fit``.

    Returns alpha, D, the largest value, alpha log10 of it, and the sum over the largest. Of a convolution windows are
    made of all kernel positions at once, and results averaged over windows; their size and number follow from
    ``q_ratio`` alone.

    Eigenspectrum Analysis of Neural Networks without Aspect Ratio Bias (Hu et al., 2025), arXiv 2506.06280.
    """
    check.floating(NAME, weight, "weight")
    if weight.dim() not in (2, 4):
        raise ValueError(f"{NAME}: weight must have two or four axes, but its shape is {tuple(weight.shape)}")
    for name, value in (("num_row_samples", num_row_samples), ("step_size", step_size), ("bins", bins)):
        check.size(NAME, name, value)
    if sampling_ops_per_dim is not None:
        check.size(NAME, "sampling_ops_per_dim", sampling_ops_per_dim)
    check.number(NAME, "q_ratio", q_ratio, 0.0, check.LARGEST, open_low=True)
    check.number(NAME, "conv_norm", conv_norm, 0.0, open_low=True)
    check.number(NAME, "xmin_pos", xmin_pos, 1.0)
    check.choice(NAME, "fit", fit, FITS)
    wide = weight.detach().double()
    if weight.dim() == 4:
        spectra = list(_of_convolution(wide, q_ratio, conv_norm))
    else:
        spectra = [_of_linear(wide, num_row_samples, q_ratio, sampling_ops_per_dim, step_size)]
    metrics = torch.stack([_measure(values, fit, xmin_pos, bins) for values in spectra]).mean(0)
    return tuple(metrics.to(weight.dtype))


def _of_linear(weight: Tensor, samples: int, ratio: float, ops: int | None, step: int) -> Tensor:
    rows, cols = weight.shape
    high = samples if ops is None else min(samples, rows, cols)
    size = (high, int(high * ratio))
    if size[0] > rows or not 0 < size[1] <= cols:
        raise ValueError(
            f"{NAME}: weight of shape {(rows, cols)} has no window of {size[0]} x {size[1]}; a smaller q_ratio or "
            "num_row_samples has"
        )
    starts = [_starts(whole, part, ops, step) for whole, part in zip((rows, cols), size, strict=True)]
    windows = [weight[i : i + size[0], j : j + size[1]] for i in starts[0] for j in starts[1]]
    return torch.linalg.svdvals(torch.stack(windows)).square().flatten().sort().values


def _starts(whole: int, part: int, ops: int | None, step: int) -> list[int]:
    if ops is None:
        return [i * step for i in range(max(1, (whole - part) // step + 1))]
    step = max(1, (whole - part) // (ops - 1)) if ops > 1 else 1
    return [min(i * step, whole - part) for i in range(min(ops, max(1, (whole - part) // step + 1)))]


def _of_convolution(weight: Tensor, ratio: float, norm: float) -> Iterator[Tensor]:
    """The spectra of a convolution: rows are at least as many as columns."""
    slices = weight.permute(2, 3, 0, 1).flatten(0, 1)
    slices = slices.mT if slices.shape[1] < slices.shape[2] else slices
    rows, cols = slices.shape[1:]
    high, wide = (max(1, int(cols // ratio)), cols) if ratio > 1 else (cols, max(1, int(cols // (1 / ratio))))
    for i in range(rows // cols):
        windows = slices[:, i * high : (i + 1) * high, :wide] * math.sqrt(norm)
        yield torch.linalg.svdvals(windows).square().flatten().sort().values


def _measure(values: Tensor, fit: str, position: float, bins: int) -> Tensor:
    """Return alpha, D, the largest value, alpha log10 of it, and the stable rank of sorted values."""
    if fit == "xmin_mid":
        alpha, distance = _tail(values, min(int(len(values) / position), len(values) - 1))
    else:
        alpha, distance = _best(values, None if fit == "goodness_of_fit" else bins)
    largest = values[-1]
    return torch.stack([alpha, distance, largest, alpha * largest.log10(), values.sum() / largest])


def _tail(values: Tensor, start: int) -> tuple[Tensor, Tensor]:
    tail = values[start:]
    n = len(tail)
    alpha = 1 + n / (tail.log().sum() - n * tail[0].log())
    steps = torch.arange(n, dtype=tail.dtype, device=tail.device) / n
    return alpha, (1 - (tail / tail[0]) ** (1 - alpha) - steps).abs().max()


def _best(values: Tensor, bins: int | None) -> tuple[Tensor, Tensor]:
    """Begin the tail where it fits best: anywhere, or near the peak of a histogram."""
    starts = range(len(values) - 1)
    if bins is not None:
        starts = _near_the_peak(values, bins)
    tails = [_tail(values, start) for start in starts]
    if not tails:
        return values.new_zeros(()), values.new_ones(())
    distances = torch.stack([torch.where(alpha > 1, distance, 1) for alpha, distance in tails])
    best = int(distances.argmin())
    return tails[best][0], distances[best]


def _near_the_peak(values: Tensor, bins: int) -> range:
    """The places between the peak's bounds; the lower one, a logarithm beside a value, is the authors'."""
    logs = values.log10()
    low, high = float(logs.min()), float(logs.max())
    counts = torch.histc(logs, bins=bins, min=low, max=high)
    peak = 10 ** (low + int(counts.argmax()) * (high - low) / bins)
    above, below = math.log10(0.95 * peak), 1.5 * peak
    first = int((values < above).sum())
    return range(first, min(int((values <= below).sum()), len(values) - 1))
