"""OT-CFM: conditional flow matching between pairs of an optimal transport plan."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method
from normkit.density.conditional_flow_matching import Velocity, conditional_flow_matching
from normkit.kinds import beside
from normkit.statistics import reals

NAME = "ot-cfm"
MOST = 2**24  # entries that torch draws from at once
ROUNDS = 1000  # of Sinkhorn's scaling
FIRST = 50  # of them with each larger weight of the entropy before
STILL = 1e-9  # change of its potentials at which it stops
SPARE = 1e-2  # of a point's weight, by which a plan's sums may be off without a warning


@method(
    NAME,
    paper="Improving and Generalizing Flow-Based Generative Models with Minibatch Optimal Transport (Tong et al., "
    "2023), arXiv 2302.00482",
    shape="N C",
    inputs={"x1": "N C", "t": "N : unit", "noise": "N C", "i": "N : index N", "j": "N : index N"},
)
def ot_cfm(
    x0: Tensor,
    x1: Tensor,
    t: Tensor | None = None,
    noise: Tensor | None = None,
    i: Tensor | None = None,
    j: Tensor | None = None,
    *,
    sigma: float = 0.0,
    method: str = "exact",
    reg: float = 0.05,
    normalize_cost: bool = False,
) -> Velocity:
    """Pair source and data so that the ways are short, then return points on them and velocities.

    For continuous flows that shall sample in few solver steps. Each batch needs a plan of its points, whose cost grows
    with the batch; with ``conditional-flow-matching`` alone pairs cost nothing.

    Paths of such pairs hardly cross: the flow is straighter, its training less noisy, and fewer solver steps do. Pairs
    are drawn from the plan with replacement, so that some points repeat; then, on (x0[i], x1[j]),

        xt = t x1 + (1 - t) x0 + sigma noise,    ut = x1 - x0

    Args:
        x0, x1: source (N, ...) and data (M, ...).
        t, noise: as in :func:`conditional_flow_matching`, one for each pair; None: drawn.
        i, j: int64 indices of the pairs into x0 and x1; None: N of them are drawn from the plan.
        sigma: the width of the path.
        method, reg, normalize_cost: of the plan, see there.

    ``plan(x0, x1)`` beside it returns the plan. Returns ``xt`` and ``ut`` of the pairs.

    Improving and Generalizing Flow-Based Generative Models (Tong et al., 2023), arXiv 2302.00482.
    """
    _check_way(method, reg)
    source, data = _points(x0, x1)
    if (i is None) is not (j is None):
        raise ValueError(f"{NAME}: i and j must both be given or both be left out")
    if i is None or j is None:
        coupling = plan(source, data, method=method, reg=reg, normalize_cost=normalize_cost)
        if coupling.numel() <= MOST:
            drawn = torch.multinomial(coupling.flatten(), len(x0), replacement=True)
            i, j = drawn // len(x1), drawn % len(x1)
        else:
            i = torch.multinomial(coupling.sum(1), len(x0), replacement=True)
            j = torch.multinomial(coupling[i], 1).squeeze(1)
    else:
        check.index(NAME, "i", i, (None,), len(x0), x0)
        check.index(NAME, "j", j, i.shape, len(x1), x0)
    a, b = source.index_select(0, i), data.index_select(0, j)
    for name, value, shape in (("t", t, a.shape[:1]), ("noise", noise, a.shape)):
        if value is not None:
            reals(NAME, name, value, shape, x0)
    xt, ut = conditional_flow_matching(a, b, t, noise, sigma=sigma)
    return Velocity(xt.to(x0.dtype), ut.to(x0.dtype))


@beside(ot_cfm)
@torch.no_grad()
def plan(x0: Tensor, x1: Tensor, *, method: str = "exact", reg: float = 0.05, normalize_cost: bool = False) -> Tensor:
    """Return how much of each point of x0 goes to each of x1, (N, M), with the least total squared distance.

    Args:
        x0, x1: source (N, ...) and data (M, ...), all of equal weight.
        method: ``"exact"``; ``"sinkhorn"``: a smoother plan, blurred by an entropy.
        reg: the weight of the entropy.
        normalize_cost: divide the squared distances by the largest.

    The exact plan needs scipy. One of Sinkhorn's that comes to nothing is replaced by even weights; one whose sums are
    not right after 1000 rounds is returned with a warning.
    """
    _check_way(method, reg)
    source, data = (value.flatten(1).double() for value in _points(x0, x1))
    cost = torch.cdist(source, data, compute_mode="donot_use_mm_for_euclid_dist").square()
    if normalize_cost:
        cost = cost / cost.max().clamp(min=torch.finfo(cost.dtype).tiny)
    coupling = _exact(cost) if method == "exact" else _sinkhorn(cost, reg)
    total = coupling.sum()
    coupling = coupling if total.isfinite() and total > 1e-8 else torch.full_like(cost, 1 / cost.numel())
    return coupling.to(x0.dtype)


def _check_way(method: str, reg: float) -> None:
    check.choice(NAME, "method", method, ("exact", "sinkhorn"))
    check.number(NAME, "reg", reg, 0.0, open_low=True)


def _points(x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """Source and data, of one shape but for their number."""
    check.floating(NAME, x0, "x0")
    if x0.dim() == 0 or not len(x0):
        raise ValueError(f"{NAME}: x0 must have at least one sample, but its shape is {tuple(x0.shape)}")
    source, data = reals(NAME, "x0", x0, x0.shape), reals(NAME, "x1", x1, (None, *x0.shape[1:]), x0)
    if not len(x1):
        raise ValueError(f"{NAME}: x1 must have at least one sample, but its shape is {tuple(x1.shape)}")
    return source, data


def _exact(cost: Tensor) -> Tensor:
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ValueError(f"{NAME}: method='exact' needs scipy; method='sinkhorn' needs nothing") from error

    matrix = cost.cpu().numpy()
    if not np.isfinite(matrix).all():
        raise ValueError(f"{NAME}: x0 and x1 must be finite, but a distance between them is not")
    if matrix.shape[0] != matrix.shape[1]:
        return torch.from_numpy(_program(matrix)).to(cost)
    rows, columns = linear_sum_assignment(matrix)
    coupling = np.zeros_like(matrix)
    coupling[rows, columns] = 1 / len(matrix)
    return torch.from_numpy(coupling).to(cost)


def _program(cost: np.ndarray) -> np.ndarray:
    """The exact plan between sets of unlike sizes: a linear program, its sums along both axes fixed."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    n, m = cost.shape
    sums = vstack([kron(eye_array(n), np.ones((1, m))), kron(np.ones((1, n)), eye_array(m))])
    marginals = np.concatenate([np.full(n, 1 / n), np.full(m, 1 / m)])
    return linprog(cost.ravel(), A_eq=sums, b_eq=marginals, method="highs").x.reshape(n, m)


def _sinkhorn(cost: Tensor, reg: float) -> Tensor:
    """The entropic plan: rows and columns scaled in turn, in the log domain, until both sums fit.

    With a small weight of the entropy that takes very many rounds; so each weight starts from the scales of its double.
    """
    n, m = cost.shape
    left, right = cost.new_zeros(n), cost.new_zeros(m)
    doublings = int(torch.log2(cost.max() / reg).nan_to_num(0, 0, 0).clamp(0, 50))
    for doubling in range(doublings, -1, -1):
        score, left, right = -cost / (reg * 2**doubling), 2 * left, 2 * right
        for _ in range(FIRST if doubling else ROUNDS):
            before = left
            left = -np.log(n) - torch.logsumexp(score + right, 1)
            right = -np.log(m) - torch.logsumexp(score + left.unsqueeze(1), 0)
            if (left - before).abs().max() < STILL:
                break
    coupling = (score + left.unsqueeze(1) + right).exp()
    off = n * (coupling.sum(1) - 1 / n).abs().max().item()
    if off > SPARE:
        warnings.warn(
            f"{NAME}: after {ROUNDS} rounds of Sinkhorn's scaling with reg={reg:g}, a point of x0 gives "
            f"{off:.2g} of its weight too much or too little; a larger reg needs fewer rounds, method='exact' none",
            stacklevel=5,
        )
    return coupling
