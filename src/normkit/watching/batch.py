"""The last batch that a watched model was called on, kept so that a copy of the model can be called on it again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from normkit.watching.signals.output import Target, loss_in, rows_of_scores, scores_in
from normkit.watching.signals.signal import local_tensors

MOST = 2**24  # bytes of a batch that is kept
PLAIN = (bool, int, float, str, type(None))


@dataclass
class Batch:
    """What a model was called with, under which autocast, and the target of its loss, where that is known."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: str
    autocast: torch.dtype | None
    target: Target | None = None

    def call(self, model: torch.nn.Module) -> Any:
        """Call a model on a copy of the batch."""
        with torch.autocast(self.device, dtype=self.autocast, enabled=self.autocast is not None):
            return model(*_copy(self.args), **_copy(self.kwargs))

    def loss(self, output: Any) -> Tensor | None:
        """Return the loss of what a model gives, its own or the cross entropy of the target; None if unknown."""
        own = loss_in(output)
        if own is not None:
            return own
        scores = scores_in(output)
        if scores is None or self.target is None or not self.target.is_known():
            return None
        z, live = rows_of_scores(scores), self.target.live.flatten()
        return F.cross_entropy(z[live].float(), self.target.classes.flatten()[live]) * self.target.scale


def copy_call(args: Any, kwargs: Any) -> Batch | None:
    """Return a copy of what a model is called with; None where it is large, or more than tensors and plain values."""
    tensors = [x for x in local_tensors((args, kwargs)) if x.dim()]
    if not tensors or sum(x.numel() * x.element_size() for x in tensors) > MOST or not _is_plain((args, kwargs)):
        return None
    device = tensors[0].device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    return Batch(_copy(args), _copy(kwargs), device, dtype)


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    return isinstance(value, PLAIN) or (type(value) is Tensor)


def _copy(value: Any) -> Any:
    return tree_map_only(Tensor, lambda x: x.detach().clone(), value)
