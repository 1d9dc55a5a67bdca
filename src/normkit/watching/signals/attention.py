"""What attention looks at: the entropy of its rows and its largest score, of whatever calls torch's functions."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from normkit.attention.attention_entropy import attention_entropy
from normkit.watching.signals.listener import SOFTMAXES
from normkit.watching.signals.signal import vector
from normkit.watching.store import BESIDE, LARGEST, LEAST

SAMPLES, QUERIES = 2, 128  # of a batch, and of each sample: a few thousand rows a head tell an entropy
NUMBERS = {
    "entropy": LEAST,
    "entropy_head": BESIDE,
    "logit": LARGEST,
    "logit_head": BESIDE,
    "sink": LARGEST,
    "sink_head": BESIDE,
    "sink_key": BESIDE,
}


def scores(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    **_: Any,
) -> Tensor:
    """Return the scores of some queries, (samples, heads, queries, keys); -inf where a key is not seen."""
    q, k = query.detach()[:SAMPLES].float(), key.detach()[:SAMPLES].float()
    if k.shape[1] != q.shape[1]:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    step = -(-q.shape[2] // QUERIES)
    logits = q[:, :, ::step] @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        places = torch.arange(q.shape[2], device=q.device)[::step, None]
        logits = logits.masked_fill(torch.arange(k.shape[2], device=q.device) > places, -math.inf)
    if attn_mask is not None:
        mask = attn_mask.detach().expand(query.shape[0], q.shape[1], q.shape[2], k.shape[2])[:SAMPLES, :, ::step]
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask.float()
    return logits


def scores_of_torchs_module(*args: Any, **kwargs: Any) -> Tensor | None:
    """Return the scores of ``nn.MultiheadAttention``, whose inner calls a mode does not see; None where it has its
    keys of other widths, biases or padding, of which no account is taken here.
    """
    arguments = _MULTIHEAD.bind(*args, **kwargs).arguments
    weight, heads = arguments["in_proj_weight"], arguments["num_heads"]
    if weight is None or arguments.get("bias_k") is not None or arguments.get("key_padding_mask") is not None:
        return None
    bias = arguments["in_proj_bias"]
    q, k = (
        F.linear(
            arguments[name][:, :SAMPLES].detach().float(), w.detach().float(), None if b is None else b.detach().float()
        )
        .unflatten(-1, (heads, -1))
        .permute(1, 2, 0, 3)
        for name, w, b in zip(
            ("query", "key"), weight.chunk(3), (None,) * 3 if bias is None else bias.chunk(3), strict=False
        )
    )
    mask = arguments.get("attn_mask")
    if mask is not None:
        mask = mask.unflatten(0, (-1, heads))[:SAMPLES] if mask.dim() == 3 else mask
        mask = ~mask if mask.dtype == torch.bool else mask  # here True hides a key
        return scores(q, k, k, mask)
    return scores(q, k, k, is_causal=arguments.get("is_causal", False))


_MULTIHEAD = inspect.signature(F.multi_head_attention_forward)


def read(scores: Tensor) -> Tensor:
    """Return the least entropy of a head, as a share of the largest that its rows could have, the largest score, and
    the largest share of a head's attention that one key gets of all rows, a sink; each with its head, a sink with its
    key.

    Rows that see one key or none have no entropy to tell of, and are left out.
    """
    weights = scores.softmax(-1)
    visible = (scores > -1e4).sum(-1)
    mask = visible > 1
    entropy = attention_entropy(weights, reduce=False) / visible.clamp(min=2).log()
    rows = mask.sum((0, 2)).clamp(min=1)
    by_head = torch.where(mask, entropy, 0).sum((0, 2)) / rows
    by_key, keys = (torch.where(mask[..., None], weights, 0).sum((0, 2)) / rows[:, None]).max(-1)
    sink, holder = by_key.max(0)
    sizes = torch.where(scores > -1e4, scores, 0).abs().amax((0, 2, 3))
    least, head = by_head.min(0)
    largest, other = sizes.max(0)
    return vector(least, head, largest, other, sink, holder, keys.gather(0, holder[None])[0])


def scores_of_softmax(input: Tensor, *_: Any, **__: Any) -> Tensor | None:
    """Return the scores that a softmax is taken of, where they are those of heads: four axes."""
    return input[:SAMPLES].detach().float() if input.dim() == 4 else None


HEARS = {
    F.scaled_dot_product_attention: scores,
    F.multi_head_attention_forward: scores_of_torchs_module,
    **dict.fromkeys(SOFTMAXES, scores_of_softmax),
}
"""What is read of the arguments of torch's functions."""
