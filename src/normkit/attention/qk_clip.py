"""QK-clip: query and key weights of heads whose scores outgrew a bound are shrunk."""

from __future__ import annotations

import torch
from torch import Tensor

from normkit import check
from normkit.catalog import method

NAME = "qk-clip"


@method(
    "qk-clip",
    paper="Kimi K2: Open Agentic Intelligence (Kimi Team, 2025), arXiv 2507.20534",
    evidence="library",
    provenance="NVIDIA/Megatron-LM's clip_qk; the authors published no code of it",
    shape="F C",
    over="",
    inputs={"key": "F C", "largest": "heads"},
    example={"heads": 2, "bound": 0.5},
)
def qk_clip(
    query: Tensor,
    key: Tensor,
    largest: Tensor,
    *,
    heads: int,
    kv_heads: int | None = None,
    bound: float = 100.0,
    balance: float = 0.5,
    rope_dim: int | None = None,
    value_dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Shrink the query and key weights of those heads whose attention scores went beyond a bound.

    For attention whose scores grow until training spikes, where ``qk-norm`` does not fit: in latent attention, whose
    keys are not formed at inference. With norms of queries and keys it has no use, since the weights' scale has no
    effect then.

    It comes after an optimizer step. A group is the query heads that share a key head; with b = balance,

        g = min(1, bound / max of largest over the group)
        rows of its queries <- g^b rows,    rows of its key <- g^(1 - b) rows

    so that all scores of the group are multiplied by g, and those of the others stay. In multi-head latent attention
    every head is its own group, and the rotary key, which all share, stays: content rows of a query g^b, rotary rows
    g, content rows of a key g^(1 - b), value rows as they are.

    Args:
        query: the weight (heads head_dim, in), or a bias (heads head_dim); one head's rows after the other's.
        key: the weight (kv_heads head_dim, in), or a bias.
        largest: each head's largest score since the last call, (heads,): what enters the softmax, of pairs that a mask
            lets be seen. Over several processes: the maximum.
        heads, kv_heads: how many heads the queries and the keys have; None: as many.
        bound: the largest score that is let be.
        balance: the share of the shrinking that queries take.
        rope_dim, value_dim: of latent attention: rows of a query's head are content, then ``rope_dim`` rotary ones;
            rows of a key's head are content, then ``value_dim`` of its value.

    Returns new weights, their factors worked out in float64. State of optimizers is left alone.
    :class:`normkit.ScoreClip` does it in a model, and ``Muon(..., qk_clip=...)`` after its steps.

    Kimi K2: Open Agentic Intelligence (Kimi Team, 2025), arXiv 2507.20534.
    """
    heads = check.size(NAME, "heads", heads)
    kv_heads = heads if kv_heads is None else check.size(NAME, "kv_heads", kv_heads)
    check.divides(NAME, "kv_heads", kv_heads, "heads", heads)
    check.floating(NAME, query, "query")
    check.values(NAME, "largest", largest, (heads,), query)
    if check.readable(largest) and not (largest < torch.inf).all():
        raise ValueError(f"{NAME}: largest has NaN or infinity")
    latent = _latent(heads, kv_heads, rope_dim, value_dim)
    bound = check.number(NAME, "bound", bound, 0.0, open_low=True)
    balance = check.number(NAME, "balance", balance, 0.0, 1.0)
    most = largest.double().view(kv_heads, -1).amax(1)
    g = torch.where(most > bound, bound / most, 1.0)
    rotary, content = (0, 0) if latent is None else latent
    queries = _scale("query", query, heads, g.repeat_interleave(heads // kv_heads), (balance, 1.0), rotary)
    return queries, _scale("key", key, kv_heads, g, (1 - balance, 0.0), content)


def _latent(heads: int, kv_heads: int, rope_dim: int | None, value_dim: int | None) -> tuple[int, int] | None:
    """The rows of a head of latent attention that are not content, of queries and of keys."""
    if rope_dim is None and value_dim is None:
        return None
    if rope_dim is None or value_dim is None:
        raise ValueError(f"{NAME}: rope_dim and value_dim belong together; latent attention has both")
    if kv_heads != heads:
        raise ValueError(f"{NAME}: kv_heads must be heads={heads} in latent attention, not {kv_heads}")
    return check.size(NAME, "rope_dim", rope_dim, least=0), check.size(NAME, "value_dim", value_dim, least=0)


def _scale(name: str, weight: Tensor, heads: int, g: Tensor, powers: tuple[float, float], rest: int) -> Tensor:
    """Multiply each head's rows by its g to a power: the first, and of the last ``rest`` rows the second."""
    check.floating(NAME, weight, name)
    rows = weight.shape[0] if weight.dim() else 0
    if weight.dim() not in (1, 2) or rows % heads or rows // heads <= rest:
        least = f"more than {rest} rows for each of {heads} heads" if rest else f"a multiple of {heads} rows"
        raise ValueError(f"{NAME}: {name} must have {least}, but its shape is {tuple(weight.shape)}")
    each = rows // heads
    exponents = torch.tensor([powers[0]] * (each - rest) + [powers[1]] * rest, dtype=g.dtype, device=g.device)
    factors = (g[:, None] ** exponents).flatten()
    return (weight * factors.view(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)
