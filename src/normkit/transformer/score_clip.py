"""QK-clip in a model: look on at the scores of attention, and after a step shrink the heads whose were too large."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from normkit import check
from normkit.attention.qk_clip import qk_clip
from normkit.attention.softmax import Softmax
from normkit.ops.sharded import is_sharded
from normkit.parameters import own_parameter
from normkit.statistics import full_precision
from normkit.transformer.attention import Attention


class ScoreClip:
    """Look on at the attention scores of a model, and clip the heads whose largest went beyond a bound.

        >>> from normkit.transformer import Decoder
        >>> model = Decoder(vocab=11, dim=8, depth=2, heads=2)
        >>> clip = ScoreClip(model, bound=100.0)
        >>> model(torch.zeros(3, 5, dtype=torch.int64)).sum().backward()  # training sees scores
        >>> clip()  # after optimizer.step(); or Muon(..., qk_clip=clip) does it

    Each self-attention of the model with the core ``softmax`` is looked at while it trains. Every call looks at
    ``queries`` of each sequence, evenly spread and others each time, against all keys that they see: a look costs that
    share of the scores' product. Masks that a caller hands in are kept. A head whose scores in a call are not finite is
    left out of that call. Queries and keys with norms are refused, since their weights' scale has no effect.

    Args:
        model: what holds :class:`normkit.transformer.attention.Attention`, such as a ``Decoder``.
        bound, balance: those of :func:`normkit.qk_clip`.
        queries: how many of a sequence a look takes at least, and fewer than twice as many; None: all.
        sync, process_group: take the largest over processes, default all. Replicas that see other batches need it: each
            would clip by its own, and they would part for good.

    ``clip.largest()`` has each attention's largest score by head since the last clip; ``clip.close()`` looks no longer.
    """

    def __init__(
        self,
        model: nn.Module,
        bound: float = 100.0,
        balance: float = 0.5,
        queries: int | None = 4,
        *,
        sync: bool = False,
        process_group: Any = None,
    ):
        if not isinstance(model, nn.Module):
            raise TypeError(f"ScoreClip: model must be a torch.nn.Module, not {type(model).__name__}")
        self.bound = check.number(self, "bound", bound, 0.0, open_low=True)
        self.balance = check.number(self, "balance", balance, 0.0, 1.0)
        self.queries = None if queries is None else check.size(self, "queries", queries)
        self.sync, self.process_group = sync, process_group
        self.sites = {
            name: part
            for name, part in model.named_modules()
            if isinstance(part, Attention) and isinstance(part.core, Softmax)
        }
        if not self.sites:
            raise ValueError("ScoreClip: model has no attention with the core 'softmax'")
        for name, part in self.sites.items():
            self._check(name, part)
        for name, part in model.named_modules():
            if getattr(part, "on_a_sphere", False):
                raise ValueError(f"ScoreClip: {name} gives queries and keys one length: that of weights is lost")
        self._seen: dict[str, Tensor] = {}
        self._calls = dict.fromkeys(self.sites, 0)
        self._hooks = [
            part.core.register_forward_pre_hook(functools.partial(self._look, name), with_kwargs=True)
            for name, part in self.sites.items()
        ]

    def _check(self, name: str, part: Attention) -> None:
        if {"query", "key"} & set(part.norms):
            raise ValueError(f"ScoreClip: {name} normalizes queries and keys: the scale of their weights is lost")
        if part.keys_of is not None:
            raise ValueError(f"ScoreClip: {name} reads the keys of layer {part.keys_of}, which others read too")
        if part.core.softcap is not None:
            raise ValueError(f"ScoreClip: {name} caps its scores at {part.core.softcap}; nothing is left to clip")
        for projection in (part.query, part.key):
            if not isinstance(projection, nn.Linear) or any(map(is_sharded, projection.parameters())):
                raise ValueError(f"ScoreClip: {name} must project by linear maps that are not sharded")
            if own_parameter(projection, "weight") is None:  # to read a parametrized one may change it
                raise ValueError(f"ScoreClip: {name} has parametrized projections, whose weights cannot be set")

    @torch.no_grad()
    def _look(self, name: str, core: Softmax, args: Any, kwargs: Any) -> None:
        """Keep the largest score of each head of one call in training."""
        q, k = args[0].detach(), args[1].detach()
        if not core.training or not q.numel():
            return
        mask = kwargs.get("mask", args[3] if len(args) > 3 else None)
        length, keys = q.shape[2], k.shape[2]
        step = 1 if self.queries is None else max(1, length // self.queries)
        at = torch.arange(self._calls[name] % step, length, step, device=q.device)
        self._calls[name] += 1
        with full_precision(q):
            scores = q[:, :, at].float() @ k.float().mT * (q.shape[-1] ** -0.5 if core.scale is None else core.scale)
        if core.causal:
            scores = scores.masked_fill(torch.arange(keys, device=q.device) > at[:, None], -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask.expand(*q.shape[:3], keys)[:, :, at], -torch.inf)
        largest = scores.amax((0, 2, 3))
        largest = torch.where(largest < torch.inf, largest, -torch.inf)  # one bad batch would stay until the next clip
        before = self._seen.get(name)
        self._seen[name] = largest if before is None else torch.maximum(before, largest)

    def largest(self) -> dict[str, Tensor]:
        """Return each attention's largest score by head since the last clip; those not called are left out."""
        seen = dict(self._seen)
        if self.sync:
            for name, part in self.sites.items():
                seen.setdefault(name, torch.full((part.heads,), -torch.inf, device=next(part.parameters()).device))
                dist.all_reduce(seen[name], dist.ReduceOp.MAX, self.process_group)
        return seen

    @torch.no_grad()
    def __call__(self) -> None:
        """Shrink the weights, and biases, of heads beyond the bound; forget the scores."""
        for name, part in self.sites.items():
            self._check(name, part)  # it may have been cut since
        if not self.sync and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            warnings.warn(
                f"ScoreClip: each of {dist.get_world_size()} processes clips by the scores that it has seen; where "
                "they train one model, as under DistributedDataParallel, their weights part: sync=True",
                stacklevel=2,
            )
        for name, largest in self.largest().items():
            part = self.sites[name]
            options: dict[str, Any] = {
                "heads": part.heads,
                "kv_heads": part.kv_heads,
                "bound": self.bound,
                "balance": self.balance,
            }
            for entry in ("weight", "bias"):
                query, key = getattr(part.query, entry), getattr(part.key, entry)
                if query is not None and key is not None:
                    for parameter, clipped in zip((query, key), qk_clip(query, key, largest, **options), strict=True):
                        parameter.copy_(clipped)
        self._seen.clear()

    def close(self) -> None:
        """Look no longer."""
        for hook in self._hooks:
            hook.remove()
