"""How many bits each layer gets: the least loss at a given size, by an integer program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.quant._grid import PAPER

NAME = "allocate-bits"
LEAST = 1e-6  # what a lower precision costs at least
FULL = 32  # bits of a number that is not quantized
MEASURES = ("loss", "accuracy")
SIZES = ("parameters", "macs")


class Allocation(NamedTuple):
    """The bits of each layer, what they cost together, and the size relative to 32 bits."""

    bits: Tensor
    cost: Tensor
    compression: Tensor


@method(
    NAME,
    paper=PAPER,
    shape="K 2 : unit",
    inputs={"base_value": "1 : unit", "sizes": "K : unit"},
    example={"precisions": (4, 2), "target": 0.15},
    exempt={"gradcheck": "bits are whole numbers"},
)
@torch.no_grad()
def allocate_bits(
    table: Tensor,
    base_value: Tensor,
    sizes: Tensor,
    *,
    precisions: Sequence[int] = (4,),
    base: int = 8,
    target: float,
    measure: str = "loss",
    size: str = "parameters",
) -> Allocation:
    """Give each layer its bits, so that the network has the size that is wanted and loses least.

    For mixed precision after training.

    Each layer was measured alone at each precision, all others at the base. An integer program chooses one precision a
    layer: the least sum of what they cost, max(measure - base_value, 1e-6) each and 0 at the base. Their savings, size
    (base - bits), must reach total (1 - 32 target / base), total = sum size base. It is solved exactly.

    Args:
        table: the measure of the whole network with one layer at one precision, (L, P).
        base_value: the measure with all layers at the base.
        sizes: of the layers, (L,): counts of parameters, or of multiplications.
        precisions: bits beside the base, P of them.
        base: bits of what is not lowered.
        target: the size wanted, relative to 32 bits.
        measure: "loss", or "accuracy", which is lost where it falls.
        size: "parameters", or "macs": then savings are size (base² - bits²), and total is sum size base².

    Returns ``bits`` (L,), ``cost``, and ``compression``, (total - savings) / (32 total / base). A target below
    what the lowest precisions give is refused.

    Improving Post Training Neural Quantization (Hubara et al., 2021), arXiv 2006.10518.
    """
    check.choice(NAME, "measure", measure, MEASURES), check.choice(NAME, "size", size, SIZES)
    target = check.number(NAME, "target", target, 0.0, open_low=True)
    base = check.size(NAME, "base", base)
    lower = [check.size(NAME, "precisions", p, most=base) for p in precisions]
    _check_tensors(table, base_value, sizes, len(lower))
    power = 2 if size == "macs" else 1
    sign = 1 if measure == "loss" else -1
    wide, weights = table.double(), sizes.double().unsqueeze(1)
    zero = wide.new_zeros(len(wide), 1)
    costs = torch.cat([zero, (sign * (wide - base_value.double())).clamp(min=LEAST)], 1)
    steps = torch.tensor([0, *(base**power - p**power for p in lower)], dtype=torch.double, device=table.device)
    savings = weights * steps
    total = float(weights.sum() * base**power)
    required = total * (1 - target * FULL / base)
    most = float(savings.amax(1).sum()) if len(wide) else 0.0
    if most < required:
        least = (total - most) / total * base / FULL
        raise ValueError(f"{NAME}: target={target:g} is not reached by any precisions; the least is {least:.4g}")
    chosen = torch.from_numpy(_solve(costs.cpu().numpy(), savings.cpu().numpy(), required)).to(table.device)
    picks = chosen.unsqueeze(1)
    bits = torch.tensor([base, *lower], device=table.device)[chosen]
    left = total - savings.gather(1, picks).sum()
    return Allocation(
        bits,
        costs.gather(1, picks).sum().to(table.dtype),
        (left / (total * FULL / base)).to(table.dtype),
    )


def _check_tensors(table: Tensor, base_value: Tensor, sizes: Tensor, precisions: int) -> None:
    check.floating(NAME, table, "table")
    check.shape(NAME, "table", table, (None, precisions))
    check.flags(NAME, "sizes", sizes, (len(table),), table)
    check.flags(NAME, "base_value", base_value, base_value.shape if isinstance(base_value, Tensor) else (), table)
    if base_value.numel() != 1:
        raise ValueError(f"{NAME}: base_value must be a single number, but its shape is {tuple(base_value.shape)}")
    for name, value in {"table": table, "base_value": base_value, "sizes": sizes}.items():
        if not bool(value.isfinite().all()):
            what = "NaN" if bool(value.isnan().any()) else "infinities"
            raise ValueError(f"{NAME}: {name} must hold finite numbers, but it holds {what}")
    if bool((sizes < 0).any()):
        raise ValueError(f"{NAME}: sizes must not be below 0, but the least is {float(sizes.min())}")


def _solve(costs, savings, wanted: float):
    """The column of each row whose costs sum to the least while savings reach what is wanted."""
    import numpy as np

    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ImportError as error:
        raise ValueError(f"{NAME}: bits are allotted by scipy, which is not installed: pip install scipy") from error
    layers, options = costs.shape
    if wanted <= 0 or not layers:
        return np.zeros(layers, dtype=np.int64)
    one_each = LinearConstraint(np.kron(np.eye(layers), np.ones(options)), 1, 1)
    scale = max(abs(wanted), 1.0)
    enough = LinearConstraint(savings.reshape(1, -1) / scale, wanted / scale, np.inf)
    solution = milp(
        costs.ravel(),
        integrality=np.ones(costs.size),
        bounds=Bounds(0, 1),
        constraints=[one_each, enough],
        options={"mip_rel_gap": 0.0},
    )
    if solution.x is None:
        raise ValueError(f"{NAME}: the integer program has no solution: {solution.message}")
    return solution.x.reshape(layers, options).argmax(1)
