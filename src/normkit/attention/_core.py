"""What the attention cores share: heads, a causal flag, the checks of q, k, v, and the mask."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from normkit import catalog, check
from normkit.norm import Norm

FUSED = {"higher-derivatives": "torch's fused attention has none; torch.nn.attention.sdpa_kernel(SDPBackend.MATH) does"}


class AttentionCore(Norm):
    """A map of queries, keys and values, head by head; projections, dropout and the joining of heads are its owner's.

    Shapes: ``q`` (N, heads, T, head_dim), ``k`` and ``v`` (N, heads, S, head_dim). ``mask`` is boolean and broadcasts
    to (N, heads, T, S); True means that the query may see the key. A query that sees no key gets the zero vector.

    ``forms`` holds the values of ``causal`` that the core's mathematics allows; another one is refused.
    """

    forms: ClassVar[tuple[bool, ...]] = (False, True)

    def __init__(self, head_dim: int, heads: int, causal: bool = False):
        super().__init__()
        self.head_dim = check.size(self, "head_dim", head_dim)
        self.heads = check.size(self, "heads", heads)
        self.causal = self._form(bool(causal))

    def _form(self, causal: bool) -> bool:
        if causal not in self.forms:
            cards = [catalog.card(name) for name in catalog.methods(room="attention")]
            names = [card.name for card in cards if causal in getattr(card.cls, "forms", ())]
            form = f"{'a causal' if causal else 'a non-causal'} form"
            raise ValueError(
                f"{type(self).__name__}: causal must be {not causal}; cores with {form}: {', '.join(names)}"
            )
        return causal

    def _check(self, q: Tensor, k: Tensor, v: Tensor, *, same_length: bool = False, free_value: bool = False) -> None:
        """Require q, k, v of the core's shapes; ``free_value`` allows v its own feature count."""
        n = q.shape[0] if isinstance(q, Tensor) and q.dim() else 0
        check.floating(self, q, "q")
        check.shape(self, "q", q, (n, self.heads, None, self.head_dim))
        length = q.shape[2] if same_length else None
        check.floating(self, k, "k")
        check.shape(self, "k", k, (n, self.heads, length, self.head_dim), q)
        check.floating(self, v, "v")
        check.shape(self, "v", v, (n, self.heads, k.shape[2], None if free_value else self.head_dim), q)

    def _check_mask(self, mask: Tensor | None, q: Tensor, k: Tensor) -> None:
        """Require a boolean mask that broadcasts to (N, heads, T, S)."""
        self._check_seen("mask", mask, "(N, heads, T, S)", (*q.shape[:3], k.shape[2]), q)

    def _check_seen(self, name: str, mask: Tensor | None, axes: str, wanted: tuple[int, ...], q: Tensor) -> None:
        if mask is None:
            return
        if not isinstance(mask, Tensor) or mask.dtype is not torch.bool:
            got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise TypeError(f"{type(self).__name__}: {name} must be a boolean tensor, True for what is seen, not {got}")
        fits = mask.dim() <= 4 and all(
            have in (1, want) for have, want in zip(reversed(mask.shape), reversed(wanted), strict=False)
        )
        if not fits:
            size = tuple(mask.shape)
            raise ValueError(
                f"{type(self).__name__}: {name} must broadcast to {axes} = {wanted}, but its shape is {size}"
            )
        if mask.device != q.device:
            raise ValueError(f"{type(self).__name__}: {name} is on {mask.device}, but q is on {q.device}")


def visible(mask: Tensor | None, causal: bool, length: int, keys: int, device: torch.device) -> Tensor | None:
    """Join a mask and the causal rule (query i sees keys j <= i, both counted from the first); None is all seen."""
    if not causal:
        return mask
    earlier = torch.ones(length, keys, dtype=torch.bool, device=device).tril()
    return earlier if mask is None else mask & earlier


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """Softmax attention on torch's fused kernels; a query that sees no key gets zero and sends no gradient.

    The fused kernels know no forward-mode derivative, so the formula runs under ``torch.func`` and forward mode.

    >>> softmax_attention(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 2, 2), torch.tensor([[[[1.0, 0.0], [3.0, 0.0]]]]))
    tensor([[[[2., 0.]]]])
    """
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return softmax_formula(q, k, v, visible(mask, causal, q.shape[2], k.shape[2], q.device), scale)
    if mask is None:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
    else:
        mask = mask[(None,) * (q.dim() - mask.dim())]  # the fused kernels refuse three axes
        seen = visible(mask, causal, q.shape[2], k.shape[2], q.device)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scale)
    return y.to(q.dtype)


def softmax_formula(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Tensor:
    """The definition of softmax attention; every derivative exists."""
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
    if seen is None:
        return torch.softmax(scores, -1) @ v
    blind = ~seen.any(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(~seen & ~blind, -torch.inf), -1)
    return weights.masked_fill(blind, 0) @ v
