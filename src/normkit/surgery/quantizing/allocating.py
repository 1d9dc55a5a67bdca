"""How many bits each linear of a model gets, for a budget: each is measured alone, and an integer program chooses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normkit.columns import number_of
from normkit.quant.allocate_bits import FULL, allocate_bits
from normkit.surgery.statistics.batch_statistics import feed, scores_of

BASE, PRECISIONS = 8, (6, 5, 4, 3, 2)
MEASURED = 8  # batches at most, on which each linear is measured at each precision
BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
BUDGET = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(bits?|b|kb|mb|gb)\s*", re.IGNORECASE)


def mean_bits(budget: Any, sizes: Sequence[int], rest: int) -> float:
    """Return the bits that a budget allows a number of some weights on average.

    ``sizes`` are the counts of the weights' numbers, ``rest`` the bytes of all else in the model. A budget that even
    the lowest precision exceeds is refused with the least that would do.

    >>> mean_bits("4.5 bits", [96, 64], 50), mean_bits("130 B", [96, 64], 50)
    (4.5, 4.0)
    """
    match = BUDGET.fullmatch(budget) if isinstance(budget, str) else None
    if match is None:
        raise ValueError(
            f'quantize: budget must be like "4.5 bits" of a number, or "300 kB" of a model, not {budget!r}'
        )
    amount, unit, least, count = float(match[1]), match[2].lower(), min(PRECISIONS), sum(sizes)
    if unit.startswith("bit"):
        mean, lowest = amount, f"{least} bits"
    else:
        uneven = sum(size % 8 > 0 for size in sizes)  # a weight begins at a byte
        mean = 8 * (amount * BYTES[unit] - rest - uneven) / count
        lowest = f"{rest + uneven + least * count / 8:,.0f} B, of which {rest:,} are not in these weights"
    if mean < least:
        raise ValueError(
            f"quantize: no allocation of bits meets budget={budget!r}; the least that one meets is {lowest}"
        )
    return mean


@torch.no_grad()
def allocate(
    model: nn.Module,
    layers: Sequence[str],
    batches: Sequence[Any],
    mean: float,
    rounded: Callable[[Tensor, int], Tensor],
) -> dict[str, int]:
    """Return the bits of each linear: with the least error of the model's outputs in sum, ``mean`` bits a number.

    The error is the squared distance from the float model's outputs over their variance, with one linear rounded lower
    than 8 bits and all others at 8. ``rounded`` returns a weight on its grid of so many bits. The model is changed
    while it is measured, and is put back.
    """
    batches = batches[:MEASURED]
    targets = [_outputs(model, batch) for batch in batches]
    weights = {name: model.get_parameter(f"{name}.weight") for name in layers}
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    try:
        for name, weight in weights.items():
            weight.copy_(rounded(before[name], BASE))
        lowest = _error(model, batches, targets)
        table = [
            [_error_lower(model, weights[n], before[n], b, batches, targets, rounded) for b in PRECISIONS]
            for n in layers
        ]
    finally:
        for name, weight in weights.items():
            weight.copy_(before[name])
    sizes = torch.tensor([weight.numel() for weight in weights.values()], dtype=torch.double, device="cpu")
    errors = torch.tensor(table, dtype=torch.double, device="cpu")
    most = errors.max().clamp(min=torch.finfo(torch.double).tiny)
    allocation = allocate_bits(
        errors / most,  # the program takes what is below 1e-6 as that
        errors.new_tensor(lowest) / most,
        sizes,
        precisions=PRECISIONS,
        base=BASE,
        target=min(mean, BASE) / FULL,
    )
    return dict(zip(layers, allocation.bits.tolist(), strict=True))


def describe(bits: Mapping[str, int], sizes: Mapping[str, int]) -> str:
    """Say how many linears have how many bits, and the mean over their numbers.

    >>> describe({"a": 4, "b": 2, "c": 4}, {"a": 10, "b": 20, "c": 10})
    '4 bits of 2 linears, 2 of 1; 3 bits a number'
    """
    counts = {width: sum(own == width for own in bits.values()) for width in sorted(set(bits.values()), reverse=True)}
    first, *others = counts.items()
    words = [f"{first[0]} bits of {number_of(first[1], 'linear')}", *(f"{w} of {n}" for w, n in others)]
    mean = sum(own * sizes[name] for name, own in bits.items()) / sum(sizes[name] for name in bits)
    return f"{', '.join(words)}; {mean:.4g} bits a number"


def _error_lower(
    model: nn.Module,
    weight: Tensor,
    old: Tensor,
    bits: int,
    batches: Sequence[Any],
    truth: Sequence[Tensor],
    rounded: Callable[[Tensor, int], Tensor],
) -> float:
    """The error with one linear lower than all others."""
    weight.copy_(rounded(old, bits))
    error = _error(model, batches, truth)
    weight.copy_(rounded(old, BASE))
    return error


def _error(model: nn.Module, batches: Sequence[Any], truth: Sequence[Tensor]) -> float:
    apart = sum(float((_outputs(model, b) - w).square().sum()) for b, w in zip(batches, truth, strict=True))
    return apart / max(sum(float((w - w.mean()).square().sum()) for w in truth), torch.finfo(torch.float32).tiny)


def _outputs(model: nn.Module, batch: Any) -> Tensor:
    output = scores_of(feed(model, batch))
    if not isinstance(output, Tensor):
        raise TypeError(f'quantize: bits="auto" needs a model that returns a tensor, not {type(output).__name__}')
    return output.double()
